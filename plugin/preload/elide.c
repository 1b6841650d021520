/* Exchanges without their zero rows.
 *
 * 1. A group with one send to and one receive from every rank is an exchange.
 *    Each rank finds its zero rows and publishes (board.h) how many bytes go
 *    where and which rows are not zero.
 * 2. When all n records are there, every rank checks all of them: who is
 *    eligible, and whether what s sends to d is what d awaits of s.  If one
 *    check fails, or no row is zero, the messages cross as they are, on all
 *    ranks.
 * 3. Else every message with zero rows is packed and crosses as bytes.  The
 *    receiver knows from the sender's record how many, so this is one group, as
 *    before, and as free of deadlock as the program's own.  The rows land at
 *    the beginning of the receiver's buffer and are moved to their places from
 *    the last to the first, in place; the rest becomes zero.
 *
 * Waiting for records must not be able to hang a program that would not hang
 * without it: it ends with the time-out, an error of NCCL's, or an abort, and
 * then the communicator's messages cross as they are from there on. */
#include "plugin/preload/elide.h"

#include "base/clock.h"
#include "base/log.h"
#include "plugin/preload/mode.h"
#include "plugin/preload/zero.h"

#include <string.h>

int lrmoeElisionIsOn(const struct lrmoePreloadComm *comm) {
  return comm->board && !comm->hasWithdrawn &&
         lrmoePreloadSettings()->mode == lrmoePreloadElide;
}

void lrmoeElisionWithdraw(struct lrmoePreloadComm *comm) {
  if (!lrmoeElisionIsOn(comm)) return;
  comm->hasWithdrawn = 1;
  lrmoeBoardWithdraw(comm->board, comm->numExchanges);
}

/* ---- Shape ---- */

int64_t lrmoeElisionRows(const struct lrmoeElision *elision, int64_t bytes,
                         int peer) {
  if (peer == elision->comm->rank || bytes % elision->rowBytes) return 0;
  return bytes / elision->rowBytes;
}

