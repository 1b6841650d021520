/* Communicators that are split off one that has a board. */
#ifndef LRMOE_PLUGIN_PRELOAD_SPLIT_H
#define LRMOE_PLUGIN_PRELOAD_SPLIT_H

#include "plugin/preload/comm.h"

struct lrmoePreloadSplit {
  struct lrmoePreloadComm *parent; /* NULL: it cannot be followed */
  struct lrmoeCard card;
  int color;
  uint64_t number; /* of the parent's splits */
  int32_t *ranks;  /* room for the parent's ranks; NULL: no card */
};

/* Around NCCL's call.  isSeen 0: it does not return a communicator, but a
 * promise of one. */
void lrmoePreloadSplitBegin(lrmoeNcclComm_t comm, int color, int key,
                            int isSeen, struct lrmoePreloadSplit *split);
void lrmoePreloadSplitEnd(struct lrmoePreloadSplit *split,
                          const lrmoeNcclComm_t *comm, lrmoeResult_t result);

#endif
