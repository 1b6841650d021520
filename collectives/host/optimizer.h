/* The host optimizer: gradients queued and accumulated beside the core, AdamW
 * in host memory (see lrmoe.h).
 *
 * The paper names the queue "QCPU" (Algorithm 1 line 18) and shows the rest in
 * Figure 3; it fixes neither the optimizer nor its numerics.  Ours is AdamW in
 * fp32, and an overflow skips the step, as loss scaling expects. */
#ifndef LRMOE_COLLECTIVES_HOST_OPTIMIZER_H
#define LRMOE_COLLECTIVES_HOST_OPTIMIZER_H

#include "collectives/host/team.h"
#include "kernels/rows.h"

struct lrmoeHostOptimizer {
  struct lrmoeHostState state;
  struct lrmoeBuffer memory; /* of state */
  struct lrmoeHostTeam team;
  struct lrmoeAdamwConfig adamw;
  const struct lrmoeRowKernels *kernels;
  int64_t *tensorOffsets; /* [numTensors + 1] within an expert */
  int32_t numExperts;
  int32_t numTensors;
  int skipNonFinite;
  int hasGradients; /* something was pushed since they were set to zero */
  int64_t numSteps;
  int64_t numSkipped;
  int64_t numPushes;
};

enum {
  lrmoeMaxHostExperts = 1 << 20,
  lrmoeMaxHostTensors = 1 << 10,
  lrmoeMaxHostThreads = 64
};

/* Elements of a tensor, and where in the state it begins. */
static inline int64_t
lrmoeHostTensorElements(const struct lrmoeHostOptimizer *optimizer,
                        int32_t tensor) {
  return optimizer->tensorOffsets[tensor + 1] -
         optimizer->tensorOffsets[tensor];
}

static inline int64_t
lrmoeHostTensorFirst(const struct lrmoeHostOptimizer *optimizer, int32_t expert,
                     int32_t tensor) {
  return expert * optimizer->tensorOffsets[optimizer->numTensors] +
         optimizer->tensorOffsets[tensor];
}

/* What every call on an optimizer checks first. */
lrmoeResult_t lrmoeHostCheck(const struct lrmoeHostOptimizer *optimizer);

/* As lrmoeHostCheck, and that expert and tensor exist. */
lrmoeResult_t lrmoeHostCheckTensor(const struct lrmoeHostOptimizer *optimizer,
                                   int32_t expert, int32_t tensor);

/* Whether weights may be read or written as this type. */
lrmoeResult_t lrmoeHostCheckType(lrmoeDataType_t type);

#endif
