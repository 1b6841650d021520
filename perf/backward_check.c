/* moe_backward_perf: are the results of all ways right?
 *
 * The error of a value is its distance from the reference over the largest
 * value of that tensor; it is wrong beyond a few units of the data type's
 * precision.  References: full_pairwise for the ways that keep everything,
 * masked for those that select, and for some tokens a direct computation in
 * double that knows nothing of ranks or messages. */
#include "perf/backward.h"
#include "tools/common/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies of what one way gave. */
struct outcome {
  float *dx;
  float *dWeights;
  float *dw; /* dw1, dw2 of every local expert, one after the other */
};

static void *room(int64_t count) {
  return toolRankRoom(count, sizeof(float));
}

static double toleranceOf(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 1e-4 : type == lrmoeFloat16 ? 4e-3 : 2e-2;
}

static int64_t dwSize(const struct backwardOptions *o) {
  return (backwardFc1Rows(o) + o->ffn) * o->hidden;
}

static void freeOutcome(struct outcome *outcome) {
  free(outcome->dx);
  free(outcome->dWeights);
  free(outcome->dw);
}

static const struct toolMirror *tensorOf(const struct backwardRank *r, int i,
                                         int tensor) {
  return &r->tensors[i * numTensors + tensor];
}

static lrmoeResult_t clearGradients(struct backwardRank *r) {
  for (int i = 0; i < r->numLocal; i++)
    for (int t = tensorDw1; t <= tensorDw2; t++) {
      lrmoeResult_t result = toolMirrorClear(tensorOf(r, i, t));
      if (result != lrmoeSuccess) return result;
    }
  return lrmoeSuccess;
}

/* What the last way gave, to the host. */
static lrmoeResult_t pullResults(const struct backwardRank *r) {
  lrmoeResult_t result = toolMirrorPull(&r->dx);
  if (result == lrmoeSuccess) result = toolMirrorPull(&r->dWeights);
  for (int i = 0; i < r->numLocal; i++)
    for (int t = tensorDw1; t <= tensorDw2 && result == lrmoeSuccess; t++)
      result = toolMirrorPull(tensorOf(r, i, t));
  return result;
}

static enum toolExit runWay(struct backwardRank *r, enum backwardWay way,
                            struct outcome *out) {
  const struct backwardOptions *o = r->options;
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  TOOL_RANK_OK(r->self, clearGradients(r));
  TOOL_RANK_OK(r->self, backwardRunWay(r, way, &stats));
  TOOL_RANK_OK(r->self, lrmoeReplicaReduce(r->layer, NULL));
  TOOL_RANK_OK(r->self, pullResults(r));
  int64_t count = o->numTokens * o->hidden;
  int64_t slots = o->numTokens * o->topk;
  *out =
      (struct outcome){room(count), room(slots), room(r->numLocal * dwSize(o))};
  for (int64_t i = 0; i < count; i++)
    out->dx[i] = toolTensorGet(o->type, r->dx.host, i);
  memcpy(out->dWeights, r->dWeights.host, r->dWeights.bytes);
  for (int i = 0; i < r->numLocal; i++) {
    char *at = (char *)(out->dw + i * dwSize(o));
    const struct toolMirror *dw1 = tensorOf(r, i, tensorDw1);
    const struct toolMirror *dw2 = tensorOf(r, i, tensorDw2);
    memcpy(at, dw1->host, dw1->bytes);
    memcpy(at + dw1->bytes, dw2->host, dw2->bytes);
  }
  return toolGood;
}

static void compare(const struct backwardOptions *o, int64_t count,
                    const float *got, const float *want,
                    struct backwardRankResult *result) {
  double most = 1e-6;
  for (int64_t i = 0; i < count; i++)
    most = fmax(most, fabs((double)want[i]));
  for (int64_t i = 0; i < count; i++) {
    double error = fabs((double)got[i] - want[i]) / most;
    if (!(error <= toleranceOf(o->type))) result->numWrong++;
    if (!(error <= result->maxError)) result->maxError = error;
  }
}

static void compareOutcomes(struct backwardRank *r, const struct outcome *got,
                            const struct outcome *want,
                            struct backwardRankResult *result) {
  const struct backwardOptions *o = r->options;
  compare(o, o->numTokens * o->hidden, got->dx, want->dx, result);
  compare(o, o->numTokens * o->topk, got->dWeights, want->dWeights, result);
  compare(o, r->numLocal * dwSize(o), got->dw, want->dw, result);
}

/* Runs the ways and compares each with the first of them. */
static enum toolExit compareWays(struct backwardRank *r,
                                 const enum backwardWay *ways, int count,
                                 struct backwardRankResult *result) {
  struct outcome reference = {0};
  enum toolExit code = runWay(r, ways[0], &reference);
  for (int i = 1; i < count && code == toolGood; i++) {
    struct outcome got = {0};
    code = runWay(r, ways[i], &got);
    if (code == toolGood && got.dx && reference.dx)
      compareOutcomes(r, &got, &reference, result);
    freeOutcome(&got);
  }
  freeOutcome(&reference);
  return code;
}

/* The matrices of one expert as float, and one pair's vectors. */
struct direct {
  void *raw1;
  void *raw2;
  float *w1;
  float *w2;
  double *fc1;
  double *dFc1;
};

