/* Selection of an exchange's rows: paper 3.2 with what a hint says.
 *
 * 1. Each rank scores its rows, |row| |phi|, with the library's own kernels,
 *    and publishes the keys in the order of its messages, which is by expert.
 * 2. Every rank has the keys of all then, lists them by (expert, rank, row) and
 *    selects the quota of each expert: the same flags everywhere, and those of
 *    lrmoeSelect, whose pairs have this order too.
 * 3. As source and as home it turns flags into bits of its messages' rows; the
 *    message to itself crosses whole and loses its rows at the end.
 *
 * lrmoeReturn spoils the gradient of a token whose overflow was dropped; the
 * rows that arrive here are all that this library has in its hand, and zeros
 * must stay zeros.  So the exchange is exact instead. */
#include "plugin/preload/calibrate.h"

#include "kernels/select.h"
#include "plugin/preload/device.h"

#include <string.h>

static int64_t demandOf(const struct lrmoeHint *hint, int64_t rank,
                        int64_t expert) {
  return hint->demand[rank * hint->numExperts + expert];
}

static int64_t expertsPerRank(const struct lrmoeElision *elision) {
  return elision->hint->numExperts / elision->comm->numRanks;
}

/* Rows that a rank sends to a home. */
static int64_t rowsBetween(const struct lrmoeElision *elision, int64_t source,
                           int64_t home) {
  int64_t numRows = 0, perRank = expertsPerRank(elision);
  for (int64_t e = home * perRank; e < (home + 1) * perRank; e++)
    numRows += demandOf(elision->hint, source, e);
  return numRows;
}

static int64_t rowsOfRank(const struct lrmoeElision *elision, int64_t source) {
  int64_t numRows = 0;
  for (int64_t e = 0; e < elision->hint->numExperts; e++)
    numRows += demandOf(elision->hint, source, e);
  return numRows;
}

static int64_t pairsOf(const struct lrmoeElision *elision, int64_t expert) {
  int64_t numPairs = 0;
  for (int s = 0; s < elision->comm->numRanks; s++)
    numPairs += demandOf(elision->hint, s, expert);
  return numPairs;
}

/* ---- Does it fit? ---- */

static int hasSizes(const struct lrmoeElision *elision, int peer) {
  int64_t own = elision->comm->rank, rowBytes = elision->hint->rowBytes;
  int64_t sent = rowsBetween(elision, own, peer);
  int64_t received = rowsBetween(elision, peer, own);
  return sent <= INT64_MAX / rowBytes && received <= INT64_MAX / rowBytes &&
         elision->peers[peer].send->bytes == sent * rowBytes &&
         elision->peers[peer].recv->bytes == received * rowBytes;
}

static int isFloat(lrmoeDataType_t type) {
  return type == lrmoeBfloat16 || type == lrmoeFloat16 || type == lrmoeFloat32;
}

const char *lrmoeCalibrationRefusal(const struct lrmoeElision *elision) {
  lrmoeDataType_t type = elision->peers[0].send->type;
  int64_t element = lrmoePreloadTypeBytes(type);
  if (!isFloat(type)) return "its exchange is not of bf16, fp16 or fp32";
  if (elision->hint->rowBytes % (8 * element))
    return "rowBytes is no multiple of 8 elements";
  for (int peer = 0; peer < elision->comm->numRanks; peer++) {
    const struct lrmoeElisionPeer *own = &elision->peers[peer];
    if (!hasSizes(elision, peer)) return "its exchange has other sizes";
    if (own->send->type != type || (uintptr_t)own->send->send % (size_t)element)
      return "its messages differ in type, or are not aligned";
  }
  if (!elision->hint->phiNorms && rowsOfRank(elision, elision->comm->rank))
    return "phiNorms is NULL";
  return NULL;
}

/* ---- Room ---- */

/* What a selection works in: the communicator's work buffer. */
struct sizes {
  int64_t mostKeys;  /* of one expert, or norms of a message */
  int64_t sendBytes; /* of bits, of all peers one after the other */
  int64_t recvBytes;
};

struct room {
  uint32_t *keys; /* [mostKeys] */
  uint8_t *flags; /* [mostKeys] */
  uint8_t *sendBits;
  uint8_t *recvBits;
};

static struct sizes sizesOf(const struct lrmoeElision *elision) {
  struct sizes sizes = {.mostKeys = 1};
  int64_t own = elision->comm->rank;
  for (int64_t e = 0; e < elision->hint->numExperts; e++) {
    int64_t numPairs = pairsOf(elision, e);
    if (numPairs > sizes.mostKeys) sizes.mostKeys = numPairs;
  }
  for (int peer = 0; peer < elision->comm->numRanks; peer++) {
    int64_t sent = rowsBetween(elision, own, peer);
    if (sent > sizes.mostKeys) sizes.mostKeys = sent;
    sizes.sendBytes += lrmoeBitBytes(sent);
    sizes.recvBytes += lrmoeBitBytes(rowsBetween(elision, peer, own));
  }
  return sizes;
}

