/* The oracle: see oracle.h. */
#include "oracle.h"

#include "base/hash.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double oracleUniform(uint64_t seed, uint64_t stream, uint64_t index) {
  uint64_t mixed = lrmoeMix(seed * 0x9e3779b97f4a7c15u + lrmoeMix(stream + 1));
  return (double)(lrmoeMix(mixed + index) >> 11) * 0x1p-53;
}

void *oracleZeroed(int64_t count, size_t bytes) {
  void *block = calloc((size_t)(count > 0 ? count : 1), bytes);
  if (!block) abort();
  return block;
}

void oracleConvert(lrmoeDataType_t from, const void *in, lrmoeDataType_t to,
                   int64_t count, void *out) {
  const struct lrmoeRowKernels *kernels = NULL;
  if (lrmoeRowKernelsGet(&kernels) != lrmoeSuccess) abort();
  const struct lrmoeRows row = {in, NULL, from, count};
  if (count) kernels->gather(&row, 1, to, out);
}

static float roundTo(lrmoeDataType_t type, double value) {
  float in[8] = {(float)value};
  float out[8];
  uint32_t raw[8];
  oracleConvert(lrmoeFloat32, in, type, 8, raw);
  oracleConvert(type, raw, lrmoeFloat32, 8, out);
  return out[0];
}

/* Random values in the case's type, and the same as fp32. */
static void makeMatrix(const struct oracleCase *spec, uint64_t stream,
                       int64_t count, double scale, void **raw, float **real) {
  float *values = oracleZeroed(count, sizeof *values);
  for (int64_t i = 0; i < count; i++)
    values[i] =
        (float)(scale *
                (2 * oracleUniform(spec->seed, stream, (uint64_t)i) - 1));
  *raw = oracleZeroed(count, sizeof(float));
  oracleConvert(lrmoeFloat32, values, spec->type, count, *raw);
  oracleConvert(spec->type, *raw, lrmoeFloat32, count, values);
  *real = values;
}

static int isTaken(const int64_t *row, int32_t slot, int64_t expert) {
  for (int32_t i = 0; i < slot; i++)
    if (row[i] == expert) return 1;
  return 0;
}

static int64_t chooseExpert(const struct oracleCase *spec, const int64_t *row,
                            int32_t slot, uint64_t stream, uint64_t index) {
  if (slot == 0 && spec->hotExpert >= 0) return spec->hotExpert;
  if (oracleUniform(spec->seed, stream + 1, index) < spec->noneShare) return -1;
  int32_t numFree = spec->numExperts - (spec->unusedExpert >= 0);
  if (slot >= numFree) return -1;
  /* The square makes low experts popular. */
  double u = oracleUniform(spec->seed, stream, index);
  int64_t expert = (int64_t)(u * u * spec->numExperts);
  while (expert == spec->unusedExpert || isTaken(row, slot, expert))
    expert = (expert + 1) % spec->numExperts;
  return expert;
}

static void makeRouting(const struct oracleCase *spec, int rank,
                        struct oracleRank *out) {
  int64_t numSlots = spec->numTokens[rank] * spec->topk;
  uint64_t stream = 1000 + 16 * (uint64_t)rank;
  out->topkIdx = oracleZeroed(numSlots, sizeof *out->topkIdx);
  out->weights = oracleZeroed(numSlots, sizeof *out->weights);
  for (int64_t i = 0; i < numSlots; i++) {
    int32_t slot = (int32_t)(i % spec->topk);
    out->topkIdx[i] =
        chooseExpert(spec, out->topkIdx + i - slot, slot, stream, (uint64_t)i);
    out->weights[i] =
        spec->equalScores > 0
            ? 0.5f
            : (float)oracleUniform(spec->seed, stream + 2, (uint64_t)i);
  }
}

/* Inf and NaN in the first tokens' gradients. */
static void poison(const struct oracleCase *spec, struct oracleRank *rank,
                   int64_t numTokens) {
  for (int64_t t = 0; t < numTokens && t < spec->numPoison; t++)
    rank->gf[t * spec->hidden + t % spec->hidden] = t % 2 ? NAN : INFINITY;
  oracleConvert(lrmoeFloat32, rank->gf, spec->type, numTokens * spec->hidden,
                rank->g);
}

