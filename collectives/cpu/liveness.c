/* Liveness: see liveness.h.
 *
 * Every rank holds a POSIX record lock on byte `rank` of the segment's file.
 * The kernel drops it when the process ends, however it ends, before the
 * zombie is reaped, and shows it across pid name spaces.  Open-file-description
 * locks would not do: a forked child (a data loader, say) shares the
 * description and would keep a dead rank's lock, and descriptors that travel
 * over a socket share one description for all ranks.  The traps of record
 * locks are met so: a process never sees its own, but ranks of one process die
 * together; closing any descriptor of the file drops them all, so mapping.c
 * keeps descriptors until the last rank leaves.
 *
 * A stopped or late rank still holds its lock: that is what the time-out is
 * for.  The culprit is then found by following who waits for whom, from the
 * rank that lost patience to one that is outside a call (late), gives no sign
 * of life (stopped), or back to itself (the calls do not match). */
#include "collectives/cpu/liveness.h"

#include "collectives/cpu/comm.h"
#include "collectives/cpu/failure.h"
#include "collectives/cpu/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
  tickNs = 20000000,
  maxChecksPerTick = 32
};
static const int64_t stoppedNs = 1000000000;
static const int64_t nsPerMs = 1000000;

static int setLock(const struct ncclComm *comm, short type) {
  struct flock lock = {
      .l_type = type, .l_whence = SEEK_SET, .l_start = comm->rank, .l_len = 1};
  return fcntl(comm->segmentFd, F_SETLK, &lock);
}

lrmoeResult_t lrmoeLivenessEnter(struct ncclComm *comm) {
  if (setLock(comm, F_WRLCK))
    return LRMOE_FAIL(lrmoeSystemError, "cannot lock a byte of a memfd: %s",
                      strerror(errno));
  comm->seat->timeoutMs = comm->timeoutMs;
  atomic_store(&comm->seat->waitsFor, -1);
  atomic_store(&comm->seat->state, lrmoeSeatJoined);
  return lrmoeSuccess;
}

void lrmoeLivenessLeave(struct ncclComm *comm) {
  setLock(comm, F_UNLCK);
}

int lrmoeLivenessIsGone(const struct ncclComm *comm, int rank) {
  if (comm->lanes[rank].isSameProcess) return 0;
  struct flock lock = {
      .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
  return !fcntl(comm->segmentFd, F_GETLK, &lock) && lock.l_type == F_UNLCK;
}

void lrmoeLivenessBeat(struct ncclComm *comm, int64_t nowNs) {
  atomic_store_explicit(&comm->seat->beatNs, nowNs, memory_order_relaxed);
}

static int isAwaited(const struct ncclComm *comm, int rank) {
  const struct lrmoeLane *lane = &comm->lanes[rank];
  if (comm->isLeaving) {
    struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, rank);
    return atomic_load(&seat->state) != lrmoeSeatLeaving;
  }
  return lane->recvs.first != lrmoeNoMessage ||
         lane->sends.first != lrmoeNoMessage ||
         lane->numDone != lane->numPosted;
}

int lrmoeLivenessAwaited(const struct ncclComm *comm) {
  for (int i = 1; i <= comm->numRanks; i++) {
    int rank = (comm->rank + i) % comm->numRanks;
    if (isAwaited(comm, rank)) return rank;
  }
  return -1;
}

/* Two looks, without any move in its lane between: the last that a rank sent
 * before it went still counts. */
static void suspect(struct ncclComm *comm, int rank,
                    enum lrmoeFailureKind kind) {
  uint64_t numMoves = comm->lanes[rank].numMoves;
  if (comm->suspect == rank && comm->suspectMoves == numMoves)
    lrmoeFailureSet(comm, (struct lrmoeFailure){kind, rank, comm->rank});
  comm->suspect = rank;
  comm->suspectMoves = numMoves;
}

static int checkPeer(struct ncclComm *comm, int rank) {
  /* A rank announces that it leaves before it drops its lock: ask the lock
   * first. */
  int isGone = lrmoeLivenessIsGone(comm, rank);
  struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, rank);
  int isLeaving = atomic_load(&seat->state) == lrmoeSeatLeaving;
  if (!isGone && !isLeaving) return 0;
  suspect(comm, rank, isLeaving ? lrmoeFailureLeft : lrmoeFailureDied);
  return 1;
}

static void checkPeers(struct ncclComm *comm) {
  int numChecks = 0;
  if (comm->suspect >= 0) {
    int rank = comm->suspect;
    if (isAwaited(comm, rank) && checkPeer(comm, rank)) return;
    comm->suspect = -1;
  }
  for (int i = 0; i < comm->numRanks && numChecks < maxChecksPerTick; i++) {
    int rank = comm->nextChecked;
    comm->nextChecked = (rank + 1) % comm->numRanks;
    if (!isAwaited(comm, rank)) continue;
    numChecks++;
    if (checkPeer(comm, rank)) return;
  }
}

/* Follows the chain of waiting ranks from `rank`; whether it ends at one that
 * is to blame. */
static int followChain(const struct ncclComm *comm, int rank, int64_t nowNs,
                       struct lrmoeFailure *failure) {
  for (int steps = 0; steps < comm->numRanks; steps++) {
    if (rank < 0 || rank == comm->rank) return 0;
    struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, rank);
    int64_t silentNs = nowNs - atomic_load(&seat->beatNs);
    int isInCall = (int)atomic_load(&seat->isInCall);
    int isSilent = silentNs > comm->timeoutMs * nsPerMs / 2;
    if (!isInCall || isSilent) {
      failure->kind = isInCall ? lrmoeFailureStopped : lrmoeFailureLate;
      failure->culprit = rank;
      return 1;
    }
    rank = atomic_load(&seat->waitsFor);
  }
  return 0;
}

static struct lrmoeFailure findCulprit(const struct ncclComm *comm,
                                       int64_t nowNs) {
  struct lrmoeFailure failure = {lrmoeFailureStuck, lrmoeLivenessAwaited(comm),
                                 comm->rank};
  for (int rank = 0; rank < comm->numRanks; rank++)
    if (isAwaited(comm, rank) && followChain(comm, rank, nowNs, &failure))
      break;
  return failure;
}

void lrmoeLivenessTick(struct ncclComm *comm) {
  int64_t now = lrmoeNowNs();
  int64_t sinceTick = now - comm->tickNs;
  if (sinceTick < tickNs && comm->suspect < 0) return;
  comm->tickNs = now;
  lrmoeLivenessBeat(comm, now);
  /* Time in which this rank itself was stopped is not the peers' fault. */
  if (comm->hasMoved)
    comm->progressNs = now;
  else if (sinceTick > stoppedNs)
    comm->progressNs += sinceTick - tickNs;
  comm->hasMoved = 0;
  int awaited = lrmoeLivenessAwaited(comm);
  atomic_store(&comm->seat->waitsFor, awaited);
  checkPeers(comm);
  int isLate = now - comm->progressNs > comm->timeoutMs * nsPerMs;
  if (!isLate || awaited < 0) return;
  /* Ranks that leave late harm nobody: only this rank gives up waiting. */
  comm->isForsaken = comm->isLeaving;
  if (!comm->isLeaving) lrmoeFailureSet(comm, findCulprit(comm, now));
}
