/* The pattern of an all-to-allv and its data: see alltoallv.h. */
#include "perf/alltoallv.h"

#include <stdlib.h>
#include <string.h>

enum {
  wideRow = 4096,
  narrowRow = 8
};

/* Rows that `from` sends to `to`, of `rows` in all: in the ratio of small
 * numbers; the last peer gets the rest. */
static int64_t rowsOf(int numRanks, int from, int to, int64_t rows) {
  int64_t total = 0, used = 0, mine = 0;
  for (int peer = 0; peer < numRanks; peer++)
    total += 2 + (from * 7 + peer * 3) % 5;
  for (int peer = 0; peer < numRanks; peer++) {
    int64_t share = rows * (2 + (from * 7 + peer * 3) % 5) / total;
    if (peer == numRanks - 1) share = rows - used;
    if (peer == to) mine = share;
    used += share;
  }
  return mine;
}

static int64_t bytesOf(int numRanks, int from, int to, int64_t bytes) {
  int64_t row = bytes >= (int64_t)wideRow * 4 * numRanks ? wideRow : narrowRow;
  if (bytes <= (int64_t)narrowRow * numRanks) return narrowRow;
  return row * rowsOf(numRanks, from, to, bytes / row);
}

int64_t exchangeMaxRecv(int numRanks, int64_t bytes) {
  int64_t most = 0;
  for (int to = 0; to < numRanks; to++) {
    int64_t sum = 0;
    for (int from = 0; from < numRanks; from++)
      sum += bytesOf(numRanks, from, to, bytes);
    if (sum > most) most = sum;
  }
  return most;
}

enum toolExit exchangeMake(int rank, int numRanks, int64_t bytes,
                           struct exchange *exchange, struct toolError *error) {
  struct exchange made = {.rank = rank, .numRanks = numRanks};
  int *numbers = calloc((size_t)numRanks, 4 * sizeof *numbers);
  if (!numbers) return toolFail(error, toolRunFailed, "out of memory");
  made.sendCounts = numbers;
  made.sendOffsets = numbers + numRanks;
  made.recvCounts = made.sendOffsets + numRanks;
  made.recvOffsets = made.recvCounts + numRanks;
  for (int peer = 0; peer < numRanks; peer++) {
    made.sendCounts[peer] = (int)bytesOf(numRanks, rank, peer, bytes);
    made.recvCounts[peer] = (int)bytesOf(numRanks, peer, rank, bytes);
    made.sendOffsets[peer] = (int)made.bytes;
    made.recvOffsets[peer] = (int)made.recvBytes;
    made.bytes += made.sendCounts[peer];
    made.recvBytes += made.recvCounts[peer];
  }
  *exchange = made;
  return toolGood;
}

void exchangeFree(struct exchange *exchange) {
  free(exchange->sendCounts);
}

/* Word i of a message: no two messages, places or rounds alike. */
static uint64_t firstWord(int from, int to, int64_t round) {
  return ((uint64_t)from << 48 | (uint64_t)to << 32 | (uint64_t)round) *
         0x9e3779b97f4a7c15u;
}

void exchangeFill(const struct exchange *exchange, int64_t round, void *send) {
  for (int to = 0; to < exchange->numRanks; to++) {
    uint64_t word = firstWord(exchange->rank, to, round);
    uint64_t *out = (void *)((char *)send + exchange->sendOffsets[to]);
    for (int i = 0; i < exchange->sendCounts[to] / 8; i++)
      out[i] = word + (uint64_t)i;
  }
}

int64_t exchangeCountWrong(const struct exchange *exchange, int64_t round,
                           const void *recv) {
  int64_t numWrong = 0;
  for (int from = 0; from < exchange->numRanks; from++) {
    uint64_t word = firstWord(from, exchange->rank, round);
    const uint64_t *in =
        (const void *)((const char *)recv + exchange->recvOffsets[from]);
    for (int i = 0; i < exchange->recvCounts[from] / 8; i++)
      numWrong += in[i] != word + (uint64_t)i;
  }
  return numWrong;
}