static void loadExpert(const struct backwardOptions *o, int32_t expert,
                       struct direct *d) {
  backwardMakeWeights(o, expert, d->raw1, d->raw2);
  for (int64_t i = 0; i < backwardFc1Rows(o) * o->hidden; i++)
    d->w1[i] = toolTensorGet(o->type, d->raw1, i);
  for (int64_t i = 0; i < o->ffn * o->hidden; i++)
    d->w2[i] = toolTensorGet(o->type, d->raw2, i);
}

static void directForward(const struct backwardOptions *o, const float *x,
                          struct direct *d) {
  for (int64_t i = 0; i < backwardFc1Rows(o); i++) {
    double sum = 0;
    for (int64_t h = 0; h < o->hidden; h++)
      sum += (double)d->w1[i * o->hidden + h] * x[h];
    d->fc1[i] = toolTensorRound(o->type, sum);
  }
}

/* d phi / d fc1, times dPhi. */
static void directActivation(const struct backwardOptions *o, struct direct *d,
                             int64_t f, double dPhi) {
  double z = d->fc1[f];
  if (o->activation == lrmoeSwiglu) {
    double s = 1 / (1 + exp(-z));
    d->dFc1[f] = dPhi * d->fc1[o->ffn + f] * s * (1 + z * (1 - s));
    d->dFc1[o->ffn + f] = dPhi * z * s;
    return;
  }
  double c = 0.7978845608028654; /* sqrt(2 / pi) */
  double t = tanh(c * (z + 0.044715 * z * z * z));
  d->dFc1[f] = dPhi * (0.5 * (1 + t) +
                       0.5 * z * (1 - t * t) * c * (1 + 3 * 0.044715 * z * z));
}

/* Adds one kept pair's share to dx [H]. */
static void directPair(const struct backwardOptions *o, const float *x,
                       const float *g, double alpha, struct direct *d,
                       double *dx) {
  directForward(o, x, d);
  for (int64_t f = 0; f < o->ffn; f++) {
    double dPhi = 0;
    for (int64_t h = 0; h < o->hidden; h++)
      dPhi += (double)g[h] * d->w2[h * o->ffn + f];
    directActivation(o, d, f, alpha * dPhi);
  }
  for (int64_t i = 0; i < backwardFc1Rows(o); i++)
    for (int64_t h = 0; h < o->hidden; h++)
      dx[h] += d->dFc1[i] * d->w1[i * o->hidden + h];
}

/* Computes dx of one token from the kept flags of the last way, and compares.
 */
static void checkToken(struct backwardRank *r, int64_t token, struct direct *d,
                       struct backwardRankResult *result) {
  const struct backwardOptions *o = r->options;
  float *rows = room(4 * o->hidden); /* x, g, got, want */
  double *dx = calloc((size_t)o->hidden, sizeof *dx);
  if (!dx) abort();
  for (int64_t h = 0; h < o->hidden; h++) {
    rows[h] = toolTensorGet(o->type, r->x.host, token * o->hidden + h);
    rows[o->hidden + h] =
        toolTensorGet(o->type, r->g.host, token * o->hidden + h);
    rows[2 * o->hidden + h] =
        toolTensorGet(o->type, r->dx.host, token * o->hidden + h);
  }
  const int64_t *experts = r->topkIdx.host;
  const float *weights = r->weights.host;
  for (int64_t pair = token * o->topk; pair < (token + 1) * o->topk; pair++) {
    if (!r->kept[pair]) continue;
    loadExpert(o, (int32_t)experts[pair], d);
    directPair(o, rows, rows + o->hidden, weights[pair], d, dx);
  }
  for (int64_t h = 0; h < o->hidden; h++)
    rows[3 * o->hidden + h] = (float)dx[h];
  compare(o, o->hidden, rows + 2 * o->hidden, rows + 3 * o->hidden, result);
  free(dx);
  free(rows);
}

static void checkTokens(struct backwardRank *r,
                        struct backwardRankResult *result) {
  const struct backwardOptions *o = r->options;
  int64_t size1 = backwardFc1Rows(o) * o->hidden;
  int64_t size2 = o->ffn * o->hidden;
  struct direct d = {room(size1), room(size2),      room(size1),
                     room(size2), room(4 * o->ffn), room(4 * o->ffn)};
  for (int64_t i = 0; i < o->numChecked && i < o->numTokens; i++)
    checkToken(r, i * o->numTokens / o->numChecked, &d, result);
  free(d.raw1);
  free(d.raw2);
  free(d.w1);
  free(d.w2);
  free(d.fc1);
  free(d.dFc1);
}

enum toolExit backwardCheck(struct backwardRank *r,
                            struct backwardRankResult *result) {
  static const enum backwardWay whole[] = {wayFullPairwise, wayFullDedup,
                                           wayRho1};
  static const enum backwardWay selected[] = {wayMasked, wayPairwise, wayDedup};
  enum toolExit code = compareWays(r, whole, 3, result);
  if (code == toolGood) code = compareWays(r, selected, 3, result);
  if (code == toolGood) checkTokens(r, result);
  if (code == toolGood) TOOL_RANK_OK(r->self, clearGradients(r));
  return code;
}
