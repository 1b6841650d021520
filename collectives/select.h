/* The two ways of round B1; both fill in kept and keptLocal from keys. */
#ifndef LRMOE_COLLECTIVES_SELECT_H
#define LRMOE_COLLECTIVES_SELECT_H

#include "collectives/step.h"
#include "kernels/select.h"

lrmoeResult_t lrmoeSelectGather(struct lrmoeStep *step);
lrmoeResult_t lrmoeSelectHome(struct lrmoeStep *step);

/* Hash of the plan, the step and the backward config; begins every message. */
uint64_t lrmoeSelectTag(const struct lrmoeStep *step);

#endif
