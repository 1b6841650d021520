/* Who is alive, and whose fault it is that nothing moves. */
#ifndef LRMOE_COLLECTIVES_CPU_LIVENESS_H
#define LRMOE_COLLECTIVES_CPU_LIVENESS_H

#include "base/result.h"

struct ncclComm;

/* Says that this rank's process is alive, until it ends or leaves. */
lrmoeResult_t lrmoeLivenessEnter(struct ncclComm *comm);
void lrmoeLivenessLeave(struct ncclComm *comm);

/* Whether the process of `rank` is gone (or has left). */
int lrmoeLivenessIsGone(const struct ncclComm *comm, int rank);

/* A rank that this one waits for, -1: none.  A leaving rank waits for the
 * others to leave too. */
int lrmoeLivenessAwaited(const struct ncclComm *comm);

/* To be called often by a rank that waits: gives a sign of life and, every
 * 20 ms, looks after the peers that it waits for; breaks comm when one is
 * dead, has left, or the time-out has passed. */
void lrmoeLivenessTick(struct ncclComm *comm);

/* A sign of life; `now` is the time. */
void lrmoeLivenessBeat(struct ncclComm *comm, int64_t nowNs);

#endif
