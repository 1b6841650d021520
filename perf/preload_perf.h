/* Between preload_perf.c, which runs sets of ranks, and preload_rank.c, which
 * is a rank: a program that knows NCCL only. */
#ifndef LRMOE_PERF_PRELOAD_PERF_H
#define LRMOE_PERF_PRELOAD_PERF_H

#include "tools/common/fail.h"

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
  double dropFraction; /* of rows, by hints */
  int64_t quotas[preloadMaxRanks];
  int32_t hasHints;
};

struct preloadResult {
  double exchangeUs; /* median over iterations */
  double callNs;     /* of a call that has nothing to do */
  uint64_t hash;     /* of what was received */
  int32_t isDone;
  int32_t isRight; /* with hints: what was received is what is kept */
};

/* ncclGetUniqueId; 0: good. */
int preloadMakeId(unsigned char *id);

/* The rows that a rank sends: finite bf16 elements, and zero rows spread
 * evenly, exactly as many as asked for. */
void preloadFill(const struct preloadOrder *order, int rank,
                 unsigned char *rows);

/* Has the library choose the rows that stay, without hints: flags [G, G * rows]
 * by source, and order->quotas. */
enum toolExit preloadChoose(struct preloadOrder *order, uint8_t *kept,
                            struct toolError *error);

/* Runs rank `rank`; kept as preloadChoose gives it, read with hints.  0:
 * good. */
int preloadRankMain(const struct preloadOrder *order, int rank,
                    const uint8_t *kept, struct preloadResult *result);

#endif
