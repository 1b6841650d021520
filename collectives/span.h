/* Spans of time that LRMOE_TRACE and NVTX show. */
#ifndef LRMOE_COLLECTIVES_SPAN_H
#define LRMOE_COLLECTIVES_SPAN_H

#include "collectives/comm.h"

struct lrmoeSpan {
  const struct lrmoeComm *comm;
  const char *name;
  int64_t startNs;
  int64_t bytes; /* that it carried; -1: nothing said */
  int isRange;   /* the backend's profiler shows it too */
};

struct lrmoeSpan lrmoeSpanBegin(const struct lrmoeComm *comm, const char *name);
void lrmoeSpanEnd(struct lrmoeSpan *span);

/* From here to the end of the block, however it is left; name is a constant,
 * without a communicator there is no span.
 * The block may set span_.bytes.  On a device it is the host's time: work is
 * enqueued in it. */
#define LRMOE_SPAN(comm, name)                                            \
  struct lrmoeSpan span_ __attribute__((cleanup(lrmoeSpanEnd), unused)) = \
      lrmoeSpanBegin(comm, name)

#endif
