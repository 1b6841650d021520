/* Spans of time: see span.h. */
#include "collectives/span.h"

#include "base/clock.h"
#include "collectives/device_times.h"

struct lrmoeSpan lrmoeSpanBegin(const struct lrmoeComm *comm,
                                const char *name) {
  struct lrmoeSpan span = {comm, name, 0, -1, 0, -1};
  if (!comm) return span;
  const struct lrmoeBackend *backend = comm->backend;
  span.isRange = backend && backend->rangeBegin;
  if (span.isRange) backend->rangeBegin(name);
  if (comm->trace) span.startNs = lrmoeNowNs();
  return span;
}

struct lrmoeSpan lrmoeSpanBeginOn(const struct lrmoeComm *comm,
                                  const char *name, lrmoeStream_t stream) {
  struct lrmoeSpan span = lrmoeSpanBegin(comm, name);
  if (comm && comm->deviceTimes)
    span.ticket = lrmoeDeviceTimesBegin(comm->deviceTimes, name, stream);
  return span;
}

void lrmoeSpanEnd(struct lrmoeSpan *span) {
  const struct lrmoeComm *comm = span->comm;
  if (!comm) return;
  if (span->ticket >= 0)
    lrmoeDeviceTimesEnd(comm->deviceTimes, span->ticket, span->bytes);
  if (comm->trace) {
    const struct lrmoeTraceEvent event = {span->name, span->startNs,
                                          lrmoeNowNs(), span->bytes, 0};
    lrmoeTraceAdd(comm->trace, &event);
  }
  if (span->isRange) comm->backend->rangeEnd();
}
