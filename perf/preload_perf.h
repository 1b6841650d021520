/* Between preload_perf.c, which runs sets of ranks, and preload_rank.c, which
 * is a rank: a program that knows NCCL only. */
#ifndef LRMOE_PERF_PRELOAD_PERF_H
#define LRMOE_PERF_PRELOAD_PERF_H

#include <stdint.h>

enum {
  preloadMaxRanks = 64,
  preloadIdBytes = 128
};

/* What a rank is asked, in memory that it shares with the parent. */
struct preloadOrder {
  unsigned char id[preloadIdBytes];
  int64_t numRanks;
  int64_t numRows; /* to each rank */
  int64_t rowBytes;
  int64_t numIterations;
  double zeroFraction;
};

struct preloadResult {
  double exchangeUs; /* median over iterations */
  double callNs;     /* of a call that has nothing to do */
  uint64_t hash;     /* of what was received */
  int32_t isDone;
};

/* ncclGetUniqueId; 0: good. */
int preloadMakeId(unsigned char *id);

/* Runs rank `rank`; 0: good. */
int preloadRankMain(const struct preloadOrder *order, int rank,
                    struct preloadResult *result);

#endif
