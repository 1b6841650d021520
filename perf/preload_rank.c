/* A rank of preload_perf: an all-to-all as PyTorch issues it, a group with a
 * send and a receive for every rank. */
#include "lrmoe_hint.h"
#include "perf/preload_perf.h"
#include "tools/common/stats.h"

#include <dlfcn.h>
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
  ncclBfloat16 = 9
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

/* Of a bf16 the sign, some exponents below 2, and the mantissa are random. */
static void fillRow(unsigned char *at, int64_t bytes, uint64_t *state) {
  for (int64_t i = 0; i < bytes; i++) {
    *state = *state * 6364136223846793005 + 1442695040888963407;
    at[i] = (unsigned char)(*state >> 56);
    if (i % 2) at[i] = (unsigned char)((at[i] & 0x83) | 0x3c);
  }
}

void preloadFill(const struct preloadOrder *order, int rank,
                 unsigned char *rows) {
  uint64_t state = (uint64_t)rank + 1;
  int64_t numRows = order->numRows * order->numRanks;
  for (int64_t row = 0; row < numRows; row++) {
    unsigned char *at = rows + row * order->rowBytes;
    int64_t before = (int64_t)((double)row * order->zeroFraction);
    int64_t behind = (int64_t)((double)(row + 1) * order->zeroFraction);
    if (before == behind)
      fillRow(at, order->rowBytes, &state);
    else
      memset(at, 0, (size_t)order->rowBytes);
  }
}

/* ---- Exchanges ---- */

struct traffic {
  const struct preloadOrder *order;
  struct ncclComm *comm;
  unsigned char *from;
  unsigned char *to;
  lrmoeHintBackwardFunction hint; /* NULL: none is given */
  int64_t *demand;                /* [G, G] */
  float *phiNorms;                /* [G * rows] ones */
};

static int exchange(const struct traffic *traffic) {
  const struct preloadOrder *order = traffic->order;
  int64_t bytes = order->numRows * order->rowBytes;
  lrmoeHintLayer_t layer = LRMOE_HINT_LAYER_INITIALIZER;
  layer.numExperts = order->numRanks;
  int failed = traffic->hint &&
               traffic->hint(traffic->comm, &layer, order->rowBytes,
                             traffic->demand, order->quotas, traffic->phiNorms);
  failed |= ncclGroupStart();
  for (int peer = 0; peer < order->numRanks; peer++) {
    failed |= ncclSend(traffic->from + peer * bytes, (size_t)bytes / 2,
                       ncclBfloat16, peer, traffic->comm, NULL);
    failed |= ncclRecv(traffic->to + peer * bytes, (size_t)bytes / 2,
                       ncclBfloat16, peer, traffic->comm, NULL);
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

static int measure(const struct traffic *traffic,
                   struct preloadResult *result) {
  int64_t numIterations = traffic->order->numIterations;
  double *times = calloc((size_t)numIterations, sizeof *times);
  int failed = !times || exchange(traffic);
  for (int64_t i = 0; i < numIterations && !failed; i++) {
    int64_t start = toolWallNs();
    failed = exchange(traffic);
    times[i] = (double)(toolWallNs() - start) / 1e3;
  }
  if (!failed) result->exchangeUs = toolStatsMake(times, numIterations).median;
  free(times);
  return failed;
}

/* ---- What was received ---- */

/* The rows of one source that are kept, and zeros; `rows` is room for all that
 * a rank sends. */
static int isKept(const struct traffic *traffic, int source, int rank,
                  const uint8_t *kept, unsigned char *rows) {
  const struct preloadOrder *order = traffic->order;
  int64_t first = rank * order->numRows;
  preloadFill(order, source, rows);
  kept += source * order->numRanks * order->numRows;
  for (int64_t i = first; i < first + order->numRows; i++)
    if (!kept[i])
      memset(rows + i * order->rowBytes, 0, (size_t)order->rowBytes);
  int64_t bytes = order->numRows * order->rowBytes;
  return !memcmp(rows + rank * bytes, traffic->to + source * bytes,
                 (size_t)bytes);
}

static int isRight(const struct traffic *traffic, int rank,
                   const uint8_t *kept) {
  int right = 1;
  for (int source = 0; source < traffic->order->numRanks; source++)
    right &= isKept(traffic, source, rank, kept, traffic->from);
  return right;
}

/* ---- The rank ---- */

static int openTraffic(struct traffic *traffic, int rank) {
  const struct preloadOrder *order = traffic->order;
  size_t numRows = (size_t)(order->numRanks * order->numRows);
  size_t bytes = numRows * (size_t)order->rowBytes;
  ncclUniqueId id;
  memcpy(&id, order->id, sizeof id);
  traffic->from = malloc(bytes + 1);
  traffic->to = malloc(bytes + 1);
  traffic->demand = malloc((size_t)(order->numRanks * order->numRanks) * 8);
  traffic->phiNorms = malloc((numRows + 1) * sizeof(float));
  if (!traffic->from || !traffic->to || !traffic->demand || !traffic->phiNorms)
    return 1;
  for (int64_t i = 0; i < order->numRanks * order->numRanks; i++)
    traffic->demand[i] = order->numRows;
  for (size_t i = 0; i < numRows; i++)
    traffic->phiNorms[i] = 1;
  preloadFill(order, rank, traffic->from);
  memset(traffic->to, 0xa5, bytes);
  if (order->hasHints)
    *(void **)&traffic->hint = dlsym(RTLD_DEFAULT, "lrmoeHintBackward");
  return ncclCommInitRank(&traffic->comm, (int)order->numRanks, id, rank) ||
         (order->hasHints && !traffic->hint);
}

static void freeTraffic(struct traffic *traffic) {
  free(traffic->from);
  free(traffic->to);
  free(traffic->demand);
  free(traffic->phiNorms);
}

int preloadRankMain(const struct preloadOrder *order, int rank,
                    const uint8_t *kept, struct preloadResult *result) {
  struct traffic traffic = {.order = order};
  int failed = openTraffic(&traffic, rank);
  if (!failed) {
    result->callNs = timeIdleCall();
    failed = measure(&traffic, result);
  }
  if (!failed) {
    result->hash =
        hashOf(traffic.to, order->numRanks * order->numRows * order->rowBytes);
    result->isRight = !order->hasHints || isRight(&traffic, rank, kept);
    failed = ncclCommDestroy(traffic.comm);
  }
  result->isDone = !failed;
  freeTraffic(&traffic);
  return failed;
}
