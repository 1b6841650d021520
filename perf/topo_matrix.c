/* Random traffic matrices: see topo_matrix.h. */
#include "perf/topo_matrix.h"

#include "tools/common/ranks.h"
#include "tools/common/workload.h"

#include <math.h>

void topoMatrixMake(const struct topoMatrixConfig *config, int64_t matrix,
                    int64_t *traffic) {
  int numRanks = config->numRanks;
  struct toolRandom random = toolRandomMake(config->seed, (uint64_t)matrix);
  double weights[toolMaxRanks];
  for (int from = 0; from < numRanks; from++) {
    double sum = 0;
    double ratio = (double)config->maxBytes / (double)config->minBytes;
    double total =
        (double)config->minBytes * pow(ratio, toolRandomUniform(&random));
    for (int to = 0; to < numRanks; to++) {
      weights[to] = exp(toolRandomNormal(&random));
      if (toolRandomBelow(&random, 10) == 0) weights[to] = 0;
      sum += weights[to];
    }
    for (int to = 0; to < numRanks; to++) {
      double units = sum > 0 ? total * weights[to] / sum / topoUnitBytes : 0;
      traffic[from * numRanks + to] = (int64_t)units * topoUnitBytes;
    }
  }
}

int64_t topoMatrixSum(const int64_t *traffic, int numRanks, int rank,
                      int isReceived) {
  int64_t sum = 0;
  for (int i = 0; i < numRanks; i++)
    sum += isReceived ? traffic[i * numRanks + rank]
                      : traffic[rank * numRanks + i];
  return sum;
}

int64_t topoMatrixMost(const int64_t *traffic, int numRanks) {
  int64_t most = 0;
  for (int i = 0; i < 2 * numRanks; i++) {
    int64_t sum = topoMatrixSum(traffic, numRanks, i / 2, i % 2);
    if (sum > most) most = sum;
  }
  return most;
}
