/* Times of a device: see device_times.h. */
#include "collectives/device_times.h"

#include "base/alloc.h"
#include "base/clock.h"

enum {
  maxPending = 256
};

/* Work between two events; both are kept for the next batch. */
struct work {
  const char *name;
  void *from;
  void *to;
  lrmoeStream_t stream;
  int64_t bytes;
  int isEnded;
};

struct lrmoeDeviceTimes {
  const struct lrmoeBackend *backend;
  struct lrmoeTrace *trace;
  void *base;     /* event that was reached at baseNs of the host */
  int64_t baseNs; /* 0: not in this batch */
  int numOpen;    /* begun and not ended */
  int numWorks;
  struct work works[maxPending];
};

lrmoeResult_t lrmoeDeviceTimesOpen(const struct lrmoeBackend *backend,
                                   struct lrmoeTrace *trace,
                                   struct lrmoeDeviceTimes **times) {
  struct lrmoeDeviceTimes *made = NULL;
  *times = NULL;
  if (!trace || !backend->timerCreate) return lrmoeSuccess;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->backend = backend;
  made->trace = trace;
  *times = made;
  return lrmoeSuccess;
}

/* ---- A batch ---- */

static void report(const struct lrmoeDeviceTimes *times,
                   const struct work *work) {
  const struct lrmoeBackend *backend = times->backend;
  int64_t startNs = 0, ns = 0;
  if (!work->isEnded || backend->eventWait(work->to) != lrmoeSuccess ||
      backend->timerRead(times->base, work->from, &startNs) != lrmoeSuccess ||
      backend->timerRead(work->from, work->to, &ns) != lrmoeSuccess)
    return;
  const struct lrmoeTraceEvent event = {work->name, times->baseNs + startNs,
                                        times->baseNs + startNs + ns,
                                        work->bytes, 1};
  lrmoeTraceAdd(times->trace, &event);
}

static void drain(struct lrmoeDeviceTimes *times) {
  for (int i = 0; i < times->numWorks; i++)
    report(times, &times->works[i]);
  times->numWorks = 0;
  times->baseNs = 0;
}

/* The two clocks at one moment: the host's, when it has seen the event. */
static int meet(struct lrmoeDeviceTimes *times, lrmoeStream_t stream) {
  const struct lrmoeBackend *backend = times->backend;
  if (times->baseNs) return 1;
  if ((!times->base && backend->timerCreate(&times->base) != lrmoeSuccess) ||
      backend->eventRecord(times->base, stream) != lrmoeSuccess ||
      backend->eventWait(times->base) != lrmoeSuccess)
    return 0;
  times->baseNs = lrmoeNowNs();
  return 1;
}

static int prepare(const struct lrmoeBackend *backend, struct work *work) {
  return (work->from || backend->timerCreate(&work->from) == lrmoeSuccess) &&
         (work->to || backend->timerCreate(&work->to) == lrmoeSuccess);
}

int lrmoeDeviceTimesBegin(struct lrmoeDeviceTimes *times, const char *name,
                          lrmoeStream_t stream) {
  if (times->numWorks == maxPending && !times->numOpen) drain(times);
  if (times->numWorks == maxPending || !meet(times, stream)) return -1;
  struct work *work = &times->works[times->numWorks];
  if (!prepare(times->backend, work) ||
      times->backend->eventRecord(work->from, stream) != lrmoeSuccess)
    return -1;
  work->name = name;
  work->stream = stream;
  work->isEnded = 0;
  times->numOpen++;
  return times->numWorks++;
}

void lrmoeDeviceTimesEnd(struct lrmoeDeviceTimes *times, int ticket,
                         int64_t bytes) {
  if (ticket < 0) return;
  struct work *work = &times->works[ticket];
  work->bytes = bytes;
  work->isEnded =
      times->backend->eventRecord(work->to, work->stream) == lrmoeSuccess;
  times->numOpen--;
}

void lrmoeDeviceTimesClose(struct lrmoeDeviceTimes *times) {
  if (!times) return;
  drain(times);
  for (int i = 0; i < maxPending; i++) {
    times->backend->eventDestroy(times->works[i].from);
    times->backend->eventDestroy(times->works[i].to);
  }
  times->backend->eventDestroy(times->base);
  lrmoeFree(times);
}
