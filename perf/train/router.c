/* The router: see router.h. */
#include "perf/train/router.h"

#include <math.h>

static void softmax(int64_t count, float *row) {
  float most = row[0];
  for (int64_t i = 1; i < count; i++)
    most = row[i] > most ? row[i] : most;
  float sum = 0;
  for (int64_t i = 0; i < count; i++) {
    row[i] = expf(row[i] - most);
    sum += row[i];
  }
  for (int64_t i = 0; i < count; i++)
    row[i] /= sum;
}

static int isChosen(const int64_t *experts, int64_t count, int64_t expert) {
  for (int64_t j = 0; j < count; j++)
    if (experts[j] == expert) return 1;
  return 0;
}

/* The best that is not among the first `count` chosen. */
static int64_t bestOf(const float *row, int64_t numExperts,
                      const int64_t *experts, int64_t count) {
  int64_t best = -1;
  for (int64_t e = 0; e < numExperts; e++)
    if ((best < 0 || row[e] > row[best]) && !isChosen(experts, count, e))
      best = e;
  return best;
}

void trainRoute(const struct trainRouting *routing) {
  int64_t k = routing->topk;
  for (int64_t t = 0; t < routing->numTokens; t++) {
    float *row = routing->probabilities + t * routing->numExperts;
    int64_t *experts = routing->experts + t * k;
    float *weights = routing->weights + t * k;
    float sum = 0;
    softmax(routing->numExperts, row);
    for (int64_t j = 0; j < k; j++) {
      experts[j] = bestOf(row, routing->numExperts, experts, j);
      weights[j] = row[experts[j]];
      sum += weights[j];
    }
    for (int64_t j = 0; j < k; j++)
      weights[j] /= sum;
  }
}

void trainRouteMass(const struct trainRouting *routing, double *mass) {
  for (int64_t e = 0; e < routing->numExperts; e++)
    mass[e] = 0;
  for (int64_t t = 0; t < routing->numTokens; t++)
    for (int64_t e = 0; e < routing->numExperts; e++)
      mass[e] += (double)routing->probabilities[t * routing->numExperts + e];
}

void trainRouteBackward(const struct trainRouting *routing,
                        const float *dweights, const float *pulls,
                        float *dlogits) {
  int64_t k = routing->topk;
  for (int64_t t = 0; t < routing->numTokens; t++) {
    const float *p = routing->probabilities + t * routing->numExperts;
    const float *alpha = routing->weights + t * k;
    const float *dalpha = dweights + t * k;
    float *d = dlogits + t * routing->numExperts;
    float mean = 0, pull = 0;
    for (int64_t j = 0; j < k; j++)
      mean += alpha[j] * dalpha[j];
    for (int64_t e = 0; e < routing->numExperts; e++)
      pull += p[e] * pulls[e];
    for (int64_t e = 0; e < routing->numExperts; e++)
      d[e] = p[e] * (pulls[e] - pull);
    for (int64_t j = 0; j < k; j++)
      d[routing->experts[t * k + j]] += alpha[j] * (dalpha[j] - mean);
  }
}
