/* Rows between nodes that devices hand to the NICs (NCCL's GIN): what a layer
 * has for it.
 *
 * Opened with the layer where LRMOE_GIN asks for it, the layer spans nodes, and
 * NCCL, its NICs and the kernels have it on every rank; else rows between nodes
 * are messages (node_rows.c), as those within a node always are.
 *
 * Rows lie in windows: those of sources in the layer's send and back regions,
 * those of relays in memory of their own, which has room for the worst step.
 * Windows are the layer's, and the steps of a layer use them one after the
 * other, on streams that are ordered.
 *
 * Who may write where: a receiver tells the place of rows when its stream is
 * past all earlier use of that memory, and a sender puts nothing before.  A
 * phase ends, on the stream, for the receiver when the rows are there and for
 * the sender when they were taken.  So between two calls nothing is on its way:
 * regions can be packed anew, steps destroyed, and other steps run, as with
 * messages.
 *
 * Lifetime: as of windows on a device (fused.h): an abort stops kernels first,
 * and a layer that is destroyed waits for its last phase. */
#ifndef LRMOE_COLLECTIVES_NODE_GIN_H
#define LRMOE_COLLECTIVES_NODE_GIN_H

#include "collectives/node.h"
#include "collectives/watch.h"

struct lrmoeNodeGin {
  struct lrmoeWatched watched; /* its event: the last phase */
  struct lrmoeLayer *layer;
  void *comm; /* NCCL's device communicator */
  int isOpen; /* it is there */
  lrmoeWindow_t send;
  lrmoeWindow_t back; /* the layer's, or that of ... */
  int sharesBack;     /* ... its windows on a device */
  lrmoeWindow_t relay;
  void *relayRows; /* device */
  int64_t relayRoom;
  struct lrmoeBlock tables; /* device: the next two */
  uint64_t *seen;
  int64_t *gate;
  int64_t pieceBytes;
  int64_t epoch;
};

/* Sets layer->gin where it can be used.  Collective; after lrmoeFusedOpen, and
 * closed before it. */
lrmoeResult_t lrmoeNodeGinOpen(struct lrmoeLayer *layer);
void lrmoeNodeGinClose(struct lrmoeLayer *layer);

/* Whether rows that sources have at `rows` go that way; the same on every
 * rank. */
int lrmoeNodeGinHas(const struct lrmoeLayer *layer, const void *rows);

/* Where a relay's rows lie then. */
lrmoeResult_t lrmoeNodeGinRelay(const struct lrmoeLayer *layer, int64_t bytes,
                                char **rows);

/* Rows by peer, and which peers have some. */
struct lrmoeNodeEnd {
  char *rows;
  const int64_t *offsets; /* [G + 1] */
  int (*has)(const struct lrmoeStep *step, int32_t peer);
};

/* Rows of a way between nodes. */
struct lrmoeNodePhase {
  int isHome;                /* from relays to sources */
  enum lrmoeStepArray array; /* of its own, that tells who takes part */
  struct lrmoeNodeEnd source;
  struct lrmoeNodeEnd relay;
  struct lrmoeGin args; /* filled in by put */
};

/* Begins the phase and adds what leaves this rank to *bytes; and ends it. */
lrmoeResult_t lrmoeNodeGinPut(struct lrmoeStep *step,
                              struct lrmoeNodePhase *phase, int64_t *bytes);
lrmoeResult_t lrmoeNodeGinAwait(struct lrmoeStep *step,
                                const struct lrmoeNodePhase *phase);

#endif
