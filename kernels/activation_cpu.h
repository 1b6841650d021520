/* The activations between FC1 and FC2, forward and backward, by blocks.
 *
 *   SwiGLU  phi = gate * sigmoid(gate) * up, FC1 row = [gate(F), up(F)]
 *   GELU    phi = x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which
 *           is the tanh form: (1 + tanh(u)) / 2 = sigmoid(2u)
 *
 * FC1 outputs are rounded to the layer type before anything else, and phi is
 * rounded before use, so that backward finds the very same phi from the saved
 * row.  Part of rows_cpu.c. */
#ifndef LRMOE_KERNELS_ACTIVATION_CPU_H
#define LRMOE_KERNELS_ACTIVATION_CPU_H

#include "kernels/cpu_lanes.h"
#include "kernels/cpu_math.h"
#include "kernels/rows.h"

#include <math.h>

/* A block of one FC1 row and what is worked out from it. */
struct activationBlock {
  float gate[blockElements]; /* GELU: x */
  float up[blockElements];
  float phi[blockElements];   /* rounded to the layer type */
  float dGate[blockElements]; /* d(phi)/d(gate) */
  float dUp[blockElements];
};

static inline float geluArgument(float x) {
  const float twoRootTwoOverPi = 0x1.988454p+0f;
  const float cubic = 0x1.6e4e26p-5f;
  return twoRootTwoOverPi * (x + cubic * (x * x * x));
}

/* Derivative of geluArgument. */
static inline float geluSlope(float x) {
  const float twoRootTwoOverPi = 0x1.988454p+0f;
  const float cubicTimes3 = 0x1.12ba9cp-3f;
  return twoRootTwoOverPi * (1.0f + cubicTimes3 * (x * x));
}

/* phi from gate and up; the expressions are those of the gradient below. */
static inline void computePhi(lrmoeActivation_t activation, int64_t n,
                              struct activationBlock *block) {
  float *restrict phi = block->phi;
  const float *restrict gate = block->gate;
  const float *restrict up = block->up;
  if (activation == lrmoeSwiglu)
    for (int64_t j = 0; j < n; j++)
      phi[j] = gate[j] * sigmoidOf(gate[j]).value * up[j];
  else
    for (int64_t j = 0; j < n; j++)
      phi[j] = gate[j] * sigmoidOf(geluArgument(gate[j])).value;
}

static inline void computePhiAndSlopes(lrmoeActivation_t activation, int64_t n,
                                       struct activationBlock *block) {
  float *restrict phi = block->phi;
  float *restrict dGate = block->dGate;
  float *restrict dUp = block->dUp;
  const float *restrict gate = block->gate;
  const float *restrict up = block->up;
  if (activation == lrmoeSwiglu)
    for (int64_t j = 0; j < n; j++) {
      struct sigmoid s = sigmoidOf(gate[j]);
      float silu = gate[j] * s.value;
      phi[j] = silu * up[j];
      dUp[j] = silu;
      dGate[j] = s.value * (1.0f + gate[j] * s.complement) * up[j];
    }
  else
    for (int64_t j = 0; j < n; j++) {
      struct sigmoid s = sigmoidOf(geluArgument(gate[j]));
      phi[j] = gate[j] * s.value;
      dGate[j] =
          s.value + gate[j] * geluSlope(gate[j]) * s.value * s.complement;
    }
}

/* How an FC1 row is stored. */
struct fc1Layout {
  lrmoeActivation_t activation;
  lrmoeDataType_t type;
  int64_t ffn;
};

/* Fills gate (and up) from columns [first, first + n) of a row; row NULL:
 * zeros. */
static inline void loadFc1(const struct fc1Layout *layout, const void *row,
                           int64_t first, int64_t n,
                           struct activationBlock *block) {
  if (!row) {
    padBlock(0, block->gate);
    padBlock(0, block->up);
    return;
  }
  loadBlock(layout->type, elementAt(row, layout->type, first), n, block->gate);
  if (layout->activation == lrmoeSwiglu)
    loadBlock(layout->type, elementAt(row, layout->type, layout->ffn + first),
              n, block->up);
}

