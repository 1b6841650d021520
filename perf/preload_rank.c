/* A rank of preload_perf: an all-to-all as PyTorch issues it, a group with a
 * send and a receive for every rank. */
#include "perf/preload_perf.h"
#include "tools/common/stats.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* As much of nccl.h as is used. */
typedef struct {
  char internal[preloadIdBytes];
} ncclUniqueId;
struct ncclComm;
struct CUstream_st;
enum {
  ncclUint8 = 1
};
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(struct ncclComm **comm, int numRanks, ncclUniqueId id,
                     int rank);
int ncclCommDestroy(struct ncclComm *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *buffer, size_t count, int type, int peer,
             struct ncclComm *comm, struct CUstream_st *stream);
int ncclRecv(void *buffer, size_t count, int type, int peer,
             struct ncclComm *comm, struct CUstream_st *stream);

int preloadMakeId(unsigned char *id) {
  ncclUniqueId made;
  if (ncclGetUniqueId(&made)) return 1;
  memcpy(id, &made, sizeof made);
  return 0;
}

/* Zero rows are spread evenly, exactly as many as asked for. */
static void fill(const struct preloadOrder *order, int rank,
                 unsigned char *rows) {
  uint64_t state = (uint64_t)rank + 1;
  int64_t numRows = order->numRows * order->numRanks;
  for (int64_t row = 0; row < numRows; row++) {
    unsigned char *at = rows + row * order->rowBytes;
    int64_t before = (int64_t)((double)row * order->zeroFraction);
    int64_t behind = (int64_t)((double)(row + 1) * order->zeroFraction);
    memset(at, 0, (size_t)order->rowBytes);
    for (int64_t i = 0; i < order->rowBytes && before == behind; i++) {
      state = state * 6364136223846793005 + 1442695040888963407;
      at[i] = (unsigned char)(state >> 56);
    }
  }
}

static int exchange(const struct preloadOrder *order, struct ncclComm *comm,
                    const unsigned char *from, unsigned char *to) {
  int64_t bytes = order->numRows * order->rowBytes;
  int failed = ncclGroupStart();
  for (int peer = 0; peer < order->numRanks; peer++) {
    failed |= ncclSend(from + peer * bytes, (size_t)bytes, ncclUint8, peer,
                       comm, NULL);
    failed |=
        ncclRecv(to + peer * bytes, (size_t)bytes, ncclUint8, peer, comm, NULL);
  }
  return ncclGroupEnd() | failed;
}

static double timeIdleCall(void) {
  enum {
    numCalls = 200000
  };
  int64_t start = toolCpuNs();
  for (int i = 0; i < numCalls; i += 2) {
    ncclGroupStart();
    ncclGroupEnd();
  }
  return (double)(toolCpuNs() - start) / numCalls;
}

static uint64_t hashOf(const unsigned char *bytes, int64_t count) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int64_t i = 0; i < count; i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  return hash;
}

static int measure(const struct preloadOrder *order, struct ncclComm *comm,
                   const unsigned char *from, unsigned char *to,
                   struct preloadResult *result) {
  double *times = calloc((size_t)order->numIterations, sizeof *times);
  int failed = !times || exchange(order, comm, from, to);
  for (int64_t i = 0; i < order->numIterations && !failed; i++) {
    int64_t start = toolWallNs();
    failed = exchange(order, comm, from, to);
    times[i] = (double)(toolWallNs() - start) / 1e3;
  }
  if (!failed)
    result->exchangeUs = toolStatsMake(times, order->numIterations).median;
  free(times);
  return failed;
}

int preloadRankMain(const struct preloadOrder *order, int rank,
                    struct preloadResult *result) {
  struct ncclComm *comm = NULL;
  ncclUniqueId id;
  int64_t bytes = order->numRanks * order->numRows * order->rowBytes;
  unsigned char *from = malloc((size_t)bytes), *to = malloc((size_t)bytes);
  memcpy(&id, order->id, sizeof id);
  int failed =
      !from || !to || ncclCommInitRank(&comm, (int)order->numRanks, id, rank);
  if (!failed) {
    fill(order, rank, from);
    memset(to, 0xa5, (size_t)bytes);
    result->callNs = timeIdleCall();
    failed = measure(order, comm, from, to, result);
  }
  if (!failed) result->hash = hashOf(to, bytes);
  if (!failed) failed = ncclCommDestroy(comm);
  result->isDone = !failed;
  free(from);
  free(to);
  return failed;
}
