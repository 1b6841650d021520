/* Spans of time: see span.h. */
#include "collectives/span.h"

#include "base/clock.h"

struct lrmoeSpan lrmoeSpanBegin(const struct lrmoeComm *comm,
                                const char *name) {
  struct lrmoeSpan span = {comm, name, 0, -1, 0};
  if (!comm) return span;
  const struct lrmoeBackend *backend = comm->backend;
  span.isRange = backend && backend->rangeBegin;
  if (span.isRange) backend->rangeBegin(name);
  if (comm->trace) span.startNs = lrmoeNowNs();
  return span;
}

void lrmoeSpanEnd(struct lrmoeSpan *span) {
  const struct lrmoeComm *comm = span->comm;
  if (!comm) return;
  if (comm->trace) {
    const struct lrmoeTraceEvent event = {span->name, span->startNs,
                                          lrmoeNowNs(), span->bytes};
    lrmoeTraceAdd(comm->trace, &event);
  }
  if (span->isRange) comm->backend->rangeEnd();
}
