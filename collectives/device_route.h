/* The route of a backward worked out on the device, from flags to indices, so
 * that the host waits for counts alone (compact_route.c is the other way).
 *
 * It is taken where selection leaves its flags on a device and rows cross once
 * per (token, rank). */
#ifndef LRMOE_COLLECTIVES_DEVICE_ROUTE_H
#define LRMOE_COLLECTIVES_DEVICE_ROUTE_H

#include "collectives/step.h"

/* Whether this backward's route is worked out on the device. */
int lrmoeDeviceRouteIsPossible(const struct lrmoeStep *step);

/* Whether any pair comes with its row of x. */
int lrmoeDeviceRouteHasX(const struct lrmoeStep *step);

/* What selection leaves. */
struct lrmoeDeviceSelected {
  uint8_t *flags;  /* device: by (expert, source, ordinal), of all pairs that
                     this rank is source or executor of, and of all pairs of
                     experts that may move to or from it */
  int32_t *tokens; /* device: room for those of local pairs, then those of pairs
                      that may move here */
  const int64_t *tokenFirsts; /* [G, E] where those of a cell begin */
};

/* Enqueues what tells how many rows cross.  Once the stream has been waited
 * for, lrmoeDeviceRouteTake reads it. */
lrmoeResult_t lrmoeDeviceRouteCount(struct lrmoeStep *step,
                                    const struct lrmoeDeviceSelected *selected);
lrmoeResult_t lrmoeDeviceRouteTake(struct lrmoeStep *step);

/* Selection of all pairs, for lrmoeMetricAll, and the count of its route. */
lrmoeResult_t lrmoeDeviceKeepAll(struct lrmoeStep *step);

/* Selection at the experts' homes, and what follows from it: the count of the
 * route, or the host's way of it. */
lrmoeResult_t lrmoeDeviceSelectHome(struct lrmoeStep *step);

/* Whether the host can go on without counts, and that it does: nothing moves,
 * so that the forward pass bounds what crosses, and the plan says how many
 * pairs each instance has.  tags: as in the route. */
int lrmoeDeviceRouteMayDefer(const struct lrmoeStep *step);
void lrmoeDeviceRouteDefer(struct lrmoeStep *step, const uint64_t *tags);

/* Waits for counts that the host went on without, and takes them. */
lrmoeResult_t lrmoeDeviceRouteSettle(struct lrmoeStep *step);

/* The handoff's segments of a deferred route. */
lrmoeResult_t lrmoeDeviceRouteLayOut(struct lrmoeStep *step);

/* Executor: d(alpha) of all forward pairs in wire order, zero where a pair was
 * not kept, and room for those of this rank's pairs. */
lrmoeResult_t lrmoeDeviceRouteDAlpha(struct lrmoeStep *step, float **send,
                                     float **recv);

/* Device: offsets [G + 1] of the rows of g that go to each executor, then of
 * those that come from each source. */
const int64_t *lrmoeDeviceRouteRows(const struct lrmoeStep *step);

/* Spoils the rows of dx of pairs that were dropped though they overflowed. */
lrmoeResult_t lrmoeDeviceRouteSpoil(struct lrmoeStep *step, void *dx);

/* Enqueues the handoff, the lists of the rows that cross, and what the way
 * back needs; counts are known. */
lrmoeResult_t lrmoeDeviceRouteLists(struct lrmoeStep *step);

/* Device: tokens whose rows of x this rank sends, and the alphas of the pairs
 * that go with them. */
lrmoeResult_t lrmoeDeviceRouteXTokens(struct lrmoeStep *step, int64_t **tokens);
lrmoeResult_t lrmoeDeviceRouteAlphas(struct lrmoeStep *step, float *alphas);

/* Device: this rank's kept pairs, in the order in which their words come home
 * (as many as step->keptOffsets ends with). */
lrmoeResult_t lrmoeDeviceRoutePairs(struct lrmoeStep *step, int64_t **pairs);

/* Device: of this rank's forward pairs those that did not stay, by instance;
 * firsts [numInstances + 1]: where each one's begin.  *rows: their rows of g,
 * and behind these their places in the forward pass. */
lrmoeResult_t lrmoeDeviceRouteRest(struct lrmoeStep *step, int64_t *firsts,
                                   int64_t **rows);

/* Rows of g lie in a stretch of `stride` rows per source, not in one
 * sequence. */
lrmoeResult_t lrmoeDeviceRouteSpread(struct lrmoeStep *step, int64_t stride);

/* Makes step->tokenLists anew: rows that go to, or come from, rank d are
 * numbered from d * stride on. */
lrmoeResult_t lrmoeDeviceRouteTokens(struct lrmoeStep *step, int64_t stride);

/* Fills keys, kept and backDest in on the host, where they have not been;
 * waits. */
lrmoeResult_t lrmoeSelectionFetch(struct lrmoeStep *step);

#endif
