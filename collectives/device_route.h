/* The route of a backward worked out on the device, from flags to indices, so
 * that the host waits for counts alone (compact_route.c is the other way).
 *
 * It is taken where selection left its flags on a device, no pair moves, every
 * kept pair has its state at hand, and rows cross once per (token, rank). */
#ifndef LRMOE_COLLECTIVES_DEVICE_ROUTE_H
#define LRMOE_COLLECTIVES_DEVICE_ROUTE_H

#include "collectives/step.h"

/* Whether this backward's route is worked out on the device. */
int lrmoeDeviceRouteIsPossible(const struct lrmoeStep *step);

/* Enqueues what tells how many rows cross; flags: of all pairs, by (expert,
 * source, ordinal), device.  Once the stream has been waited for,
 * lrmoeDeviceRouteTake reads it. */
lrmoeResult_t lrmoeDeviceRouteCount(struct lrmoeStep *step,
                                    const uint8_t *flags);
void lrmoeDeviceRouteTake(struct lrmoeStep *step);

/* Enqueues the handoff, the lists of the rows that cross, and what the way
 * back needs; counts are known. */
lrmoeResult_t lrmoeDeviceRouteLists(struct lrmoeStep *step);

/* Device: this rank's kept pairs, in the order in which their words come home
 * (as many as step->keptOffsets ends with). */
lrmoeResult_t lrmoeDeviceRoutePairs(struct lrmoeStep *step, int64_t **pairs);

/* Rows of g lie in a stretch per source, not in one sequence; and so do rows
 * of dx at their source, `stride` rows each. */
lrmoeResult_t lrmoeDeviceRouteSpread(struct lrmoeStep *step, int64_t stride);
lrmoeResult_t lrmoeDeviceRouteSpreadHome(struct lrmoeStep *step,
                                         int64_t stride);

/* Makes step->tokenLists anew: rows that go to, or come from, rank d are
 * numbered on from shifts[d] [host]. */
lrmoeResult_t lrmoeDeviceRouteTokens(struct lrmoeStep *step,
                                     const int64_t *shifts);

/* Fills keys and kept in on the host, where they have not been; waits. */
lrmoeResult_t lrmoeSelectionFetch(struct lrmoeStep *step);

#endif
