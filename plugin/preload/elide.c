/* Exchanges without their zero rows, or with the rows only that a hint keeps.
 *
 * 1. A group with one send to and one receive from every rank is an exchange.
 *    Each rank finds its zero rows and publishes (board.h) how many bytes go
 *    where and which rows are not zero; with a hint, what it was told and the
 *    keys of its rows (calibrate.c).
 * 2. When all n records are there, every rank checks all of them: who is
 *    eligible, whether what s sends to d is what d awaits of s, and whether all
 *    were told the same.  If one check fails, or all rows stay, the messages
 *    cross as they are, on all ranks.
 * 3. Else every message of which rows stay behind is packed and crosses as
 *    bytes (cross.c).  The receiver knows from the records how many, so this is
 *    one group, as before, and as free of deadlock as the program's own.
 *
 * Waiting for records must not be able to hang a program that would not hang
 * without it: it ends with the time-out, an error of NCCL's, or an abort, and
 * then the communicator's messages cross as they are from there on. */
#include "plugin/preload/elide.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "plugin/preload/calibrate.h"
#include "plugin/preload/device.h"
#include "plugin/preload/mode.h"
#include "plugin/preload/zero.h"

#include <string.h>

static int isWanted(void) {
  return lrmoePreloadSettings()->mode >= lrmoePreloadElide;
}

int lrmoeElisionIsOn(const struct lrmoePreloadComm *comm) {
  return comm->board && !comm->hasWithdrawn && isWanted();
}

static void refuse(struct lrmoeElision *elision, const char *why) {
  lrmoeHintRefuse(elision->comm, why);
  lrmoeHintFree(elision->hint);
  elision->hint = NULL;
}

void lrmoeElisionWithdraw(struct lrmoePreloadComm *comm) {
  struct lrmoeElision elision = {.comm = comm, .hint = lrmoeHintTake(comm)};
  if (elision.hint)
    refuse(&elision, "what its ranks do there is no exchange of all of them, "
                     "or they have not agreed on this mode");
  if (!lrmoeElisionIsOn(comm)) return;
  comm->hasWithdrawn = 1;
  lrmoeBoardWithdraw(comm->board, comm->numExchanges);
}

/* ---- Shape ---- */

/* Rows of a message that may stay if they are zero: 0 where it crosses as it
 * is. */
static int64_t rowsOf(const struct lrmoeElision *elision, int64_t bytes,
                      int peer) {
  if (peer == elision->comm->rank || !elision->rowBytes || elision->hint ||
      bytes % elision->rowBytes)
    return 0;
  return bytes / elision->rowBytes;
}

/* Puts the calls by peer; false unless each has one send and one receive. */
static int arrange(struct lrmoeElision *elision,
                   const struct lrmoePreloadCall *calls, int64_t numCalls) {
  struct lrmoePreloadComm *comm = elision->comm;
  if (numCalls != 2 * (int64_t)comm->numRanks) return 0;
  for (int64_t i = 0; i < numCalls; i++) {
    const struct lrmoePreloadCall *call = &calls[i];
    if (call->comm != comm || call->stream != calls[0].stream) return 0;
    struct lrmoeElisionPeer *peer = &elision->peers[call->peer];
    const struct lrmoePreloadCall **place =
        call->isSend ? &peer->send : &peer->recv;
    if (*place) return 0;
    *place = call;
  }
  return 1;
}

/* ---- Publishing ---- */

/* Bits of the rows that are not zero, and how many they are; marks: what the
 * device says of them. */
static int64_t markRows(const struct lrmoeElision *elision, const char *rows,
                        const uint8_t *marks, int64_t numRows, uint8_t *bits) {
  int64_t numKept = 0, rowBytes = elision->rowBytes;
  memset(bits, 0, (size_t)lrmoeBitBytes(numRows));
  for (int64_t row = 0; row < numRows; row++) {
    int isKept = marks ? marks[row]
                       : !lrmoePreloadIsZero(rows + row * rowBytes, rowBytes);
    bits[row / 8] |= (uint8_t)(isKept << (row % 8));
    numKept += isKept;
  }
  return numKept;
}

/* False: the bits have no room. */
static int fillRecord(struct lrmoeElision *elision,
                      struct lrmoeBoardRecord *record, const uint8_t *marks,
                      int64_t *packedBytes) {
  struct lrmoePreloadComm *comm = elision->comm;
  uint8_t *bits = lrmoeBoardBits(comm->board, record);
  int64_t room = lrmoeBoardRoom(comm->board);
  for (int peer = 0; peer < comm->numRanks; peer++) {
    const struct lrmoePreloadCall *send = elision->peers[peer].send;
    struct lrmoeBoardPeer *own = &record->peers[peer];
    int64_t numRows = rowsOf(elision, send->bytes, peer);
    *own = (struct lrmoeBoardPeer){
        send->bytes, elision->peers[peer].recv->bytes, numRows ? 0 : -1};
    room -= lrmoeBitBytes(numRows);
    if (room < 0) return 0;
    if (numRows)
      own->keptRows = markRows(elision, send->send, marks, numRows, bits);
    if (marks && send->bytes % elision->rowBytes == 0)
      marks += send->bytes / elision->rowBytes;
    if (!numRows) continue;
    bits += lrmoeBitBytes(numRows);
    if (own->keptRows < numRows)
      *packedBytes += own->keptRows * elision->rowBytes;
    comm->traffic.boardBytes += lrmoeBitBytes(numRows);
  }
  comm->traffic.boardBytes +=
      comm->numRanks * (int64_t)sizeof(struct lrmoeBoardPeer);
  return 1;
}

