/* The failure word: see failure.h. */
#include "collectives/cpu/failure.h"

#include "collectives/cpu/comm.h"
#include "collectives/cpu/wait.h"
#include "collectives/transport.h"

#include <stdio.h>
#include <string.h>

/* kind and result 8 bits each, ranks 24. */
static uint64_t encode(struct lrmoeFailure failure, lrmoeResult_t result) {
  return (uint64_t)failure.kind | (uint64_t)result << 8 |
         (uint64_t)failure.culprit << 16 | (uint64_t)failure.other << 40;
}

static struct lrmoeFailure decode(uint64_t word) {
  struct lrmoeFailure failure = {(enum lrmoeFailureKind)(word & 0xff),
                                 (int)(word >> 16 & 0xffffff),
                                 (int)(word >> 40)};
  return failure;
}

static void setWord(struct ncclComm *comm, uint64_t word) {
  uint64_t whole = 0;
  atomic_compare_exchange_strong(&comm->segment->failure, &whole, word);
  for (int rank = 0; rank < comm->numRanks; rank++)
    lrmoeBellRingAlways(comm, rank);
}

void lrmoeFailureSet(struct ncclComm *comm, struct lrmoeFailure failure) {
  setWord(comm, encode(failure, lrmoeRemoteError));
}

void lrmoeFailureBreak(struct ncclComm *comm, lrmoeResult_t result) {
  struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, comm->rank);
  pthread_mutex_lock(&comm->reasonMutex);
  if (!atomic_load(&comm->segment->failure)) {
    snprintf(seat->reason, sizeof seat->reason, "%s", lrmoeGetLastError());
    struct lrmoeFailure failure = {lrmoeFailureBroke, comm->rank, comm->rank};
    setWord(comm, encode(failure, result));
  }
  pthread_mutex_unlock(&comm->reasonMutex);
}

static lrmoeResult_t resultOf(const struct ncclComm *comm, uint64_t word) {
  struct lrmoeFailure failure = decode(word);
  int isParty = failure.culprit == comm->rank || failure.other == comm->rank;
  if (failure.kind == lrmoeFailureNone) return lrmoeSuccess;
  if (failure.kind == lrmoeFailureMismatch && isParty) return lrmoeInvalidUsage;
  if (failure.kind == lrmoeFailureBroke && failure.culprit == comm->rank)
    return (lrmoeResult_t)(word >> 8 & 0xff);
  return lrmoeRemoteError;
}

lrmoeResult_t lrmoeFailureResult(const struct ncclComm *comm) {
  return resultOf(comm, atomic_load(&comm->segment->failure));
}

static lrmoeResult_t failMismatch(const struct ncclComm *comm,
                                  struct lrmoeFailure failure,
                                  lrmoeResult_t result) {
  struct lrmoeChannel *channel =
      lrmoeSegmentChannel(comm->segment, failure.culprit, failure.other);
  uint64_t index = atomic_load(&channel->numTaken) % lrmoeMaxPosts;
  const struct lrmoePost *post = &channel->posts[index];
  size_t sentBytes = lrmoeTypeBytes((lrmoeDataType_t)post->type);
  size_t wantedBytes = lrmoeTypeBytes((lrmoeDataType_t)channel->wantedType);
  return LRMOE_FAIL(
      result,
      "rank %d sends %llu elements of %zu B (%llu B) but rank %d receives "
      "%llu elements of %zu B (%llu B)",
      failure.culprit, (unsigned long long)(post->bytes / sentBytes), sentBytes,
      (unsigned long long)post->bytes, failure.other,
      (unsigned long long)(channel->wantedBytes / wantedBytes), wantedBytes,
      (unsigned long long)channel->wantedBytes);
}

static lrmoeResult_t failTimeout(const struct ncclComm *comm,
                                 struct lrmoeFailure failure,
                                 lrmoeResult_t result) {
  struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, failure.other);
  long long ms = seat->timeoutMs;
  if (failure.kind == lrmoeFailureLate)
    return LRMOE_FAIL(result,
                      "rank %d has not come to the call of rank %d within "
                      "%lld ms",
                      failure.culprit, failure.other, ms);
  if (failure.kind == lrmoeFailureStopped)
    return LRMOE_FAIL(result,
                      "rank %d has stopped inside a call: no sign of life "
                      "while rank %d waited %lld ms",
                      failure.culprit, failure.other, ms);
  return LRMOE_FAIL(result,
                    "rank %d and rank %d do not make the same calls: rank %d "
                    "waited %lld ms for a message between them",
                    failure.other, failure.culprit, failure.other, ms);
}

lrmoeResult_t lrmoeFailureCheck(struct ncclComm *comm) {
  uint64_t word = atomic_load(&comm->segment->failure);
  if (!word) return lrmoeSuccess;
  struct lrmoeFailure failure = decode(word);
  lrmoeResult_t result = resultOf(comm, word);
  atomic_store(&comm->isTold, 1);
  switch (failure.kind) {
  case lrmoeFailureDied:
    return LRMOE_FAIL(result, "rank %d has died", failure.culprit);
  case lrmoeFailureLeft:
    return LRMOE_FAIL(result,
                      "rank %d has destroyed its communicator while rank %d "
                      "waits for it",
                      failure.culprit, failure.other);
  case lrmoeFailureMismatch:
    return failMismatch(comm, failure, result);
  case lrmoeFailureAborted:
    return LRMOE_FAIL(result, "rank %d has aborted the communicator",
                      failure.culprit);
  case lrmoeFailureBroke: {
    struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, failure.culprit);
    if (failure.culprit == comm->rank)
      return LRMOE_FAIL(result, "%s", seat->reason);
    return LRMOE_FAIL(result, "rank %d has failed: %s", failure.culprit,
                      seat->reason);
  }
  default:
    return failTimeout(comm, failure, result);
  }
}
