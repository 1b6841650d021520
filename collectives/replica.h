/* Replicas: instances away from home live in slots.
 *
 * Every rank has the same number of slots, and every rank keeps the table of
 * all of them: what stands in a slot follows from the sequence of steps, which
 * is the same on all ranks, so nobody asks who has what.  A slot is
 *   held   by the steps between acquire and release (a count)
 *   dirty  while it has weight gradients that its home has not got
 * A slot that nobody holds may be given to another expert: clean ones first,
 * the least recently used first; a dirty one is brought home before.
 *
 * acquire and reduce are collective; release is local, at the same place in
 * every rank's sequence of calls. */
#ifndef LRMOE_COLLECTIVES_REPLICA_H
#define LRMOE_COLLECTIVES_REPLICA_H

#include "collectives/step.h"

lrmoeResult_t lrmoeReplicasInit(struct lrmoeLayer *layer, int32_t slotsPerRank);
void lrmoeReplicasFree(struct lrmoeLayer *layer);

/* Makes the plan's replicas stand in their slots, with the layer's weights. */
lrmoeResult_t lrmoeReplicasAcquire(struct lrmoeStep *step);
void lrmoeReplicasRelease(struct lrmoeStep *step);

/* Says that the step's replicas will get weight gradients. */
lrmoeResult_t lrmoeReplicasMarkDirty(struct lrmoeStep *step);

/* Brings all dirty slots home. */
lrmoeResult_t lrmoeReplicasReduce(struct lrmoeLayer *layer,
                                  lrmoeStream_t stream);

/* Whether any slot of any rank is dirty. */
int lrmoeReplicasAreDirty(const struct lrmoeLayer *layer);

/* Weights of this rank's instance j: its own, or those in the slot. */
struct lrmoeExpertWeights lrmoeStepWeights(const struct lrmoeStep *step,
                                           int32_t j);

#endif
