/* RMSNorm, embedding, and the loss: see dense.h. */
#include "perf/train/dense.h"

#include <math.h>
#include <string.h>

static const float normEpsilon = 1e-5f;

static float dot(int64_t count, const float *a, const float *b) {
  float sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += a[i] * b[i];
  return sum;
}

void trainNorm(struct trainMatrix x, const float *gain, float *inverse,
               float *y) {
  int64_t dim = x.columns;
  for (int64_t t = 0; t < x.rows; t++) {
    const float *row = x.data + t * x.stride;
    float mean = dot(dim, row, row) / (float)dim;
    float factor = 1 / sqrtf(mean + normEpsilon);
    inverse[t] = factor;
    for (int64_t i = 0; i < dim; i++)
      y[t * dim + i] = row[i] * factor * gain[i];
  }
}

/* With r = inverse, dx = r (gain dy) - x r^3 / dim sum(gain dy x). */
void trainNormBackward(struct trainMatrix x, const float *gain,
                       const float *inverse, const float *dy, float *dgain,
                       float *dx) {
  int64_t dim = x.columns;
  for (int64_t t = 0; t < x.rows; t++) {
    const float *row = x.data + t * x.stride;
    const float *g = dy + t * dim;
    float r = inverse[t];
    float sum = 0;
    for (int64_t i = 0; i < dim; i++)
      sum += gain[i] * g[i] * row[i];
    float back = r * r * r * sum / (float)dim;
    for (int64_t i = 0; i < dim; i++) {
      dgain[i] += g[i] * row[i] * r;
      dx[t * dim + i] += r * gain[i] * g[i] - back * row[i];
    }
  }
}

void trainEmbed(const uint8_t *bytes, const float *table,
                struct trainMatrix x) {
  for (int64_t t = 0; t < x.rows; t++)
    memcpy(x.data + t * x.columns, table + bytes[t] * x.columns,
           (size_t)x.columns * sizeof(float));
}

void trainEmbedBackward(const uint8_t *bytes, struct trainMatrix dx,
                        float *dtable) {
  for (int64_t t = 0; t < dx.rows; t++)
    for (int64_t i = 0; i < dx.columns; i++)
      dtable[bytes[t] * dx.columns + i] += dx.data[t * dx.columns + i];
}

double trainLoss(const uint8_t *targets, float scale,
                 struct trainMatrix logits) {
  double loss = 0;
  for (int64_t t = 0; t < logits.rows; t++) {
    float *row = logits.data + t * logits.columns;
    float most = row[0];
    for (int64_t i = 1; i < logits.columns; i++)
      most = row[i] > most ? row[i] : most;
    loss += (double)most - (double)row[targets[t]];
    double sum = 0;
    for (int64_t i = 0; i < logits.columns; i++) {
      row[i] = expf(row[i] - most);
      sum += (double)row[i];
    }
    loss += log(sum);
    float factor = scale / (float)sum;
    for (int64_t i = 0; i < logits.columns; i++)
      row[i] *= factor;
    row[targets[t]] -= scale;
  }
  return loss;
}
