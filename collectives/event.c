/* Events: a mark in a stream that is asked for, waited for by another stream or
 * by the host, and that knows its communicator, whose failures a stream does
 * not tell of. */
#include "base/alloc.h"
#include "collectives/comm.h"

struct lrmoeEvent {
  struct lrmoeComm *comm;
  void *device; /* the backend's */
};

lrmoeResult_t lrmoeEventCreate(lrmoeComm_t comm, lrmoeEvent_t *event) {
  LRMOE_REQUIRE(comm && event, "comm or event is NULL");
  struct lrmoeEvent *made = NULL;
  LRMOE_CHECK(lrmoeCommNeedBackend(comm));
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->comm = comm;
  lrmoeResult_t result = lrmoeBackendSettle(
      comm->backend, "eventCreate", comm->backend->eventCreate(&made->device));
  if (result != lrmoeSuccess) {
    lrmoeFree(made);
    return result;
  }
  __atomic_fetch_add(&comm->numEvents, 1, __ATOMIC_RELAXED);
  *event = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEventDestroy(lrmoeEvent_t event) {
  if (!event) return lrmoeSuccess;
  struct lrmoeComm *comm = event->comm;
  lrmoeResult_t result =
      lrmoeBackendSettle(comm->backend, "eventDestroy",
                         comm->backend->eventDestroy(event->device));
  lrmoeFree(event);
  __atomic_fetch_sub(&comm->numEvents, 1, __ATOMIC_RELEASE);
  return result;
}

static lrmoeResult_t checkStream(const struct lrmoeEvent *event,
                                 lrmoeStream_t stream) {
  LRMOE_REQUIRE(event, "event is NULL");
  LRMOE_REQUIRE(!stream || event->comm->transport->hasStreams,
                "a CPU communicator has no streams: pass NULL");
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEventRecord(lrmoeEvent_t event, lrmoeStream_t stream) {
  LRMOE_CHECK(checkStream(event, stream));
  LRMOE_RUN(event->comm->backend, eventRecord, event->device, stream);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEventWait(lrmoeEvent_t event, lrmoeStream_t stream) {
  LRMOE_CHECK(checkStream(event, stream));
  LRMOE_RUN(event->comm->backend, streamWait, stream, event->device);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeEventQuery(lrmoeEvent_t event, int *isDone) {
  int isReached = 0;
  LRMOE_REQUIRE(event && isDone, "event or isDone is NULL");
  LRMOE_RUN(event->comm->backend, eventQuery, event->device, &isReached);
  LRMOE_CHECK(lrmoeCommCheck(event->comm));
  *isDone = isReached;
  return lrmoeSuccess;
}

/* What has failed may have left kernels behind that nobody ends: no wait then.
 */
lrmoeResult_t lrmoeEventSynchronize(lrmoeEvent_t event) {
  LRMOE_REQUIRE(event, "event is NULL");
  LRMOE_CHECK(lrmoeCommCheck(event->comm));
  LRMOE_RUN(event->comm->backend, eventWait, event->device);
  return lrmoeCommCheck(event->comm);
}
