/* Hints that wait for their exchange (include/lrmoe_hint.h). */
#ifndef LRMOE_PLUGIN_PRELOAD_HINT_H
#define LRMOE_PLUGIN_PRELOAD_HINT_H

#include "plugin/preload/comm.h"

struct lrmoeHint {
  struct lrmoeHint *next; /* of this thread's */
  uint64_t serial;        /* of the communicator */
  uint64_t hash;          /* of all that must be equal on all ranks; not 0 */
  int64_t layer;
  int64_t rowBytes;
  int64_t numExperts;
  int64_t *demand;   /* [G, E] */
  int64_t *quotas;   /* [E] */
  int64_t *counters; /* [2 G] room for the selection */
  const float *phiNorms;
};

/* This thread's hint for the communicator, which has none from here on; NULL:
 * there is none.  Free with lrmoeHintFree. */
struct lrmoeHint *lrmoeHintTake(const struct lrmoePreloadComm *comm);
void lrmoeHintFree(struct lrmoeHint *hint);

/* Counts a hint that led to nothing; the first of a process is warned of. */
void lrmoeHintRefuse(struct lrmoePreloadComm *comm, const char *why);

#endif
