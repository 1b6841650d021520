/* liblrmoe_preload.so: NCCL's names in front of NCCL.
 *
 * LRMOE_PRELOAD says what happens behind them (mode.h); whatever it is, a
 * program computes the same bits.  Calls that NCCL makes of itself come through
 * here too and are forwarded, as is everything that this library does not
 * understand. */
#include "base/hash.h"
#include "plugin/preload/group.h"
#include "plugin/preload/mode.h"
#include "plugin/preload/split.h"

#pragma GCC visibility push(default)
#define DECLARE(field, symbol, parameters) lrmoeResult_t symbol parameters;
PRELOAD_INTERPOSED(DECLARE)
PRELOAD_INTERPOSED_228(DECLARE)
#undef DECLARE
#pragma GCC visibility pop

/* NCCL, or leaves the function: there is nothing to forward to. */
#define REAL(real)                                          \
  const struct lrmoePreloadReal *real = lrmoePreloadReal(); \
  if (!(real)) return lrmoeSystemError

static int isIdle(void) {
  return lrmoePreloadInside || lrmoePreloadSettings()->isIdle;
}

/* Around what NCCL does on behalf of the shim. */
static lrmoeResult_t leave(lrmoeResult_t result) {
  lrmoePreloadInside--;
  return result;
}

/* ---- Communicators ---- */

/* What must be equal on all ranks of a communicator for them to have a board.
 * The first number counts the versions of the board. */
static uint64_t settingsKey(void) {
  const struct lrmoePreloadSettings *settings = lrmoePreloadSettings();
  const int64_t values[] = {2, settings->mode, settings->rowBytes};
  return lrmoeHash(0, values, sizeof values);
}

struct creation {
  struct lrmoeCard card;
  int isSeen; /* the call returns a communicator, not a promise of one */
};

static void beginCreation(struct creation *creation, const lrmoeUniqueId *id,
                          int numRanks, int rank) {
  creation->card = (struct lrmoeCard){.socket = -1};
  creation->isSeen = !lrmoePreloadGroupIsOpen();
  if (creation->isSeen)
    lrmoeCardShow(&creation->card, id, numRanks, rank, settingsKey());
}

static lrmoeResult_t endCreation(struct creation *creation,
                                 lrmoeNcclComm_t *comm, lrmoeResult_t result) {
  int isMade = result == lrmoeSuccess && creation->isSeen;
  struct lrmoePreloadNew made = {.rank = creation->card.rank,
                                 .numRanks = creation->card.numRanks,
                                 .key = creation->card.key};
  made.board = lrmoeCardSettle(&creation->card, isMade,
                               lrmoePreloadSettings()->timeoutMs);
  if (isMade && made.numRanks) {
    made.handle = *comm;
    lrmoePreloadCommAdd(&made);
  }
  return leave(result);
}

lrmoeResult_t ncclCommInitRank(lrmoeNcclComm_t *comm, int numRanks,
                               lrmoeUniqueId id, int rank) {
  struct creation creation;
  REAL(real);
  if (isIdle()) return real->commInitRank(comm, numRanks, id, rank);
  lrmoePreloadInside++;
  beginCreation(&creation, &id, numRanks, rank);
  return endCreation(&creation, comm,
                     real->commInitRank(comm, numRanks, id, rank));
}

lrmoeResult_t ncclCommInitRankConfig(lrmoeNcclComm_t *comm, int numRanks,
                                     lrmoeUniqueId id, int rank,
                                     lrmoeNcclConfig_t *config) {
  struct creation creation;
  REAL(real);
  if (isIdle() || (config && config->blocking == 0))
    return real->commInitRankConfig(comm, numRanks, id, rank, config);
  lrmoePreloadInside++;
  beginCreation(&creation, &id, numRanks, rank);
  return endCreation(
      &creation, comm,
      real->commInitRankConfig(comm, numRanks, id, rank, config));
}

lrmoeResult_t ncclCommSplit(lrmoeNcclComm_t comm, int color, int key,
                            lrmoeNcclComm_t *newComm,
                            lrmoeNcclConfig_t *config) {
  struct lrmoePreloadSplit split;
  REAL(real);
  if (!real->commSplit) return lrmoeInvalidUsage; /* NCCL before 2.18 */
  if (isIdle()) return real->commSplit(comm, color, key, newComm, config);
  lrmoePreloadInside++;
  int isSeen = !lrmoePreloadGroupIsOpen() && !(config && !config->blocking);
  lrmoePreloadSplitBegin(comm, color, key, isSeen, &split);
  lrmoeResult_t result = real->commSplit(comm, color, key, newComm, config);
  lrmoePreloadSplitEnd(&split, newComm, result);
  return leave(result);
}