static size_t roomBytes(const struct sizes *sizes) {
  return (size_t)sizes->mostKeys * (sizeof(uint32_t) + 1) +
         (size_t)(sizes->sendBytes + sizes->recvBytes);
}

/* Words first. */
static struct room roomIn(void *base, const struct sizes *sizes) {
  struct room room = {.keys = base};
  room.flags = (uint8_t *)(room.keys + sizes->mostKeys);
  room.sendBits = room.flags + sizes->mostKeys;
  room.recvBits = room.sendBits + sizes->sendBytes;
  return room;
}

/* Most rows that this rank may have to send to others. */
static int64_t mostPacked(const struct lrmoeElision *elision) {
  int64_t numRows = 0, perRank = expertsPerRank(elision);
  for (int64_t e = 0; e < elision->hint->numExperts; e++) {
    int64_t sent = demandOf(elision->hint, elision->comm->rank, e);
    int64_t quota = elision->hint->quotas[e];
    if (e / perRank != elision->comm->rank)
      numRows += sent < quota ? sent : quota;
  }
  return numRows;
}

/* ---- Keys ---- */

static lrmoeResult_t scoreMessage(const struct lrmoeElision *elision, int peer,
                                  const float *phiNorms, float *norms,
                                  uint32_t *keys) {
  const struct lrmoePreloadCall *send = elision->peers[peer].send;
  int64_t numRows = send->bytes / elision->rowBytes;
  const struct lrmoeNorms args = {
      {send->send, NULL, send->type,
       elision->rowBytes / lrmoePreloadTypeBytes(send->type)},
      numRows,
      0,
      norms};
  LRMOE_RUN(&lrmoeCpuBackend, norms, &args, NULL);
  for (int64_t i = 0; i < numRows; i++)
    keys[i] = lrmoeScoreKey(norms[i] * phiNorms[i]);
  return lrmoeSuccess;
}

static lrmoeResult_t scoreAll(const struct lrmoeElision *elision,
                              uint32_t *keys) {
  int64_t at = 0;
  for (int peer = 0; peer < elision->comm->numRanks; peer++) {
    LRMOE_CHECK(scoreMessage(elision, peer, elision->hint->phiNorms + at,
                             elision->comm->work.data, keys + at));
    at += elision->peers[peer].send->bytes / elision->rowBytes;
  }
  return lrmoeSuccess;
}

static int scoreOnDevice(struct lrmoeElision *elision, size_t bytes,
                         uint32_t *keys) {
  const uint32_t *scored = lrmoeDeviceKeys(elision);
  if (scored && bytes) memcpy(keys, scored, bytes);
  return scored != NULL;
}

int lrmoeCalibrationFill(struct lrmoeElision *elision,
                         struct lrmoeBoardRecord *record) {
  struct lrmoePreloadComm *comm = elision->comm;
  const struct sizes sizes = sizesOf(elision);
  uint32_t *keys = (uint32_t *)(void *)lrmoeBoardBits(comm->board, record);
  size_t bytes = (size_t)rowsOfRank(elision, comm->rank) * sizeof *keys;
  size_t packed = (size_t)(mostPacked(elision) * elision->rowBytes);
  if ((int64_t)bytes > lrmoeBoardRoom(comm->board) ||
      lrmoeBufferReserve(&comm->work, roomBytes(&sizes)) != lrmoeSuccess)
    return 0;
  comm->traffic.boardBytes += (int64_t)bytes;
  if (elision->isDevice) return scoreOnDevice(elision, bytes, keys);
  if (packed && lrmoeBufferReserve(&comm->staging, packed) != lrmoeSuccess)
    return 0;
  return scoreAll(elision, keys) == lrmoeSuccess;
}

/* ---- Selection ---- */

/* Of one pass over the experts. */
struct pass {
  struct lrmoeElision *elision;
  struct room room;
  int64_t *seen;    /* [G] keys of each rank so far ... */
  int64_t *arrived; /* [G] rows of each rank's message to this one */
  int64_t sent;     /* rows of this rank's message to the expert's home */
};

