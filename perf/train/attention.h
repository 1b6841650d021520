/* Causal multi-head attention with rotary positions (Vaswani et al. 2017; Su et
 * al. 2021), between the projections: from queries, keys and values to the
 * heads' outputs.
 *
 * qkv [T, 3 dim] has a token's queries, keys and values, in each the heads one
 * after the other.  T is a whole number of windows; tokens see their own window
 * up to themselves. */
#ifndef LRMOE_PERF_TRAIN_ATTENTION_H
#define LRMOE_PERF_TRAIN_ATTENTION_H

#include "perf/train/matrix.h"

struct trainAttention {
  int64_t context;
  int64_t dim;
  int64_t numHeads;
  float *cosines; /* [context, dim / heads / 2] */
  float *sines;
  float *scores; /* [context, context] */
};

/* dim is a multiple of 2 numHeads. */
struct trainAttention trainAttentionMake(int64_t context, int64_t dim,
                                         int64_t numHeads);
void trainAttentionFree(struct trainAttention *attention);

/* Numbers that forward keeps for each window. */
int64_t trainAttentionSaved(const struct trainAttention *attention);

/* Turns queries and keys in qkv by their positions; out [T, dim]; saved gets
 * the attention weights. */
void trainAttend(const struct trainAttention *attention, int64_t numWindows,
                 float *qkv, float *saved, float *out);

/* qkv and saved as forward left them; dqkv is written. */
void trainAttendBackward(const struct trainAttention *attention,
                         int64_t numWindows, float *qkv, float *saved,
                         float *dout, float *dqkv);

#endif
