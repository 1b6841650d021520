/* How far gradients of kept pairs are from those of all pairs, at one model.
 *
 * A choice of pairs errs in two ways.  Its error in one batch shrinks with the
 * batches where it changes from batch to batch; what is the same in each is
 * left in the mean, and an optimizer that sums over steps follows it.  Both are
 * shown, for each way to choose, over the same batches. */
#ifndef LRMOE_PERF_TRAIN_PROBE_H
#define LRMOE_PERF_TRAIN_PROBE_H

#include "perf/train/model.h"
#include "tools/common/json.h"

/* Sets batch number i of the probe. */
typedef void trainProbeSet(void *user, int64_t i);

struct trainProbe {
  struct trainModel *model; /* its gradients are zero before and after */
  int64_t numBatches;
  trainProbeSet *set;
  void *user;
  struct toolJson *json;
};

/* Rank 0 prints and writes.  Collective. */
enum toolExit trainProbeRun(const struct trainProbe *probe);

#endif
