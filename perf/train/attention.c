/* Causal attention: see attention.h.  A window's head at a time, with products
 * of [context, context] matrices; what is above the diagonal is computed and
 * thrown away, which at this size costs less than leaving it out. */
#include "perf/train/attention.h"

#include "perf/train/config.h"

#include <math.h>
#include <stdlib.h>

static const double rotaryBase = 10000;

struct trainAttention trainAttentionMake(int64_t context, int64_t dim,
                                         int64_t numHeads) {
  int64_t half = dim / numHeads / 2;
  struct trainAttention made = {
      .context = context,
      .dim = dim,
      .numHeads = numHeads,
      .cosines = trainRoom(context * half, sizeof(float)),
      .sines = trainRoom(context * half, sizeof(float)),
      .scores = trainRoom(context * context, sizeof(float))};
  for (int64_t t = 0; t < context; t++) {
    for (int64_t i = 0; i < half; i++) {
      double angle = (double)t * pow(rotaryBase, -(double)i / (double)half);
      made.cosines[t * half + i] = (float)cos(angle);
      made.sines[t * half + i] = (float)sin(angle);
    }
  }
  return made;
}

void trainAttentionFree(struct trainAttention *attention) {
  free(attention->cosines);
  free(attention->sines);
  free(attention->scores);
  *attention = (struct trainAttention){0};
}

int64_t trainAttentionSaved(const struct trainAttention *attention) {
  return attention->numHeads * attention->context * attention->context;
}

/* Turns the pairs (i, i + half) of a head by its position's angles; direction
 * -1 turns back, which is also the gradient's way. */
static void turnHead(const struct trainAttention *a, int64_t position,
                     float direction, float *head) {
  int64_t half = a->dim / a->numHeads / 2;
  const float *cosines = a->cosines + position * half;
  const float *sines = a->sines + position * half;
  for (int64_t i = 0; i < half; i++) {
    float x = head[i];
    float y = head[half + i];
    float sine = direction * sines[i];
    head[i] = x * cosines[i] - y * sine;
    head[half + i] = x * sine + y * cosines[i];
  }
}

/* Queries and keys of all tokens. */
static void turnAll(const struct trainAttention *a, int64_t numWindows,
                    float direction, float *qkv) {
  int64_t width = a->dim / a->numHeads;
  for (int64_t t = 0; t < numWindows * a->context; t++)
    for (int64_t h = 0; h < 2 * a->numHeads; h++)
      turnHead(a, t % a->context, direction, qkv + t * 3 * a->dim + h * width);
}

/* Part 0, 1 or 2 (queries, keys, values) of a window's head. */
static struct trainMatrix partOf(const struct trainAttention *a, float *qkv,
                                 int64_t window, int64_t head, int64_t part) {
  int64_t width = a->dim / a->numHeads;
  return (struct trainMatrix){qkv + window * a->context * 3 * a->dim +
                                  part * a->dim + head * width,
                              a->context, width, 3 * a->dim, 0};
}

static struct trainMatrix outOf(const struct trainAttention *a, float *out,
                                int64_t window, int64_t head) {
  int64_t width = a->dim / a->numHeads;
  return (struct trainMatrix){out + window * a->context * a->dim + head * width,
                              a->context, width, a->dim, 0};
}

static struct trainMatrix weightsOf(const struct trainAttention *a,
                                    float *saved, int64_t window,
                                    int64_t head) {
  int64_t count = a->context * a->context;
  return trainMatrixMake(saved + (window * a->numHeads + head) * count,
                         a->context, a->context);
}

static float scaleOf(const struct trainAttention *a) {
  int64_t width = a->dim / a->numHeads;
  return 1 / sqrtf((float)width);
}

/* Row t: softmax of its first t + 1 values, and zeros. */
static void softmaxCausal(struct trainMatrix weights) {
  for (int64_t t = 0; t < weights.rows; t++) {
    float *row = weights.data + t * weights.stride;
    float most = row[0];
    for (int64_t i = 1; i <= t; i++)
      most = row[i] > most ? row[i] : most;
    float sum = 0;
    for (int64_t i = 0; i <= t; i++) {
      row[i] = expf(row[i] - most);
      sum += row[i];
    }
    float factor = 1 / sum;
    for (int64_t i = 0; i < weights.columns; i++)
      row[i] = i <= t ? row[i] * factor : 0;
  }
}

void trainAttend(const struct trainAttention *attention, int64_t numWindows,
                 float *qkv, float *saved, float *out) {
  const struct trainAttention *a = attention;
  turnAll(a, numWindows, 1, qkv);
  for (int64_t i = 0; i < numWindows * a->numHeads; i++) {
    int64_t window = i / a->numHeads;
    int64_t head = i % a->numHeads;
    struct trainMatrix weights = weightsOf(a, saved, window, head);
    trainMultiply(scaleOf(a), partOf(a, qkv, window, head, 0),
                  trainMatrixTurn(partOf(a, qkv, window, head, 1)), 0, weights);
    softmaxCausal(weights);
    trainMultiply(1, weights, partOf(a, qkv, window, head, 2), 0,
                  outOf(a, out, window, head));
  }
}

/* d(scores) = weights (d(weights) - sum of weights d(weights)), by row. */
static void softmaxBackward(struct trainMatrix weights, float *scores) {
  for (int64_t t = 0; t < weights.rows; t++) {
    const float *p = weights.data + t * weights.stride;
    float *d = scores + t * weights.columns;
    float sum = 0;
    for (int64_t i = 0; i <= t; i++)
      sum += p[i] * d[i];
    for (int64_t i = 0; i < weights.columns; i++)
      d[i] = p[i] * (d[i] - sum);
  }
}

void trainAttendBackward(const struct trainAttention *attention,
                         int64_t numWindows, float *qkv, float *saved,
                         float *dout, float *dqkv) {
  const struct trainAttention *a = attention;
  struct trainMatrix scores =
      trainMatrixMake(a->scores, a->context, a->context);
  for (int64_t i = 0; i < numWindows * a->numHeads; i++) {
    int64_t window = i / a->numHeads;
    int64_t head = i % a->numHeads;
    struct trainMatrix weights = weightsOf(a, saved, window, head);
    struct trainMatrix d = outOf(a, dout, window, head);
    trainMultiply(1, trainMatrixTurn(weights), d, 0,
                  partOf(a, dqkv, window, head, 2));
    trainMultiply(1, d, trainMatrixTurn(partOf(a, qkv, window, head, 2)), 0,
                  scores);
    softmaxBackward(weights, a->scores);
    trainMultiply(scaleOf(a), scores, partOf(a, qkv, window, head, 1), 0,
                  partOf(a, dqkv, window, head, 0));
    trainMultiply(scaleOf(a), trainMatrixTurn(scores),
                  partOf(a, qkv, window, head, 0), 0,
                  partOf(a, dqkv, window, head, 1));
  }
  turnAll(a, numWindows, -1, dqkv);
}
