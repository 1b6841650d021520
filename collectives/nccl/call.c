/* What surrounds every call of NCCL: see call.h.
 *
 * Of NCCL's errors a wrong argument has no effect on a blocking communicator;
 * all others end it, and any error ends a non-blocking one, such as ours are
 * (wrong arguments are found before they reach NCCL: collectives/call.c). */
#include "collectives/nccl/call.h"

#include "base/clock.h"

#include <sched.h>
#include <time.h>

/* NCCL's values are ours up to 7; 2.30 has one more, for its time-out. */
static lrmoeResult_t resultOf(lrmoeResult_t got) {
  const int ncclTimeout = 8;
  if ((int)got >= 0 && got <= lrmoeInProgress) return got;
  return (int)got == ncclTimeout ? lrmoeRemoteError : lrmoeInternalError;
}

lrmoeResult_t lrmoeNcclFail(const struct lrmoeNcclApi *api, const char *name,
                            lrmoeResult_t got) {
  const char *kind = api->getErrorString(got);
  const char *text = api->getLastError(NULL);
  int hasText = text && *text;
  return LRMOE_FAIL(resultOf(got), "%s: %s%s%s", name,
                    kind ? kind : "unknown result", hasText ? ": " : "",
                    hasText ? text : "");
}

int lrmoeNcclIsFatal(const struct lrmoeNcclComm *comm, lrmoeResult_t result) {
  if (result == lrmoeSuccess || result == lrmoeInProgress) return 0;
  return result != lrmoeInvalidArgument || !comm->isBorrowed;
}

lrmoeResult_t lrmoeNcclGiveUp(struct lrmoeNcclComm *comm,
                              lrmoeResult_t result) {
  lrmoeNcclCommNote(comm, result);
  lrmoeNcclCommBreak(lrmoeNcclCommHandle(comm));
  return lrmoeNcclCommCheck(comm);
}

static int64_t nowMs(void) {
  return lrmoeNowNs() / 1000000;
}

/* Yields at first, then sleeps: a call takes microseconds, or a long time. */
static void pauseBriefly(int64_t look) {
  const struct timespec nap = {0, 50000};
  if (look < 200)
    sched_yield();
  else
    nanosleep(&nap, NULL);
}

lrmoeResult_t lrmoeNcclWait(struct lrmoeNcclComm *comm, const char *name) {
  lrmoeResult_t result = lrmoeNcclCommAsk(comm);
  int64_t startMs = result == lrmoeInProgress ? nowMs() : 0;
  for (int64_t look = 0; result == lrmoeInProgress; look++) {
    if (nowMs() - startMs > comm->timeoutMs) {
      result = LRMOE_FAIL(lrmoeRemoteError,
                          "%s: NCCL was not done within %lld ms: a peer is "
                          "dead, stopped, late or never came",
                          name, (long long)comm->timeoutMs);
      return lrmoeNcclGiveUp(comm, result);
    }
    pauseBriefly(look);
    result = lrmoeNcclCommAsk(comm);
  }
  return result == lrmoeSuccess ? result : lrmoeNcclGiveUp(comm, result);
}

lrmoeResult_t lrmoeNcclLeave(struct lrmoeNcclComm *comm, const char *name,
                             lrmoeResult_t got) {
  lrmoeResult_t result = lrmoeSuccess;
  if (got != lrmoeSuccess && got != lrmoeInProgress)
    result = lrmoeNcclFail(comm->api, name, got);
  if (lrmoeNcclIsFatal(comm, result)) result = lrmoeNcclGiveUp(comm, result);
  lrmoeNcclCommExit(comm);
  return got == lrmoeInProgress ? lrmoeNcclWait(comm, name) : result;
}