static void forwardRow(const struct lrmoeActivationForward *args, int64_t i) {
  int isSwiglu = args->activation == lrmoeSwiglu;
  int64_t fc1Width = lrmoeFc1Width(args->activation, args->ffn);
  const float *fc1 = args->fc1 + i * fc1Width;
  void *saved = elementAtMutable(args->saved, args->type, i * fc1Width);
  void *phi = elementAtMutable(args->phi, args->operand, i * args->ffn);
  const struct fc1Layout layout = {args->activation, args->type, args->ffn};
  float weight = args->weights ? args->weights[i] : 1;
  struct activationBlock block;
  struct lanes lanes = {0};
  for (int64_t j = 0; j < args->ffn; j += blockElements) {
    int64_t left = args->ffn - j;
    int64_t n = left < blockElements ? left : blockElements;
    storeBlock(args->type, fc1 + j, n, elementAtMutable(saved, args->type, j));
    if (isSwiglu)
      storeBlock(args->type, fc1 + args->ffn + j, n,
                 elementAtMutable(saved, args->type, args->ffn + j));
    loadFc1(&layout, saved, j, n, &block);
    computePhi(args->activation, n, &block);
    for (int64_t k = 0; args->weights && k < n; k++)
      block.phi[k] *= weight;
    roundBlock(args->type, n, block.phi);
    storeBlock(args->operand, block.phi, n,
               elementAtMutable(phi, args->operand, j));
    padBlock(n, block.phi);
    addProducts(&lanes, block.phi, block.phi);
  }
  args->phiNorm[i] = sqrtf(foldLanes(&lanes));
}

static void activationForward(const struct lrmoeActivationForward *args) {
  for (int64_t i = 0; i < args->numRows; i++)
    forwardRow(args, i);
}

/* Scales a block by what comes from above and writes it. */
static inline void storeScaled(lrmoeDataType_t operand, int64_t n,
                               float *restrict values,
                               const float *restrict factors, void *to) {
  for (int64_t j = 0; j < n; j++)
    values[j] *= factors[j];
  storeBlock(operand, values, n, to);
}

static void backwardRow(const struct lrmoeActivationBackward *args, int64_t i,
                        const void *saved) {
  int64_t fc1Width = lrmoeFc1Width(args->activation, args->ffn);
  const float *gPhi = args->gPhi + i * args->ffn;
  void *phi = elementAtMutable(args->phi, args->operand, i * args->ffn);
  void *dFc1 = elementAtMutable(args->dFc1, args->operand, i * fc1Width);
  float weight = args->weights[i];
  const struct fc1Layout layout = {args->activation, args->type, args->ffn};
  struct activationBlock block;
  struct lanes lanes = {0};
  for (int64_t j = 0; j < args->ffn; j += blockElements) {
    float g[blockElements];
    int64_t left = args->ffn - j;
    int64_t n = left < blockElements ? left : blockElements;
    loadFc1(&layout, saved, j, n, &block);
    computePhiAndSlopes(args->activation, n, &block);
    if (!args->isPre) roundBlock(args->type, n, block.phi);
    padBlock(n, block.phi);
    memcpy(g, gPhi + j, (size_t)n * sizeof *g);
    padBlock(n, g);
    addProducts(&lanes, g, block.phi);
    for (int64_t k = 0; k < n; k++) {
      block.phi[k] *= weight;
      g[k] *= weight;
    }
    if (args->isPre) roundBlock(args->type, n, block.phi);
    storeBlock(args->operand, block.phi, n,
               elementAtMutable(phi, args->operand, j));
    storeScaled(args->operand, n, block.dGate, g,
                elementAtMutable(dFc1, args->operand, j));
    if (args->activation == lrmoeSwiglu)
      storeScaled(args->operand, n, block.dUp, g,
                  elementAtMutable(dFc1, args->operand, args->ffn + j));
  }
  args->dWeights[i] = foldLanes(&lanes);
}

static void activationBackward(const struct lrmoeActivationBackward *args) {
  for (int64_t i = 0; i < args->numRows; i++)
    backwardRow(args, i, rowAt(&args->saved, i));
}

#endif
