/* Joining: how ranks that hold an id become a communicator.
 *
 * Rank 0 listens on an abstract unix socket; nothing appears in the file
 * system, and nothing is left when a process dies.  The others connect, both
 * sides prove that they know the id, and rank 0 hands out the memfds: the
 * shared segment, and everybody's heap.  All steps have one deadline. */
#ifndef LRMOE_COLLECTIVES_CPU_BOOTSTRAP_H
#define LRMOE_COLLECTIVES_CPU_BOOTSTRAP_H

#include "collectives/cpu/comm.h"
#include "collectives/cpu/note.h"

/* Joins comm, which knows its rank, numRanks, heap and time-out, and maps the
 * segment and the heaps. */
lrmoeResult_t lrmoeBootstrap(struct ncclComm *comm, const lrmoeUniqueId *id);

/* The two sides. */
lrmoeResult_t lrmoeBootstrapRoot(struct ncclComm *comm, const lrmoeUniqueId *id,
                                 int listener);
lrmoeResult_t lrmoeBootstrapJoin(struct ncclComm *comm,
                                 const lrmoeUniqueId *id);

/* Steps that both sides take.  `fd` is owned by the call. */
lrmoeResult_t lrmoeBootstrapMapSegment(struct ncclComm *comm,
                                       const struct lrmoeNote *note, int fd);
lrmoeResult_t lrmoeBootstrapMapHeap(struct ncclComm *comm, int rank,
                                    const struct lrmoeNote *note, int fd);

/* The note of this rank that asks to join. */
struct lrmoeNote lrmoeBootstrapJoinNote(const struct ncclComm *comm);

#endif