static int64_t bitBytes(int64_t numRows) {
  return (numRows + 7) / 8;
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

/* Bits of the rows that are not zero, and how many they are. */
static int64_t markRows(const char *rows, int64_t numRows, int64_t rowBytes,
                        uint8_t *bits) {
  int64_t numKept = 0;
  memset(bits, 0, (size_t)bitBytes(numRows));
  for (int64_t row = 0; row < numRows; row++) {
    int isKept = !lrmoePreloadIsZero(rows + row * rowBytes, rowBytes);
    bits[row / 8] |= (uint8_t)(isKept << (row % 8));
    numKept += isKept;
  }
  return numKept;
}

/* False: the bits have no room. */
static int fillRecord(struct lrmoeElision *elision,
                      struct lrmoeBoardRecord *record, int64_t *packedBytes) {
  struct lrmoePreloadComm *comm = elision->comm;
  uint8_t *bits = lrmoeBoardBits(comm->board, record);
  int64_t room = lrmoeBoardRoom(comm->board);
  for (int peer = 0; peer < comm->numRanks; peer++) {
    const struct lrmoePreloadCall *send = elision->peers[peer].send;
    struct lrmoeBoardPeer *own = &record->peers[peer];
    int64_t numRows = lrmoeElisionRows(elision, send->bytes, peer);
    *own = (struct lrmoeBoardPeer){
        send->bytes, elision->peers[peer].recv->bytes, numRows ? 0 : -1};
    room -= bitBytes(numRows);
    if (room < 0) return 0;
    if (!numRows) continue;
    own->keptRows = markRows(send->send, numRows, elision->rowBytes, bits);
    bits += bitBytes(numRows);
    if (own->keptRows < numRows)
      *packedBytes += own->keptRows * elision->rowBytes;
    comm->traffic.boardBytes += bitBytes(numRows);
  }
  comm->traffic.boardBytes +=
      comm->numRanks * (int64_t)sizeof(struct lrmoeBoardPeer);
  return 1;
}

/* What may fail fails here, before anybody counts on this rank. */
static void prepare(struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = elision->comm;
  int64_t packedBytes = 0;
  struct lrmoeBoardRecord *record = lrmoeBoardMine(comm->board, elision->k);
  record->isEligible = 0;
  if (!fillRecord(elision, record, &packedBytes)) return;
  if (packedBytes &&
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

/* ---- Verdict ---- */

/* Pure: of the n records only. */
static int agrees(const struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = elision->comm;
  int64_t zeroRows = 0;
  for (int s = 0; s < comm->numRanks; s++) {
    const struct lrmoeBoardRecord *from =
        lrmoeBoardOf(comm->board, elision->k, s);
    if (!from->isEligible) return 0;
    for (int d = 0; d < comm->numRanks; d++) {
      const struct lrmoeBoardRecord *to =
          lrmoeBoardOf(comm->board, elision->k, d);
      const struct lrmoeBoardPeer *sent = &from->peers[d];
      if (!to->isEligible || sent->sendBytes != to->peers[s].recvBytes)
        return 0;
      if (sent->keptRows >= 0)
        zeroRows += sent->sendBytes / elision->rowBytes - sent->keptRows;
    }
  }
  return zeroRows > 0;
}

/* ---- Crossing ---- */

/* Bits of the rows that rank `from` sends to `to`. */
static const uint8_t *bitsBetween(const struct lrmoeElision *elision, int from,
                                  int to) {
  struct lrmoeBoard *board = elision->comm->board;
  const struct lrmoeBoardRecord *record = lrmoeBoardOf(board, elision->k, from);
  const uint8_t *bits = lrmoeBoardBits(board, record);
  for (int peer = 0; peer < to; peer++)
    if (record->peers[peer].keptRows >= 0)
      bits += bitBytes(record->peers[peer].sendBytes / elision->rowBytes);
  return bits;
}

static int hasBit(const uint8_t *bits, int64_t row) {
  return bits[row / 8] >> (row % 8) & 1;
}

static char *pack(const struct lrmoeElision *elision, int peer,
                  const char *rows, char *out) {
  int64_t rowBytes = elision->rowBytes;
  const uint8_t *bits = bitsBetween(elision, elision->comm->rank, peer);
  int64_t numRows = elision->peers[peer].send->bytes / rowBytes;
  for (int64_t row = 0, end; row < numRows; row = end + 1) {
    for (end = row; end < numRows && hasBit(bits, end);)
      end++;
    memcpy(out, rows + row * rowBytes, (size_t)((end - row) * rowBytes));
    out += (end - row) * rowBytes;
  }
  return out;
}

/* What crosses in place of a message of so many bytes; -1: that very one. */
static int64_t compactBytes(const struct lrmoeElision *elision, int from,
                            int to) {
  const struct lrmoeBoardPeer *sent =
      &lrmoeBoardOf(elision->comm->board, elision->k, from)->peers[to];
  int64_t bytes = sent->keptRows * elision->rowBytes;
  return sent->keptRows < 0 || bytes == sent->sendBytes ? -1 : bytes;
}

static lrmoeResult_t sendTo(const struct lrmoePreloadReal *real,
                            const struct lrmoeElision *elision, int peer,
                            char **staging) {
  struct lrmoePreloadComm *comm = elision->comm;
  const struct lrmoePreloadCall *call = elision->peers[peer].send;
  int64_t bytes = compactBytes(elision, comm->rank, peer);
  if (bytes < 0) return lrmoePreloadForward(real, call);
  if (!bytes) return lrmoeSuccess;
  char *packed = *staging;
  *staging = pack(elision, peer, call->send, packed);
  comm->traffic.wireBytes[peer] += bytes;
  return real->send(packed, (size_t)bytes, lrmoeUint8, peer, comm->handle,
                    call->stream);
}

static lrmoeResult_t recvFrom(const struct lrmoePreloadReal *real,
                              const struct lrmoeElision *elision, int peer) {
  struct lrmoePreloadComm *comm = elision->comm;
  const struct lrmoePreloadCall *call = elision->peers[peer].recv;
  int64_t bytes = compactBytes(elision, peer, comm->rank);
  if (bytes < 0) return lrmoePreloadForward(real, call);
  if (!bytes) return lrmoeSuccess;
  return real->recv(call->recv, (size_t)bytes, lrmoeUint8, peer, comm->handle,
                    call->stream);
}

static lrmoeResult_t issue(const struct lrmoePreloadReal *real,
                           const struct lrmoeElision *elision) {
  char *staging = elision->comm->staging.data;
  for (int peer = 0; peer < elision->comm->numRanks; peer++) {
    LRMOE_CHECK(sendTo(real, elision, peer, &staging));
    LRMOE_CHECK(recvFrom(real, elision, peer));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t exchange(const struct lrmoePreloadReal *real,
                              struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = elision->comm;
  elision->k = comm->numExchanges;
  prepare(elision);
  if (!lrmoeBoardPublish(comm->board) || !awaitRecords(real, elision)) {
    comm->hasWithdrawn = 1;
    elision->isGone = atomic_load(&comm->isGone);
    return elision->isGone ? lrmoeInternalError : lrmoeSuccess;
  }
  comm->numExchanges++;
  if (!agrees(elision)) {
    comm->traffic.numExact++;
    return lrmoeSuccess;
  }
  comm->traffic.numElided++;
  elision->isElided = 1;
  return issue(real, elision);
}

static void withdrawAll(const struct lrmoePreloadCall *calls,
                        int64_t numCalls) {
  for (int64_t i = 0; i < numCalls; i++)
    lrmoeElisionWithdraw(calls[i].comm);
}

/* Finding rows in a device's memory would make the host wait for the stream. */
static int isOfDevice(const struct lrmoePreloadCall *call) {
  static atomic_flag hasWarned = ATOMIC_FLAG_INIT;
  if (!call->comm->hasCuda && !call->stream) return 0;
  if (!atomic_flag_test_and_set(&hasWarned))
    lrmoeLog(lrmoeLogWarn,
             "preload: zero rows are looked for in host memory only; in a "
             "process with CUDA messages cross as they are");
  return 1;
}

lrmoeResult_t lrmoeElisionBegin(const struct lrmoePreloadReal *real,
                                const struct lrmoePreloadCall *calls,
                                int64_t numCalls,
                                struct lrmoeElision *elision) {
  struct lrmoePreloadComm *comm = calls[0].comm;
  if (lrmoePreloadSettings()->mode != lrmoePreloadElide) return lrmoeSuccess;
  *elision = (struct lrmoeElision){
      .comm = comm, .rowBytes = lrmoePreloadSettings()->rowBytes};
  if (lrmoeElisionIsOn(comm) && !isOfDevice(&calls[0]) &&
      LRMOE_ALLOCATE(comm->numRanks, &elision->peers) == lrmoeSuccess &&
      arrange(elision, calls, numCalls))
    return exchange(real, elision);
  withdrawAll(calls, numCalls);
  return lrmoeSuccess;
}

/* ---- End ---- */

/* Row i of the packed ones belongs at or behind its place: going from the last
 * to the first nothing is overwritten that is still needed. */
static void unpack(const struct lrmoeElision *elision, int peer) {
  int64_t rowBytes = elision->rowBytes;
  const uint8_t *bits = bitsBetween(elision, peer, elision->comm->rank);
  char *rows = elision->peers[peer].recv->recv;
  int64_t packed = compactBytes(elision, peer, elision->comm->rank) / rowBytes;
  for (int64_t row = elision->peers[peer].recv->bytes / rowBytes - 1; row >= 0;
       row--) {
    if (hasBit(bits, row)) {
      if (--packed != row)
        memcpy(rows + row * rowBytes, rows + packed * rowBytes,
               (size_t)rowBytes);
    } else {
      memset(rows + row * rowBytes, 0, (size_t)rowBytes);
    }
  }
}

void lrmoeElisionEnd(struct lrmoeElision *elision, lrmoeResult_t result) {
  if (elision->isElided && result == lrmoeSuccess)
    for (int peer = 0; peer < elision->comm->numRanks; peer++)
      if (compactBytes(elision, peer, elision->comm->rank) >= 0)
        unpack(elision, peer);
  lrmoeFree(elision->peers);
  elision->peers = NULL;
}
