/* The two ways of round B1; both fill in kept, keptLocal and the reroute from
 * keys, by way of the same selection and the same reading of its flags. */
#ifndef LRMOE_COLLECTIVES_SELECT_H
#define LRMOE_COLLECTIVES_SELECT_H

#include "collectives/reroute.h"
#include "collectives/step.h"
#include "kernels/select.h"

lrmoeResult_t lrmoeSelectGather(struct lrmoeStep *step);
lrmoeResult_t lrmoeSelectHome(struct lrmoeStep *step);

/* Hash of the plan, the step and the backward config; begins every message. */
uint64_t lrmoeSelectTag(const struct lrmoeStep *step);

int lrmoeSelectHasReplicas(const struct lrmoeStep *step, int32_t expert);

int lrmoeSelectHasInstance(const struct lrmoeStep *step, int32_t expert,
                           int32_t rank);

/* Whether kept pairs of the expert may go to another instance. */
int lrmoeSelectMayMove(const struct lrmoeStep *step, int32_t expert);

/* What the home of an expert tells rank r: the bits of all its pairs, since it
 * is a source or an executor of one with replicas; and all their tokens, since
 * pairs may move to it. */
int lrmoeSelectTellsAll(const struct lrmoeStep *step, int32_t expert,
                        int32_t r);
int lrmoeSelectTellsTokens(const struct lrmoeStep *step, int32_t expert,
                           int32_t r);

/* Device: tokens of this rank's pairs that may move, in sorted order. */
lrmoeResult_t lrmoeSelectPackTokens(struct lrmoeStep *step, int32_t **tokens,
                                    int64_t *count);

/* Messages of all ranks begin with a tag at bytes + offsets[rank]: all are this
 * step's. */
lrmoeResult_t lrmoeSelectCheckTags(const struct lrmoeStep *step,
                                   const unsigned char *bytes,
                                   const int64_t *offsets);

/* n[e]: pairs of all sources. */
int64_t lrmoeSelectNumPairs(const struct lrmoeStep *step, int32_t expert);

/* Pairs of an expert that follow each other in (source, ordinal) order and of
 * which the `quota` best are kept: all of them, or with scope `instance` those
 * of each instance. */
struct lrmoeStretch {
  int64_t numPairs;
  int64_t quota;
};
int32_t lrmoeSelectNumStretches(const struct lrmoeStep *step, int32_t expert);
struct lrmoeStretch lrmoeSelectStretch(const struct lrmoeStep *step,
                                       int32_t expert, int32_t i);

/* flags [n[e]] from keys [n[e]], in (source, ordinal) order. */
void lrmoeSelectExpert(const struct lrmoeStep *step, int32_t expert,
                       uint32_t *keys, uint8_t *flags);

/* Room for a selection on the device. */
lrmoeResult_t lrmoeSelectReserveWork(struct lrmoeStep *step,
                                     struct lrmoeSelection *selection);

/* Flags of this rank's own pairs of an expert, by ordinal; none of them moves
 * (lrmoeSelectTake corrects it where they do). */
void lrmoeSelectTakeOwn(struct lrmoeStep *step, int32_t expert,
                        const uint8_t *flags);

/* Flags of all pairs of an expert, to this rank as source and as executor;
 * experts come in ascending order.  moves->tokens may be NULL where this rank
 * has no instance of the expert or no pair can move. */
lrmoeResult_t lrmoeSelectTake(struct lrmoeStep *step,
                              const struct lrmoeMoves *moves);

#endif