lrmoeResult_t ncclCommDestroy(lrmoeNcclComm_t comm) {
  REAL(real);
  if (isIdle()) return real->commDestroy(comm);
  struct lrmoePreloadComm *known = lrmoePreloadCommForget(comm);
  lrmoePreloadInside++;
  lrmoeResult_t result = real->commDestroy(comm);
  if (known) lrmoePreloadCommGive(known);
  return leave(result);
}

lrmoeResult_t ncclCommAbort(lrmoeNcclComm_t comm) {
  REAL(real);
  if (isIdle()) return real->commAbort(comm);
  struct lrmoePreloadComm *known = lrmoePreloadCommForget(comm);
  lrmoePreloadInside++;
  lrmoeResult_t result = real->commAbort(comm);
  if (known) lrmoePreloadCommGive(known);
  return leave(result);
}

/* ---- Groups and messages ---- */

lrmoeResult_t ncclGroupStart(void) {
  REAL(real);
  if (isIdle()) return real->groupStart();
  lrmoePreloadInside++;
  return leave(lrmoePreloadGroupStart(real));
}

lrmoeResult_t ncclGroupEnd(void) {
  REAL(real);
  if (isIdle()) return real->groupEnd();
  lrmoePreloadInside++;
  return leave(lrmoePreloadGroupEnd(real));
}

lrmoeResult_t ncclSend(const void *buffer, size_t count, lrmoeDataType_t type,
                       int peer, lrmoeNcclComm_t comm, lrmoeStream_t stream) {
  REAL(real);
  if (isIdle()) return real->send(buffer, count, type, peer, comm, stream);
  const struct lrmoePreloadCall call = {.send = buffer,
                                        .count = count,
                                        .type = type,
                                        .peer = peer,
                                        .isSend = 1,
                                        .stream = stream};
  lrmoePreloadInside++;
  return leave(lrmoePreloadMessage(real, comm, &call));
}

lrmoeResult_t ncclRecv(void *buffer, size_t count, lrmoeDataType_t type,
                       int peer, lrmoeNcclComm_t comm, lrmoeStream_t stream) {
  REAL(real);
  if (isIdle()) return real->recv(buffer, count, type, peer, comm, stream);
  const struct lrmoePreloadCall call = {.recv = buffer,
                                        .count = count,
                                        .type = type,
                                        .peer = peer,
                                        .stream = stream};
  lrmoePreloadInside++;
  return leave(lrmoePreloadMessage(real, comm, &call));
}

lrmoeResult_t ncclAlltoAll(const void *from, void *to, size_t count,
                           lrmoeDataType_t type, lrmoeNcclComm_t comm,
                           lrmoeStream_t stream) {
  REAL(real);
  if (!real->allToAll) return lrmoeInvalidUsage; /* NCCL before 2.28 */
  if (isIdle()) return real->allToAll(from, to, count, type, comm, stream);
  const struct lrmoePreloadAll all = {from, to, count, type, comm, stream};
  lrmoePreloadInside++;
  return leave(lrmoePreloadAllToAll(real, &all));
}

/* NCCL makes messages of these too, so they keep their place among those of a
 * group. NOLINTBEGIN(readability-function-size): NCCL's parameters */

lrmoeResult_t ncclGather(const void *from, void *to, size_t count,
                         lrmoeDataType_t type, int root, lrmoeNcclComm_t comm,
                         lrmoeStream_t stream) {
  REAL(real);
  if (!real->gather) return lrmoeInvalidUsage;
  if (isIdle()) return real->gather(from, to, count, type, root, comm, stream);
  lrmoePreloadInside++;
  lrmoePreloadOther(real, comm);
  return leave(real->gather(from, to, count, type, root, comm, stream));
}

lrmoeResult_t ncclScatter(const void *from, void *to, size_t count,
                          lrmoeDataType_t type, int root, lrmoeNcclComm_t comm,
                          lrmoeStream_t stream) {
  REAL(real);
  if (!real->scatter) return lrmoeInvalidUsage;
  if (isIdle()) return real->scatter(from, to, count, type, root, comm, stream);
  lrmoePreloadInside++;
  lrmoePreloadOther(real, comm);
  return leave(real->scatter(from, to, count, type, root, comm, stream));
}

/* NOLINTEND(readability-function-size) */
