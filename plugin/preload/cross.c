/* Rows on their way: messages are packed into the communicator's staging, cross
 * as bytes, and land at the beginning of the receiver's buffer.  There they
 * move to their places from the last to the first, in place. */
#include "plugin/preload/elide.h"

#include <string.h>

static char *pack(const struct lrmoeElision *elision,
                  const struct lrmoeElisionPeer *peer, char *out) {
  int64_t rowBytes = elision->rowBytes;
  const char *rows = peer->send->send;
  int64_t numRows = peer->send->bytes / rowBytes;
  for (int64_t row = 0, end; row < numRows; row = end + 1) {
    for (end = row; end < numRows && lrmoeBitOf(peer->sendBits, end);)
      end++;
    memcpy(out, rows + row * rowBytes, (size_t)((end - row) * rowBytes));
    out += (end - row) * rowBytes;
  }
  return out;
}

static lrmoeResult_t sendTo(const struct lrmoePreloadReal *real,
                            const struct lrmoeElision *elision, int rank,
                            char **staging) {
  struct lrmoePreloadComm *comm = elision->comm;
  const struct lrmoeElisionPeer *peer = &elision->peers[rank];
  int64_t bytes = peer->sendRows * elision->rowBytes;
  if (peer->sendRows < 0) return lrmoePreloadForward(real, peer->send);
  if (!bytes) return lrmoeSuccess;
  char *packed = *staging;
  *staging = pack(elision, peer, packed);
  comm->traffic.wireBytes[rank] += bytes;
  return real->send(packed, (size_t)bytes, lrmoeUint8, rank, comm->handle,
                    peer->send->stream);
}

static lrmoeResult_t recvFrom(const struct lrmoePreloadReal *real,
                              const struct lrmoeElision *elision, int rank) {
  const struct lrmoeElisionPeer *peer = &elision->peers[rank];
  int64_t bytes = peer->recvRows * elision->rowBytes;
  if (peer->recvRows < 0) return lrmoePreloadForward(real, peer->recv);
  if (!bytes) return lrmoeSuccess;
  return real->recv(peer->recv->recv, (size_t)bytes, lrmoeUint8, rank,
                    elision->comm->handle, peer->recv->stream);
}

lrmoeResult_t lrmoeCrossIssue(const struct lrmoePreloadReal *real,
                              const struct lrmoeElision *elision) {
  char *staging = elision->comm->staging.data;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    LRMOE_CHECK(sendTo(real, elision, rank, &staging));
    LRMOE_CHECK(recvFrom(real, elision, rank));
  }
  return lrmoeSuccess;
}

/* ---- Places ---- */

/* Row i of those that came belongs at or behind its place: going from the last
 * to the first nothing is overwritten that is still needed.  A message that
 * came as it is has its rows in place. */
static void unpack(const struct lrmoeElisionPeer *peer, int64_t rowBytes) {
  char *rows = peer->recv->recv;
  int isPacked = peer->recvRows >= 0;
  int64_t packed = peer->recvRows;
  for (int64_t row = peer->recv->bytes / rowBytes - 1; row >= 0; row--) {
    if (!lrmoeBitOf(peer->recvBits, row))
      memset(rows + row * rowBytes, 0, (size_t)rowBytes);
    else if (isPacked && --packed != row)
      memcpy(rows + row * rowBytes, rows + packed * rowBytes, (size_t)rowBytes);
  }
}

void lrmoeCrossFinish(const struct lrmoeElision *elision) {
  for (int rank = 0; rank < elision->comm->numRanks; rank++)
    if (elision->peers[rank].recvBits)
      unpack(&elision->peers[rank], elision->rowBytes);
}
