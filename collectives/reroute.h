/* Reroute: which instance executes each kept pair in backward (design 3, step
 * 8; paper 3.3).
 *
 * Totals are the plan's X exactly.  A pair stays where its forward ran while
 * that instance's share lasts, in ascending pair id; the others move: first to
 * an instance on their own source, then within its NVLink domain, then on its
 * host, then anywhere; of those equally near to the first with room.  All of
 * it follows from kept flags, which every rank has for the experts that have
 * replicas, so nobody is told. */
#ifndef LRMOE_COLLECTIVES_REROUTE_H
#define LRMOE_COLLECTIVES_REROUTE_H

#include "collectives/step.h"

/* Clears the lists of moved pairs.  The calls below then come with experts
 * ascending. */
lrmoeResult_t lrmoeRerouteBegin(struct lrmoeStep *step);

/* Kept pairs of this rank go where forward went. */
void lrmoeRerouteOwn(struct lrmoeStep *step);

/* Kept pairs of local instance j stay (keptLocal has them); with saved state
 * none they come with x all the same. */
void lrmoeRerouteLocal(struct lrmoeStep *step, int32_t j);

/* Pairs of one expert with replicas.  flags: kept, in (source, ordinal) order;
 * tokens: of the same pairs; work: room for as many. */
struct lrmoeMoves {
  int32_t expert;
  const uint8_t *flags;
  const int32_t *tokens;
  int32_t *work;
};
lrmoeResult_t lrmoeRerouteMoves(struct lrmoeStep *step,
                                const struct lrmoeMoves *moves);

/* This rank's instance of an expert, -1: none. */
int32_t lrmoeStepInstanceOf(const struct lrmoeStep *step, int32_t expert);

#endif
