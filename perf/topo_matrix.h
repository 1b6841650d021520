/* The traffic matrices of topo_perf: who sends how much to whom. */
#ifndef LRMOE_PERF_TOPO_MATRIX_H
#define LRMOE_PERF_TOPO_MATRIX_H

#include <stdint.h>

enum {
  topoUnitBytes = 64 /* messages are multiples of it */
};

struct topoMatrixConfig {
  int numRanks;
  int64_t minBytes; /* of what a rank sends in all, log-uniform */
  int64_t maxBytes;
  uint64_t seed;
};

/* The matrix of that number: traffic [G, G], from * G + to.  A rank's bytes are
 * shared out among all ranks, itself included, by log-normal weights (sigma 1),
 * a tenth of them zero. */
void topoMatrixMake(const struct topoMatrixConfig *config, int64_t matrix,
                    int64_t *traffic);

/* What a rank sends, or receives. */
int64_t topoMatrixSum(const int64_t *traffic, int numRanks, int rank,
                      int isReceived);

/* The most that any rank sends or receives. */
int64_t topoMatrixMost(const int64_t *traffic, int numRanks);

#endif
