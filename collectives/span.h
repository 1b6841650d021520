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
  int ticket;    /* of the device's times; -1: none */
};

struct lrmoeSpan lrmoeSpanBegin(const struct lrmoeComm *comm, const char *name);

/* The same, with the device's time of what is enqueued on the stream. */
struct lrmoeSpan lrmoeSpanBeginOn(const struct lrmoeComm *comm,
                                  const char *name, lrmoeStream_t stream);
void lrmoeSpanEnd(struct lrmoeSpan *span);

/* From here to the end of the block, however it is left; name is a constant,
 * without a communicator there is no span.
 * The block may set span_.bytes.  On a device it is the host's time. */
#define LRMOE_SPAN(comm, name)                                            \
  struct lrmoeSpan span_ __attribute__((cleanup(lrmoeSpanEnd), unused)) = \
      lrmoeSpanBegin(comm, name)

/* And the device's, of the work that the block enqueues on the stream. */
#define LRMOE_SPAN_ON(comm, name, stream)                                 \
  struct lrmoeSpan span_ __attribute__((cleanup(lrmoeSpanEnd), unused)) = \
      lrmoeSpanBeginOn(comm, name, stream)

#endif