static void makeRank(const struct oracleCase *spec, int rank,
                     struct oracleRank *out) {
  int64_t numTokens = spec->numTokens[rank];
  int64_t count = numTokens * spec->hidden;
  uint64_t stream = 2000 + 16 * (uint64_t)rank;
  makeRouting(spec, rank, out);
  makeMatrix(spec, stream, count, 1, &out->x, &out->xf);
  makeMatrix(spec, stream + 1, count, 1, &out->g, &out->gf);
  for (int64_t i = spec->hidden; i < count && spec->equalScores > 0; i++)
    out->gf[i] = out->gf[i - spec->hidden];
  for (int64_t i = spec->hidden; i < count && spec->equalScores > 0; i++)
    out->xf[i] = out->xf[i - spec->hidden];
  oracleConvert(lrmoeFloat32, out->xf, spec->type, count, out->x);
  poison(spec, out, numTokens);
}

int64_t oracleMostTokens(const struct oracleCase *spec) {
  int64_t most = 1;
  for (int r = 0; r < spec->numRanks; r++)
    if (spec->numTokens[r] > most) most = spec->numTokens[r];
  return most;
}

int64_t oracleFc1Rows(const struct oracleCase *spec) {
  return spec->activation == lrmoeSwiglu ? 2 * spec->ffn : spec->ffn;
}

struct oracle *oracleMake(const struct oracleCase *spec) {
  struct oracle *oracle = oracleZeroed(1, sizeof *oracle);
  oracle->spec = *spec;
  oracle->ranks = oracleZeroed(spec->numRanks, sizeof *oracle->ranks);
  oracle->experts = oracleZeroed(spec->numExperts, sizeof *oracle->experts);
  oracle->homes = oracleZeroed(spec->numExperts, sizeof *oracle->homes);
  struct oracleCase data = *spec;
  if (spec->dataSeed) data.seed = spec->dataSeed;
  for (int r = 0; r < spec->numRanks; r++)
    makeRank(&data, r, &oracle->ranks[r]);
  for (int32_t e = 0; e < spec->numExperts; e++) {
    struct oracleWeights *w = &oracle->experts[e];
    double scale = 1.5 / sqrt((double)spec->hidden);
    makeMatrix(spec, 10 + 4 * (uint64_t)e, oracleFc1Rows(spec) * spec->hidden,
               scale, &w->w1, &w->w1f);
    makeMatrix(spec, 11 + 4 * (uint64_t)e, spec->hidden * spec->ffn,
               1.5 / sqrt((double)spec->ffn), &w->w2, &w->w2f);
    oracle->homes[e] =
        spec->isHomesMixed
            ? (int32_t)(oracleUniform(spec->seed, 5, (uint64_t)e) *
                        spec->numRanks)
            : (int32_t)((int64_t)e * spec->numRanks / spec->numExperts);
  }
  return oracle;
}

void oracleFree(struct oracle *oracle) {
  for (int r = 0; r < oracle->spec.numRanks; r++) {
    struct oracleRank *rank = &oracle->ranks[r];
    free(rank->topkIdx);
    free(rank->weights);
    free(rank->x);
    free(rank->g);
    free(rank->xf);
    free(rank->gf);
  }
  for (int32_t e = 0; e < oracle->spec.numExperts; e++) {
    free(oracle->experts[e].w1);
    free(oracle->experts[e].w2);
    free(oracle->experts[e].w1f);
    free(oracle->experts[e].w2f);
  }
  free(oracle->ranks);
  free(oracle->experts);
  free(oracle->homes);
  free(oracle);
}

/* One pair's forward values and room for its backward. */
struct pairState {
  double *fc1;  /* [2F or F], rounded to the type */
  double *phi;  /* [F] act(fc1); rounded with `post` */
  double *fed;  /* [F] what FC2 consumes, without alpha with `post` */
  double *gPhi; /* [F] */
  double *dFc1; /* [2F or F] */
};

static struct pairState makeState(const struct oracleCase *spec) {
  return (struct pairState){oracleZeroed(2 * spec->ffn, sizeof(double)),
                            oracleZeroed(spec->ffn, sizeof(double)),
                            oracleZeroed(spec->ffn, sizeof(double)),
                            oracleZeroed(spec->ffn, sizeof(double)),
                            oracleZeroed(2 * spec->ffn, sizeof(double))};
}

static void freeState(struct pairState *s) {
  free(s->fc1);
  free(s->phi);
  free(s->fed);
  free(s->gPhi);
  free(s->dFc1);
}

static double sigmoid(double z) {
  return 1 / (1 + exp(-z));
}

static const double geluScale = 0.7978845608028654; /* sqrt(2 / pi) */

static double geluOf(double z) {
  return 0.5 * z * (1 + tanh(geluScale * (z + 0.044715 * z * z * z)));
}

