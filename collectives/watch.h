/* What the host and running kernels tell each other: the watches of a
 * communicator.
 *
 * Kernels that wait for peers, or write into their memory, look at a watch
 * (kernels/fused.h).  A communicator that is broken or aborted stops them first
 * (lrmoeWatchStop), so that windows never go under a kernel, and what a wait
 * has failed with is found by whoever asks for the state of the
 * communicator. */
#ifndef LRMOE_COLLECTIVES_WATCH_H
#define LRMOE_COLLECTIVES_WATCH_H

#include "collectives/comm.h"
#include "kernels/fused.h"

/* Part of what the kernels belong to. */
struct lrmoeWatched {
  struct lrmoeWatched *next; /* of the communicator's */
  struct lrmoeWatch *watch;  /* page-locked */
  void *event;               /* the last wait */
};

/* Room for a watch and its event; freed by lrmoeWatchFree, safe on zeros. */
lrmoeResult_t lrmoeWatchMake(const struct lrmoeBackend *backend,
                             struct lrmoeWatched *watched);
void lrmoeWatchFree(const struct lrmoeBackend *backend,
                    struct lrmoeWatched *watched);

/* From here on the communicator stops these kernels before it ends, and has
 * failed when they have; and no longer, after their last wait. */
void lrmoeWatchAdd(struct lrmoeComm *comm, struct lrmoeWatched *watched);
void lrmoeWatchRemove(struct lrmoeComm *comm, struct lrmoeWatched *watched);

/* What a wait on the communicator has failed with, as seen now. */
lrmoeResult_t lrmoeWatchCheck(struct lrmoeComm *comm);

/* Kernels write to peers no more when this returns, or the communicator's
 * time-out has passed; user: a struct lrmoeComm. */
void lrmoeWatchStop(void *user);

#endif