/* Keys of one expert by (rank, row). */
static void listKeys(const struct pass *pass, int64_t expert) {
  const struct lrmoeElision *elision = pass->elision;
  struct lrmoeBoard *board = elision->comm->board;
  uint32_t *out = pass->room.keys;
  for (int s = 0; s < elision->comm->numRanks; s++) {
    int64_t count = demandOf(elision->hint, s, expert);
    const struct lrmoeBoardRecord *record = lrmoeBoardOf(board, elision->k, s);
    const uint32_t *keys =
        (const uint32_t *)(void *)lrmoeBoardBits(board, record);
    memcpy(out, keys + pass->seen[s], (size_t)count * sizeof *out);
    out += count;
    pass->seen[s] += count;
  }
}

static int dropsNonFinite(const struct pass *pass, int64_t numPairs,
                          int64_t quota) {
  int64_t count = 0;
  for (int64_t i = 0; i < numPairs; i++)
    count += pass->room.keys[i] == LRMOE_KEY_NON_FINITE;
  return count > quota;
}

/* Flags of one rank's rows of an expert, to bits from row `first` on. */
static int64_t putBits(const uint8_t *flags, int64_t count, uint8_t *bits,
                       int64_t first) {
  int64_t numKept = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t row = first + i;
    bits[row / 8] |= (uint8_t)((flags[i] != 0) << (row % 8));
    numKept += flags[i] != 0;
  }
  return numKept;
}

/* The bits of a peer are the room's until the pass has ended. */
static void putFlags(struct pass *pass, int64_t expert, int home) {
  struct lrmoeElision *elision = pass->elision;
  const uint8_t *flags = pass->room.flags;
  int own = elision->comm->rank;
  for (int s = 0; s < elision->comm->numRanks; s++) {
    int64_t count = demandOf(elision->hint, s, expert);
    struct lrmoeElisionPeer *to = &elision->peers[home];
    struct lrmoeElisionPeer *from = &elision->peers[s];
    if (s == own) {
      to->sendRows +=
          putBits(flags, count, (uint8_t *)to->sendBits, pass->sent);
      pass->sent += count;
    }
    if (home == own) {
      from->recvRows +=
          putBits(flags, count, (uint8_t *)from->recvBits, pass->arrived[s]);
      pass->arrived[s] += count;
    }
    flags += count;
  }
}

static void beginPass(struct pass *pass) {
  struct lrmoeElision *elision = pass->elision;
  uint8_t *sendBits = pass->room.sendBits, *recvBits = pass->room.recvBits;
  for (int peer = 0; peer < elision->comm->numRanks; peer++) {
    struct lrmoeElisionPeer *own = &elision->peers[peer];
    own->sendBits = sendBits;
    own->recvBits = recvBits;
    own->sendRows = own->recvRows = 0;
    sendBits += lrmoeBitBytes(own->send->bytes / elision->rowBytes);
    recvBits += lrmoeBitBytes(own->recv->bytes / elision->rowBytes);
  }
}

/* Messages of which all rows are kept, and the one to this rank, cross as they
 * are. */
static void endPass(struct lrmoeElision *elision) {
  for (int peer = 0; peer < elision->comm->numRanks; peer++) {
    struct lrmoeElisionPeer *own = &elision->peers[peer];
    int isWhole = own->recvRows * elision->rowBytes == own->recv->bytes;
    int isOwn = peer == elision->comm->rank;
    if (isOwn || own->sendRows * elision->rowBytes == own->send->bytes) {
      own->sendRows = -1;
      own->sendBits = NULL;
    }
    if (isWhole) own->recvBits = NULL;
    if (isWhole || isOwn) own->recvRows = -1;
  }
}

static int runPass(struct pass *pass) {
  const struct lrmoeHint *hint = pass->elision->hint;
  int64_t perRank = expertsPerRank(pass->elision);
  for (int64_t e = 0; e < hint->numExperts; e++) {
    int64_t numPairs = pairsOf(pass->elision, e);
    if (e % perRank == 0) pass->sent = 0;
    listKeys(pass, e);
    if (dropsNonFinite(pass, numPairs, hint->quotas[e])) return 0;
    lrmoeSelectTop(numPairs, pass->room.keys, hint->quotas[e],
                   pass->room.flags);
    putFlags(pass, e, (int)(e / perRank));
  }
  return 1;
}

int lrmoeCalibrationSelect(struct lrmoeElision *elision) {
  int64_t numRanks = elision->comm->numRanks;
  int64_t *counters = elision->hint->counters;
  const struct sizes sizes = sizesOf(elision);
  struct pass pass = {.elision = elision,
                      .room = roomIn(elision->comm->work.data, &sizes),
                      .seen = counters,
                      .arrived = counters + numRanks};
  memset(counters, 0, (size_t)(2 * numRanks) * sizeof *counters);
  memset(pass.room.sendBits, 0, (size_t)(sizes.sendBytes + sizes.recvBytes));
  beginPass(&pass);
  if (!runPass(&pass)) return 0;
  endPass(elision);
  return 1;
}
