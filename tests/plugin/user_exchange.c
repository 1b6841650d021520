/* The traffic of the programs under test: contents are made of (round, source,
 * target) alone, with rows of zeros, of minus zeros, and with one bit set in
 * the last byte. */
#include "user.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccd;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53;
  return value ^ value >> 33;
}

static uint64_t seedOf(int round, int source, int target) {
  return mix((uint64_t)round * 1000003 + (uint64_t)source * 1009 +
             (uint64_t)target + 1);
}

/* Every fifth message or so is empty. */
static int64_t rowsOf(const struct user *user, int round, int source,
                      int target) {
  uint64_t seed = seedOf(round, source, target);
  return seed % 5 ? (int64_t)(seed / 5 % (uint64_t)(user->numRows + 1)) : 0;
}

static void fillRow(unsigned char *row, uint64_t seed, int zeroPercent) {
  memset(row, 0, userRowBytes);
  uint64_t kind = seed / 128 % 100;
  if (kind < (uint64_t)zeroPercent) return;
  if (seed % 16 == 0) row[userRowBytes - 1] = 0x80; /* -0.0 in bf16 */
  if (seed % 16 == 1) row[userRowBytes - 1] = 1;
  for (int i = 0; i < userRowBytes && seed % 16 > 1; i++)
    row[i] = (unsigned char)(mix(seed + (uint64_t)i) | 1);
}

static void fill(const struct user *user, int round, int source, int target,
                 unsigned char *message, int64_t bytes) {
  uint64_t seed = seedOf(round, source, target);
  int64_t numRows = bytes / userRowBytes;
  for (int64_t row = 0; row < numRows; row++)
    fillRow(message + row * userRowBytes, mix(seed + (uint64_t)row),
            user->zeroPercent);
  for (int64_t i = numRows * userRowBytes; i < bytes; i++)
    message[i] = (unsigned char)(seed + (uint64_t)i);
}

static void take(struct user *user, const unsigned char *bytes,
                 int64_t numBytes) {
  for (int64_t i = 0; i < numBytes; i++)
    user->hash = (user->hash ^ bytes[i]) * 0x100000001b3;
}

/* ---- Buffers ---- */

struct buffers {
  unsigned char *send; /* messages one behind the other, 8-byte aligned */
  unsigned char *recv;
  int64_t *sendOffsets; /* [numRanks + 1] */
  int64_t *recvOffsets;
  int64_t odd;
};

static int64_t bytesOf(const struct user *user, int round, int source,
                       int target, int64_t odd) {
  int64_t rows = rowsOf(user, round, source, target);
  return rows ? rows * userRowBytes + odd : 0;
}

static void make(const struct user *user, int round, int64_t odd,
                 struct buffers *buffers) {
  size_t count = (size_t)user->numRanks + 1;
  buffers->odd = odd;
  buffers->sendOffsets = calloc(count, sizeof(int64_t));
  buffers->recvOffsets = calloc(count, sizeof(int64_t));
  for (int p = 0; p < user->numRanks; p++) {
    buffers->sendOffsets[p + 1] =
        buffers->sendOffsets[p] + bytesOf(user, round, user->rank, p, odd);
    buffers->recvOffsets[p + 1] =
        buffers->recvOffsets[p] + bytesOf(user, round, p, user->rank, odd);
  }
  buffers->send = malloc((size_t)buffers->sendOffsets[user->numRanks] + 1);
  buffers->recv = malloc((size_t)buffers->recvOffsets[user->numRanks] + 1);
  memset(buffers->recv, 0xa5, (size_t)buffers->recvOffsets[user->numRanks] + 1);
  for (int p = 0; p < user->numRanks; p++)
    fill(user, round, user->rank, p, buffers->send + buffers->sendOffsets[p],
         buffers->sendOffsets[p + 1] - buffers->sendOffsets[p]);
}

/* The byte behind the last message is hashed too: nothing may be there. */
static void finish(struct user *user, struct buffers *buffers) {
  take(user, buffers->recv, buffers->recvOffsets[user->numRanks] + 1);
  free(buffers->send);
  free(buffers->recv);
  free(buffers->sendOffsets);
  free(buffers->recvOffsets);
}