/* The type is that of the exchange; ranks may differ in it, too. */
static void setHint(struct lrmoeElision *elision,
                    struct lrmoeBoardRecord *record) {
  record->hint = 0;
  if (!elision->hint) return;
  elision->refusal = lrmoeCalibrationRefusal(elision);
  if (elision->refusal) {
    lrmoeHintFree(elision->hint);
    elision->hint = NULL;
    return;
  }
  int64_t type = elision->peers[0].send->type;
  record->hint = lrmoeHash(elision->hint->hash, &type, sizeof type) | 1;
  elision->rowBytes = elision->hint->rowBytes;
}

/* What may fail fails here, before anybody counts on this rank. */
static void prepare(struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = elision->comm;
  int64_t packedBytes = 0;
  struct lrmoeBoardRecord *record = lrmoeBoardMine(comm->board, elision->k);
  record->isEligible = 0;
  const uint8_t *marks = NULL;
  setHint(elision, record);
  if (elision->isMixed || (elision->isDevice && !lrmoeDevicePrepare(elision)))
    return;
  if (elision->isDevice && elision->rowBytes && !elision->hint) {
    marks = lrmoeDeviceMarks(elision);
    if (!marks) return;
  }
  if (!fillRecord(elision, record, marks, &packedBytes)) return;
  if (elision->hint && !lrmoeCalibrationFill(elision, record)) return;
  if (packedBytes && !elision->isDevice &&
      lrmoeBufferReserve(&comm->staging, (size_t)packedBytes) != lrmoeSuccess)
    return;
  record->isEligible = 1;
}

/* ---- Waiting ---- */

static int64_t nowMs(void) {
  return lrmoeNowNs() / 1000000;
}

/* Whether waiting on makes sense.  An abort frees the communicator, and waits
 * for this look at it. */
static int isWhole(const struct lrmoePreloadReal *real,
                   struct lrmoePreloadComm *comm) {
  lrmoeResult_t state = lrmoeSuccess;
  pthread_mutex_lock(&comm->mutex);
  int isGone = atomic_load(&comm->isGone);
  if (!isGone) {
    lrmoeResult_t result = real->commGetAsyncError(comm->handle, &state);
    if (result != lrmoeSuccess) state = result;
  }
  pthread_mutex_unlock(&comm->mutex);
  return !isGone && state == lrmoeSuccess;
}

static int awaitRecords(const struct lrmoePreloadReal *real,
                        struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = elision->comm;
  int64_t end = nowMs() + lrmoePreloadSettings()->timeoutMs / 2;
  while (!lrmoeBoardIsComplete(comm->board, elision->k)) {
    int mustEnd = lrmoeBoardIsWithdrawn(comm->board) || nowMs() > end ||
                  !isWhole(real, comm);
    if (mustEnd && lrmoeBoardWithdraw(comm->board, elision->k)) return 0;
  }
  return 1;
}

/* ---- Verdict: pure, of the n records only ---- */

static const struct lrmoeBoardRecord *
recordOf(const struct lrmoeElision *elision, int rank) {
  return lrmoeBoardOf(elision->comm->board, elision->k, rank);
}

/* Whether all are eligible and what is sent is what is awaited. */
static int sizesAgree(const struct lrmoeElision *elision) {
  int numRanks = elision->comm->numRanks;
  for (int s = 0; s < numRanks; s++) {
    const struct lrmoeBoardRecord *from = recordOf(elision, s);
    if (!from->isEligible) return 0;
    for (int d = 0; d < numRanks; d++)
      if (from->peers[d].sendBytes != recordOf(elision, d)->peers[s].recvBytes)
        return 0;
  }
  return 1;
}

static int hintsAgree(const struct lrmoeElision *elision) {
  for (int s = 1; s < elision->comm->numRanks; s++)
    if (recordOf(elision, s)->hint != recordOf(elision, 0)->hint) return 0;
  return 1;
}

static int hasZeroRows(const struct lrmoeElision *elision) {
  int64_t zeroRows = 0;
  int numRanks = elision->comm->numRanks;
  for (int s = 0; s < numRanks; s++)
    for (int d = 0; d < numRanks; d++) {
      const struct lrmoeBoardPeer *sent = &recordOf(elision, s)->peers[d];
      if (sent->keptRows >= 0)
        zeroRows += sent->sendBytes / elision->rowBytes - sent->keptRows;
    }
  return zeroRows > 0;
}

