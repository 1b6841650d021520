/* Life of a communicator of the CPU transport. */
#include "collectives/cpu/comm.h"

#include "base/param.h"
#include "collectives/cpu/bootstrap.h"
#include "collectives/cpu/failure.h"
#include "collectives/cpu/liveness.h"
#include "collectives/cpu/p2p.h"
#include "collectives/cpu/secret.h"
#include "collectives/cpu/wait.h"
#include "collectives/cpu/window.h"
#include "collectives/transport.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

lrmoeResult_t lrmoeCommUsable(struct ncclComm *comm) {
  LRMOE_REQUIRE(comm, "the communicator is NULL");
  if (comm->forkGeneration != lrmoeForkGeneration())
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "the communicator was made before fork() by the parent "
                      "process");
  return lrmoeFailureCheck(comm);
}

static int countCores(void) {
  cpu_set_t cores;
  if (!sched_getaffinity(0, sizeof cores, &cores)) return CPU_COUNT(&cores);
  return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static lrmoeResult_t commMake(int numRanks, int rank, int64_t timeoutMs,
                              struct ncclComm **comm) {
  struct ncclComm *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  pthread_mutex_init(&made->reasonMutex, NULL);
  made->rank = rank;
  made->numRanks = numRanks;
  made->timeoutMs = timeoutMs ? timeoutMs : lrmoeParamGet(lrmoeParamTimeoutMs);
  made->forkGeneration = lrmoeForkGeneration();
  made->numSpins =
      numRanks > countCores() ? 0 : (int)lrmoeParamGet(lrmoeParamSpins);
  made->numYields = (int)lrmoeParamGet(lrmoeParamYields);
  made->suspect = -1;
  lrmoeResult_t result = LRMOE_ALLOCATE(numRanks, &made->lanes);
  if (result != lrmoeSuccess) {
    lrmoeFree(made);
    return result;
  }
  lrmoeMessagesClear(made);
  *comm = made;
  return lrmoeSuccess;
}

static void commFree(struct ncclComm *comm) {
  if (comm->segment) lrmoeLivenessLeave(comm);
  lrmoeWindowsFree(comm);
  for (int rank = 0; rank < comm->numRanks; rank++)
    lrmoeMappingClose(comm->lanes[rank].heap);
  lrmoeMappingClose(comm->segmentMapping);
  lrmoeFree(comm->lanes);
  lrmoeFree(comm->calls);
  lrmoeFree(comm->messages);
  lrmoeBufferFree(&comm->scratch);
  pthread_mutex_destroy(&comm->reasonMutex);
  lrmoeFree(comm);
}

static lrmoeResult_t checkPlace(int numRanks, int rank, int64_t timeoutMs) {
  enum {
    maxRanks = 1 << 20
  }; /* far beyond what the segment's size allows */
  LRMOE_REQUIRE(numRanks >= 1 && numRanks <= maxRanks, "numRanks is %d",
                numRanks);
  LRMOE_REQUIRE(rank >= 0 && rank < numRanks, "rank is %d, of %d", rank,
                numRanks);
  LRMOE_REQUIRE(timeoutMs >= 0, "the time-out is %lld ms",
                (long long)timeoutMs);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCpuCommInit(int numRanks, const lrmoeUniqueId *id, int rank,
                               int64_t timeoutMs, struct ncclComm **comm) {
  LRMOE_REQUIRE(id && comm, "id or comm is NULL");
  LRMOE_CHECK(checkPlace(numRanks, rank, timeoutMs));
  const struct lrmoeHeap *heap = NULL;
  LRMOE_CHECK(lrmoeHeapGet(&heap));
  struct ncclComm *made = NULL;
  LRMOE_CHECK(commMake(numRanks, rank, timeoutMs, &made));
  made->heap = heap;
  lrmoeResult_t result = lrmoeBootstrap(made, id);
  if (result != lrmoeSuccess) {
    /* Ranks that think they have joined must not take this for a death. */
    if (made->segment) lrmoeFailureBreak(made, result);
    commFree(made);
    return result;
  }
  *comm = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeCommMakeId(lrmoeUniqueId *id) {
  LRMOE_REQUIRE(id, "id is NULL");
  lrmoeUniqueId made;
  LRMOE_CHECK(lrmoeSecretRandom(&made, sizeof made));
  *id = made;
  return lrmoeSuccess;
}

/* ---- Leaving ---- */

/* Says good-bye and waits until everybody has: then no rank can still read
 * this rank's memory through a window, nor miss it.  A failure that the caller
 * knows of is not told again. */
static lrmoeResult_t farewell(struct ncclComm *comm) {
  comm->isLeaving = 1;
  comm->isDone = 0;
  comm->nextInGroup = NULL;
  comm->suspect = -1;
  comm->hasMoved = 0;
  comm->progressNs = comm->tickNs = lrmoeNowNs();
  lrmoeLivenessBeat(comm, comm->progressNs);
  atomic_store(&comm->seat->isInCall, 1);
  atomic_store(&comm->seat->state, lrmoeSeatLeaving);
  for (int rank = 0; rank < comm->numRanks; rank++)
    lrmoeBellRing(comm, rank);
  if (atomic_load(&comm->isTold)) return lrmoeSuccess;
  struct lrmoeWait wait = {0};
  while (lrmoeLivenessAwaited(comm) >= 0 && !comm->isForsaken &&
         lrmoeFailureResult(comm) == lrmoeSuccess)
    lrmoeWaitIdle(&wait, comm);
  lrmoeWaitReset(&wait, comm);
  LRMOE_CHECK(lrmoeFailureCheck(comm));
  int awaited = lrmoeLivenessAwaited(comm);
  if (awaited < 0) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeRemoteError,
                    "rank %d has not destroyed its communicator within %lld ms",
                    awaited, (long long)comm->timeoutMs);
}

lrmoeResult_t lrmoeCommLeave(struct ncclComm *comm) {
  if (!comm) return lrmoeSuccess;
  if (comm->forkGeneration != lrmoeForkGeneration())
    return lrmoeCommUsable(comm);
  if (comm->isInGroup)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "the communicator has calls in an open group");
  lrmoeResult_t result = farewell(comm);
  commFree(comm);
  return result;
}

/* ---- State ---- */

lrmoeResult_t lrmoeCommBreakOff(struct ncclComm *comm) {
  LRMOE_REQUIRE(comm, "the communicator is NULL");
  if (comm->forkGeneration != lrmoeForkGeneration())
    return lrmoeCommUsable(comm);
  struct lrmoeFailure failure = {lrmoeFailureAborted, comm->rank, comm->rank};
  lrmoeFailureSet(comm, failure);
  atomic_store(&comm->isTold, 1);
  return lrmoeSuccess;
}

void lrmoeCpuCommBreak(struct ncclComm *comm) {
  if (comm && comm->forkGeneration == lrmoeForkGeneration())
    lrmoeFailureBreak(comm, lrmoeRemoteError);
}

lrmoeResult_t lrmoeCommState(struct ncclComm *comm, lrmoeResult_t *error) {
  LRMOE_REQUIRE(comm && error, "comm or error is NULL");
  if (comm->forkGeneration != lrmoeForkGeneration())
    return lrmoeCommUsable(comm);
  for (int rank = 0; rank < comm->numRanks; rank++) {
    struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, rank);
    /* The lock first: a rank says that it leaves before it drops it. */
    if (lrmoeLivenessIsGone(comm, rank) &&
        atomic_load(&seat->state) == lrmoeSeatJoined) {
      struct lrmoeFailure failure = {lrmoeFailureDied, rank, comm->rank};
      lrmoeFailureSet(comm, failure);
    }
  }
  *error = lrmoeFailureCheck(comm);
  return lrmoeSuccess;
}