static double geluSlope(double z) {
  double t = tanh(geluScale * (z + 0.044715 * z * z * z));
  return 0.5 * (1 + t) +
         0.5 * z * (1 - t * t) * geluScale * (1 + 3 * 0.044715 * z * z);
}

static void pairForward(const struct oracleCase *spec,
                        const struct oracleWeights *w, const float *x,
                        double alpha, struct pairState *s) {
  int64_t hidden = spec->hidden;
  int64_t ffn = spec->ffn;
  for (int64_t i = 0; i < oracleFc1Rows(spec); i++) {
    double sum = 0;
    for (int64_t h = 0; h < hidden; h++)
      sum += (double)w->w1f[i * hidden + h] * x[h];
    s->fc1[i] = roundTo(spec->type, sum);
  }
  for (int64_t f = 0; f < ffn; f++) {
    double phi = spec->activation == lrmoeSwiglu
                     ? s->fc1[f] * sigmoid(s->fc1[f]) * s->fc1[ffn + f]
                     : geluOf(s->fc1[f]);
    int isPre = spec->convention == lrmoeWeightPre;
    s->phi[f] = isPre ? phi : roundTo(spec->type, phi);
    s->fed[f] = isPre ? roundTo(spec->type, alpha * phi) : s->phi[f];
  }
}

/* Adds one kept pair to the gradients; dw NULL: not wanted.  Returns
 * d(alpha). */
static double pairBackward(const struct oracle *oracle,
                           const struct oracleWeights *w, const float *x,
                           const float *g, double alpha, struct pairState *s,
                           double *dx, double *dw1, double *dw2) {
  const struct oracleCase *spec = &oracle->spec;
  int64_t hidden = spec->hidden;
  int64_t ffn = spec->ffn;
  double outer = spec->convention == lrmoeWeightPre ? 1 : alpha;
  double dAlpha = 0;
  for (int64_t f = 0; f < ffn; f++) {
    s->gPhi[f] = 0;
    for (int64_t h = 0; h < hidden; h++)
      s->gPhi[f] += (double)g[h] * w->w2f[h * ffn + f];
    dAlpha += s->gPhi[f] * s->phi[f];
    double z = s->fc1[f];
    double dPhi = alpha * s->gPhi[f];
    if (spec->activation == lrmoeGelu) {
      s->dFc1[f] = dPhi * geluSlope(z);
    } else {
      double sz = sigmoid(z);
      s->dFc1[f] = dPhi * s->fc1[ffn + f] * sz * (1 + z * (1 - sz));
      s->dFc1[ffn + f] = dPhi * z * sz;
    }
  }
  for (int64_t i = 0; dx && i < oracleFc1Rows(spec); i++)
    for (int64_t h = 0; h < hidden; h++)
      dx[h] += s->dFc1[i] * w->w1f[i * hidden + h];
  for (int64_t i = 0; dw1 && i < oracleFc1Rows(spec); i++)
    for (int64_t h = 0; h < hidden; h++)
      dw1[i * hidden + h] += s->dFc1[i] * x[h];
  for (int64_t h = 0; dw2 && h < hidden; h++)
    for (int64_t f = 0; f < ffn; f++)
      dw2[h * ffn + f] += outer * g[h] * s->fed[f];
  return dAlpha;
}

/* Below this, fp16 has fewer digits: rounding is relative to it. */
static const double smallestNormal = 0x1p-14;

/* Adds one pair's output to y, and to *terms what its d(alpha) is a sum of. */
static void addOutput(const struct oracleCase *spec,
                      const struct oracleWeights *w, double alpha,
                      const struct pairState *s, const float *g, double *y,
                      double *terms) {
  int isPre = spec->convention == lrmoeWeightPre;
  for (int64_t h = 0; h < spec->hidden; h++) {
    double output = 0;
    double size = 1;
    for (int64_t f = 0; f < spec->ffn; f++) {
      output += w->w2f[h * spec->ffn + f] * s->fed[f];
      size += fabs((double)w->w2f[h * spec->ffn + f]);
    }
    y[h] += isPre ? output : alpha * output;
    double term = fabs(g[h]) * (fabs(output) + size * smallestNormal);
    *terms += isPre ? term / alpha : term;
  }
}