/* Bits of the rows that rank `from` sends to `to`. */
static const uint8_t *bitsBetween(const struct lrmoeElision *elision, int from,
                                  int to) {
  const struct lrmoeBoardRecord *record = recordOf(elision, from);
  const uint8_t *bits = lrmoeBoardBits(elision->comm->board, record);
  for (int peer = 0; peer < to; peer++)
    if (record->peers[peer].keptRows >= 0)
      bits += lrmoeBitBytes(record->peers[peer].sendBytes / elision->rowBytes);
  return bits;
}

/* Rows that cross in place of a message and their bits; -1, NULL: that very
 * message. */
static int64_t rowsBetween(const struct lrmoeElision *elision, int from, int to,
                           const uint8_t **bits) {
  const struct lrmoeBoardPeer *sent = &recordOf(elision, from)->peers[to];
  *bits = NULL;
  if (sent->keptRows < 0 ||
      sent->keptRows * elision->rowBytes == sent->sendBytes)
    return -1;
  *bits = bitsBetween(elision, from, to);
  return sent->keptRows;
}

static void takeZeroRows(struct lrmoeElision *elision) {
  int own = elision->comm->rank;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    struct lrmoeElisionPeer *peer = &elision->peers[rank];
    peer->sendRows = rowsBetween(elision, own, rank, &peer->sendBits);
    peer->recvRows = rowsBetween(elision, rank, own, &peer->recvBits);
  }
}

static int followHint(struct lrmoeElision *elision) {
  if (!lrmoeCalibrationSelect(elision)) {
    refuse(elision, "a row that is not finite would be dropped");
    return 0;
  }
  elision->comm->traffic.numCalibrated++;
  return 1;
}

/* Whether some rows stay behind; they are in peers then. */
static int decide(struct lrmoeElision *elision) {
  if (elision->refusal) refuse(elision, elision->refusal);
  if (!hintsAgree(elision)) {
    if (!elision->refusal)
      refuse(elision, "ranks were told different things, or some nothing");
    return 0;
  }
  if (!sizesAgree(elision)) return 0;
  if (elision->hint) return followHint(elision);
  if (!hasZeroRows(elision)) return 0;
  takeZeroRows(elision);
  elision->comm->traffic.numElided++;
  return 1;
}

static lrmoeResult_t exchange(const struct lrmoePreloadReal *real,
                              struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = elision->comm;
  elision->k = comm->numExchanges;
  prepare(elision);
  if (!lrmoeBoardPublish(comm->board) || !awaitRecords(real, elision)) {
    comm->hasWithdrawn = 1;
    elision->isGone = atomic_load(&comm->isGone);
    if (elision->hint) refuse(elision, "not all ranks came to its exchange");
    return elision->isGone ? lrmoeInternalError : lrmoeSuccess;
  }
  comm->numExchanges++;
  if (!decide(elision)) {
    comm->traffic.numExact++;
    return lrmoeSuccess;
  }
  elision->isElided = 1;
  return elision->isDevice ? lrmoeDeviceIssue(real, elision)
                           : lrmoeCrossIssue(real, elision);
}

static void withdrawAll(const struct lrmoePreloadCall *calls,
                        int64_t numCalls) {
  for (int64_t i = 0; i < numCalls; i++)
    lrmoeElisionWithdraw(calls[i].comm);
}

lrmoeResult_t lrmoeElisionBegin(const struct lrmoePreloadReal *real,
                                const struct lrmoePreloadCall *calls,
                                int64_t numCalls,
                                struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = calls[0].comm;
  if (!isWanted()) return lrmoeSuccess;
  *elision = (struct lrmoeElision){
      .comm = comm, .rowBytes = lrmoePreloadSettings()->rowBytes};
  enum lrmoeMemoryKind kind = lrmoeMemoryUnknown;
  if (lrmoeElisionIsOn(comm)) kind = lrmoeDeviceKind(comm, calls, numCalls);
  elision->isDevice = kind == lrmoeMemoryDevice;
  elision->isMixed = kind == lrmoeMemoryMixed;
  if (kind != lrmoeMemoryUnknown &&
      LRMOE_ALLOCATE(comm->numRanks, &elision->peers) == lrmoeSuccess &&
      arrange(elision, calls, numCalls)) {
    elision->hint = lrmoeHintTake(comm);
    return exchange(real, elision);
  }
  withdrawAll(calls, numCalls);
  return lrmoeSuccess;
}

/* ---- End ---- */

lrmoeResult_t lrmoeElisionEnd(struct lrmoeElision *elision,
                              lrmoeResult_t result) {
  int isThere = elision->isElided && result == lrmoeSuccess;
  if (isThere && elision->isDevice)
    result = lrmoeDeviceFinish(elision);
  else if (isThere)
    lrmoeCrossFinish(elision);
  lrmoeFree(elision->peers);
  lrmoeHintFree(elision->hint);
  elision->peers = NULL;
  elision->hint = NULL;
  return result;
}
