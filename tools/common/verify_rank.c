/* The check of a plan that a rank of a program has just made. */
#include "tools/common/ranks.h"
#include "tools/common/verify.h"

enum toolExit toolRankVerify(const struct toolRank *self, lrmoePlan_t plan,
                             const struct toolPlanOrigin *origin) {
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  struct toolError error = {""};
  TOOL_RANK_OK(self, lrmoePlanGetView(plan, &view));
  if (toolPlanVerify(&view, origin, &error) == toolGood) return toolGood;
  toolRankFail(self, lrmoeSuccess, "wrong plan: %s", error.text);
  return toolWrongData;
}