static void computePair(const struct oracle *oracle, int rank, int source,
                        int64_t pair, const uint8_t *kept, struct pairState *s,
                        struct oracleResult *result) {
  const struct oracleCase *spec = &oracle->spec;
  const struct oracleRank *data = &oracle->ranks[source];
  int64_t e = data->topkIdx[pair];
  int isMine = source == rank;
  if (e < 0 || (!isMine && (oracle->homes[e] != rank || !kept[pair]))) return;
  int64_t row = pair / spec->topk * spec->hidden;
  const struct oracleWeights *w = &oracle->experts[e];
  double alpha = data->weights[pair];
  pairForward(spec, w, data->xf + row, alpha, s);
  if (isMine)
    addOutput(spec, w, alpha, s, data->gf + row, result->y + row,
              &result->terms[pair]);
  if (!kept[pair] && spec->routerGrad != lrmoeRouterGradKept && isMine)
    result->dWeights[pair] = pairBackward(
        oracle, w, data->xf + row, data->gf + row, alpha, s, NULL, NULL, NULL);
  if (!kept[pair]) return;
  double dAlpha = pairBackward(oracle, w, data->xf + row, data->gf + row, alpha,
                               s, isMine ? result->dx + row : NULL,
                               result->dw1[e], result->dw2[e]);
  if (isMine) result->dWeights[pair] = dAlpha;
}

struct oracleResult *oracleCompute(const struct oracle *oracle, int rank,
                                   uint8_t *const *kept) {
  const struct oracleCase *spec = &oracle->spec;
  struct oracleResult *result = oracleZeroed(1, sizeof *result);
  int64_t count = spec->numTokens[rank] * spec->hidden;
  result->y = oracleZeroed(count, sizeof(double));
  result->dx = oracleZeroed(count, sizeof(double));
  result->dWeights =
      oracleZeroed(spec->numTokens[rank] * spec->topk, sizeof(double));
  result->terms =
      oracleZeroed(spec->numTokens[rank] * spec->topk, sizeof(double));
  result->dw1 = oracleZeroed(spec->numExperts, sizeof *result->dw1);
  result->dw2 = oracleZeroed(spec->numExperts, sizeof *result->dw2);
  for (int32_t e = 0; e < spec->numExperts; e++) {
    if (oracle->homes[e] != rank) continue;
    result->dw1[e] =
        oracleZeroed(oracleFc1Rows(spec) * spec->hidden, sizeof(double));
    result->dw2[e] = oracleZeroed(spec->hidden * spec->ffn, sizeof(double));
  }
  struct pairState s = makeState(spec);
  for (int source = 0; source < spec->numRanks; source++)
    for (int64_t p = 0; p < spec->numTokens[source] * spec->topk; p++)
      computePair(oracle, rank, source, p, kept[source], &s, result);
  freeState(&s);
  return result;
}

double oracleScore(const struct oracle *oracle, int rank, int64_t pair) {
  const struct oracleCase *spec = &oracle->spec;
  const struct oracleRank *data = &oracle->ranks[rank];
  int64_t row = pair / spec->topk * spec->hidden;
  double norm1 = 0;
  double norm2 = 0;
  for (int64_t h = 0; h < spec->hidden; h++) {
    norm1 += fabs((double)data->gf[row + h]);
    norm2 += (double)data->gf[row + h] * data->gf[row + h];
  }
  if (spec->backward.metric == lrmoeMetricGrad1) return norm1;
  if (spec->backward.metric == lrmoeMetricGrad2) return sqrt(norm2);
  if (spec->backward.metric != lrmoeMetricLrm) return 0;
  struct pairState s = makeState(spec);
  pairForward(spec, &oracle->experts[data->topkIdx[pair]], data->xf + row,
              data->weights[pair], &s);
  double fed = 0;
  for (int64_t f = 0; f < spec->ffn; f++)
    fed += s.fed[f] * s.fed[f];
  freeState(&s);
  double outer = spec->convention == lrmoeWeightPre ? 1 : data->weights[pair];
  return outer * sqrt(norm2) * sqrt(fed);
}

void oracleResultFree(const struct oracle *oracle,
                      struct oracleResult *result) {
  for (int32_t e = 0; e < oracle->spec.numExperts; e++) {
    free(result->dw1[e]);
    free(result->dw2[e]);
  }
  free(result->dw1);
  free(result->dw2);
  free(result->y);
  free(result->dx);
  free(result->dWeights);
  free(result->terms);
  free(result);
}

/* Quadratic on purpose: the rank of a key, counted. */
void oracleSelect(int64_t numPairs, const uint32_t *keys, int64_t quota,
                  uint8_t *kept) {
  for (int64_t i = 0; i < numPairs; i++) {
    int64_t better = 0;
    for (int64_t j = 0; j < numPairs; j++)
      better += keys[j] > keys[i] || (keys[j] == keys[i] && j < i);
    kept[i] = better < quota;
  }
}
