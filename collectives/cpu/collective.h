/* Collectives as rounds of messages. */
#ifndef LRMOE_COLLECTIVES_CPU_COLLECTIVE_H
#define LRMOE_COLLECTIVES_CPU_COLLECTIVE_H

#include "collectives/cpu/comm.h"

/* Number of rounds that `call` takes; the same on every rank. */
int64_t lrmoeCollectiveRounds(const struct ncclComm *comm,
                              const struct lrmoeCall *call);

/* Scratch memory that it needs. */
size_t lrmoeCollectiveScratch(const struct ncclComm *comm,
                              const struct lrmoeCall *call);

/* Adds its messages of `round`, using its part of the scratch memory. */
lrmoeResult_t lrmoeCollectiveBegin(struct ncclComm *comm,
                                   const struct lrmoeCall *call, int64_t round,
                                   char *scratch);

/* The messages of `round` have come: computes on them. */
void lrmoeCollectiveEnd(struct ncclComm *comm, const struct lrmoeCall *call,
                        int64_t round, char *scratch);

#endif
