/* Proofs that no larger retention fits where moves cost memory: see price.c. */
#ifndef LRMOE_PLANNER_PRICE_H
#define LRMOE_PLANNER_PRICE_H

#include "planner/retain.h"

/* From a rate that fits up to search->ceiling: *rate becomes the highest that
 * is found to fit, *bound one that none above does. */
void lrmoePriceRate(const struct lrmoeRetainSearch *search, int64_t *rate,
                    int64_t *bound);

/* The most pairs that any quotas from `least` up to `ceiling` keep, after
 * lrmoeRetainTrade has found some that fit. */
int64_t lrmoePricePairs(const struct lrmoeRetainSearch *search);

#endif
