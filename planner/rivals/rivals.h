/* The rivals: published placements, each in a file of its own, that fill a
 * layout (slots and shares) from layout->input. */
#ifndef LRMOE_PLANNER_RIVALS_RIVALS_H
#define LRMOE_PLANNER_RIVALS_RIVALS_H

#include "planner/rivals/layout.h"

void lrmoeRivalProportional(struct lrmoeLayout *layout);
void lrmoeRivalEplb(struct lrmoeLayout *layout);
void lrmoeRivalQuota(struct lrmoeLayout *layout);
void lrmoeRivalTopo(struct lrmoeLayout *layout);
void lrmoeRivalShadow(struct lrmoeLayout *layout);
void lrmoeRivalFlex(struct lrmoeLayout *layout);
void lrmoeRivalPermute(struct lrmoeLayout *layout);
void lrmoeRivalRelayout(struct lrmoeLayout *layout);

/* Fills layout by the rule of a policy that has one here. */
void lrmoeRivalFill(struct lrmoeLayout *layout, lrmoePolicy_t policy);

#endif
