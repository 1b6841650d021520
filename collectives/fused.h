/* Rows straight into peers' memory on a device: what a layer has for it.
 *
 * Three windows, registered when the layer is made and within its capacities:
 * rows of g at the executor, rows of dx at the source, and signal words.  The
 * ranks agree then whether every rank can address every other's; where one
 * cannot (another node, an NCCL without windows, LRMOE_FUSED=0) rows are packed
 * and sent as messages (compact.c, return.c).
 *
 * Lifetime: kernels write into peers' windows between lrmoeBackend's enter and
 * meet only.  A communicator that is broken or aborted stops them first
 * (watch.h), and a layer that is destroyed waits for its last meeting: no peer
 * writes into its windows after that. */
#ifndef LRMOE_COLLECTIVES_FUSED_H
#define LRMOE_COLLECTIVES_FUSED_H

#include "collectives/route.h"
#include "collectives/step.h"
#include "collectives/watch.h"

struct lrmoeFused {
  struct lrmoeWatched watched; /* its event: the last meeting */
  struct lrmoeLayer *layer;
  lrmoeWindow_t recv;
  lrmoeWindow_t back;
  lrmoeWindow_t signals;
  void *block;              /* [2, G] signal words, a window */
  struct lrmoeBlock tables; /* device: the next five */
  char **recvTargets; /* [G] this rank's rows in each rank's layer->recv */
  char **backTargets; /* [G] and in layer->back */
  int64_t **words;    /* [G] */
  int64_t *gate;
  int64_t *nothing; /* [G + 1] offsets of no rows */
  int64_t epoch;
};

/* Sets layer->fused where every rank can be written to.  Collective. */
lrmoeResult_t lrmoeFusedOpen(struct lrmoeLayer *layer);
void lrmoeFusedClose(struct lrmoeLayer *layer);

/* Whether this step's rows can go that way. */
int lrmoeFusedIsPossible(const struct lrmoeStep *step);

/* Bytes of rows that go to other ranks. */
int64_t lrmoeFusedBytes(const struct lrmoeStep *step, const int64_t *sent);

/* Source: rows of g into the executors' windows, and the meeting after which
 * those of all ranks are here.  The route is known. */
lrmoeResult_t lrmoeFusedPut(struct lrmoeStep *step, const void *g);
lrmoeResult_t lrmoeFusedMeet(struct lrmoeStep *step);

/* Executor: sums of rows of dx, by their lists, into the sources' windows; when
 * it is done on the stream those of all ranks are in layer->back. */
lrmoeResult_t lrmoeFusedPutSums(struct lrmoeStep *step,
                                const struct lrmoeSums *sums);

#endif