static int postPeer(struct user *user, ncclComm_t comm,
                    const struct buffers *buffers, int peer) {
  const int64_t *s = buffers->sendOffsets, *r = buffers->recvOffsets;
  USER_OK(user,
          ncclSend(buffers->send + s[peer], (size_t)(s[peer + 1] - s[peer]),
                   ncclUint8, peer, comm, NULL));
  USER_OK(user,
          ncclRecv(buffers->recv + r[peer], (size_t)(r[peer + 1] - r[peer]),
                   ncclUint8, peer, comm, NULL));
  return 0;
}

/* ---- Exchanges ---- */

int userExchange(struct user *user, ncclComm_t comm, int round, int64_t odd) {
  struct buffers buffers;
  make(user, round, odd, &buffers);
  USER_OK(user, ncclGroupStart());
  for (int peer = 0; peer < user->numRanks; peer++)
    if (postPeer(user, comm, &buffers, peer)) return 1;
  USER_OK(user, ncclGroupEnd());
  finish(user, &buffers);
  return 0;
}

int userExchangeNonempty(struct user *user, ncclComm_t comm, int round) {
  struct buffers buffers;
  make(user, round, 0, &buffers);
  const int64_t *s = buffers.sendOffsets, *r = buffers.recvOffsets;
  USER_OK(user, ncclGroupStart());
  for (int p = 0; p < user->numRanks; p++) {
    if (s[p + 1] > s[p])
      USER_OK(user, ncclSend(buffers.send + s[p], (size_t)(s[p + 1] - s[p]) / 2,
                             ncclBfloat16, p, comm, NULL));
    if (r[p + 1] > r[p])
      USER_OK(user, ncclRecv(buffers.recv + r[p], (size_t)(r[p + 1] - r[p]) / 2,
                             ncclBfloat16, p, comm, NULL));
  }
  USER_OK(user, ncclGroupEnd());
  finish(user, &buffers);
  return 0;
}

/* In step i rank r meets rank i - r, so that nobody waits in a circle. */
int userExchangePairs(struct user *user, ncclComm_t comm, int round) {
  struct buffers buffers;
  make(user, round, 0, &buffers);
  for (int step = 0; step < user->numRanks; step++) {
    int peer = (step - user->rank + user->numRanks) % user->numRanks;
    USER_OK(user, ncclGroupStart());
    if (postPeer(user, comm, &buffers, peer)) return 1;
    USER_OK(user, ncclGroupEnd());
  }
  finish(user, &buffers);
  return 0;
}

int userExchangeTwo(struct user *user, ncclComm_t a, ncclComm_t b, int round) {
  struct buffers first, second;
  make(user, round, 0, &first);
  make(user, round + 1, 0, &second);
  USER_OK(user, ncclGroupStart());
  USER_OK(user, ncclGroupStart());
  for (int peer = 0; peer < user->numRanks; peer++) {
    if (postPeer(user, a, &first, peer)) return 1;
    if (postPeer(user, b, &second, peer)) return 1;
  }
  USER_OK(user, ncclGroupEnd());
  USER_OK(user, ncclGroupEnd());
  finish(user, &first);
  finish(user, &second);
  return 0;
}

int userAllToAll(struct user *user, ncclComm_t comm, int round) {
  int64_t bytes = user->numRows * userRowBytes, all = bytes * user->numRanks;
  unsigned char *send = malloc((size_t)all + 1);
  unsigned char *recv = malloc((size_t)all + 1);
  memset(recv, 0xa5, (size_t)all + 1);
  for (int p = 0; p < user->numRanks; p++)
    fill(user, round, user->rank, p, send + p * bytes, bytes);
  USER_OK(user,
          ncclAlltoAll(send, recv, (size_t)bytes / 4, ncclFloat32, comm, NULL));
  take(user, recv, all + 1);
  free(send);
  free(recv);
  return 0;
}
