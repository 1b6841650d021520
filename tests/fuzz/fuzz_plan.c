/* Any bytes as a saved plan: refused, or a plan that keeps every invariant and
 * is saved as the same bytes again.
 *
 * The first byte is not the plan's: where it is odd the check sum is made
 * right before loading, so that the checks behind it are reached. */
#include "fuzz/fuzz.h"
#include "planner/forge.h"
#include "planner/plan.h"
#include "tools/common/verify.h"

#include <string.h>

static void checkSavedAgain(struct lrmoePlan *plan, const char *data,
                            size_t bytes) {
  size_t again = bytes;
  char *copy = malloc(bytes);
  FUZZ_CHECK(copy != NULL);
  FUZZ_CHECK(lrmoePlanSave(plan, copy, &again) == lrmoeSuccess);
  FUZZ_CHECK(again == bytes && memcmp(copy, data, bytes) == 0);
  free(copy);
}

/* The programs' verifier, which shares nothing with the planner. */
static void checkFromOutside(struct lrmoePlan *plan) {
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  struct toolError error = {""};
  FUZZ_CHECK(lrmoePlanGetView(plan, &view) == lrmoeSuccess);
  struct toolPlanOrigin origin = {NULL, NULL, view.numRanks, 0};
  enum toolExit code = toolPlanVerify(&view, &origin, &error);
  if (code != toolGood) fprintf(stderr, "%s\n", error.text);
  FUZZ_CHECK(code == toolGood);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (!bytes) return 0;
  size_t planBytes = bytes - 1;
  /* A block of exactly that length, aligned as a caller's would be. */
  char *saved = malloc(planBytes ? planBytes : 1);
  FUZZ_CHECK(saved != NULL);
  memcpy(saved, data + 1, planBytes);
  if (data[0] & 1) forgeSum(saved, planBytes);
  struct lrmoePlan *plan = NULL;
  lrmoeResult_t result = lrmoePlanLoad(saved, planBytes, &plan);
  if (result == lrmoeSuccess) {
    FUZZ_CHECK(lrmoePlanVerify(plan) == lrmoeSuccess);
    checkFromOutside(plan);
    checkSavedAgain(plan, saved, planBytes);
    lrmoePlanDestroy(plan);
  } else {
    FUZZ_CHECK(result == lrmoeCorrupt || result == lrmoeUnsupported);
    FUZZ_CHECK(!plan);
  }
  free(saved);
  return 0;
}
