/* Gradients against finite differences of the library's own forward, which
 * needs no oracle: loss = <g, y>.
 *
 * y is linear in alpha, so a difference of two forwards is exact but for
 * rounding: every d(alpha) that comes back is checked, of dropped pairs too
 * where the router gradient is exact.  x and the weights enter through the
 * activation: there a random direction is checked, with retention 1. */
#include "collectives/layer.h"
#include "driver.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct oracleCase floatCase(void) {
  struct oracleCase c = oraclePlainCase();
  c.hidden = 32;
  c.ffn = 16;
  c.type = lrmoeFloat32;
  c.retainPpm = 500000;
  c.noneShare = 0.2;
  return c;
}

/* <g, y> of this rank after a forward of a step of its own. */
static int lossOf(struct driver *d, double *loss) {
  struct driver again = *d;
  again.step = NULL;
  again.plan = NULL;
  int failed = driverForward(&again);
  lrmoeStepDestroy(again.step);
  lrmoePlanDestroy(again.plan);
  const struct oracleCase *spec = &d->oracle->spec;
  const float *y = d->y;
  const float *g = d->oracle->ranks[d->self->rank].gf;
  *loss = 0;
  for (int64_t i = 0; i < spec->numTokens[d->self->rank] * spec->hidden; i++)
    *loss += (double)g[i] * y[i];
  return failed;
}

/* Slope of the loss while `values` go along `direction`. */
static int slopeAlong(struct driver *d, int64_t count, float *values,
                      const float *direction, float step, double *slope) {
  double losses[2] = {0, 0};
  for (int64_t i = 0; i < count; i++)
    values[i] += step * direction[i];
  int failed = lossOf(d, &losses[1]);
  for (int64_t i = 0; i < count; i++)
    values[i] -= 2 * step * direction[i];
  failed = failed || lossOf(d, &losses[0]);
  for (int64_t i = 0; i < count; i++)
    values[i] += step * direction[i];
  *slope = (losses[1] - losses[0]) / (2 * (double)step);
  return failed;
}

static int checkSlope(const struct driver *d, const char *what, int64_t index,
                      double got, double want) {
  if (fabs(got - want) <= 2e-3 * (1 + fabs(want))) return 0;
  fprintf(stderr, "rank %d: %s %lld is %g, %g by differences\n", d->self->rank,
          what, (long long)index, got, want);
  return 1;
}

/* Every rank changes one of its alphas at a time; those of others do not touch
 * its loss. */
static int checkAlphas(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  int64_t slots = driverSlots(spec, d->self->rank);
  int64_t most = oracleMostTokens(spec) * spec->topk;
  int64_t numDropped = 0;
  for (int64_t pair = 0; pair < most; pair++) {
    float one = 1;
    float none = 0;
    double slope;
    int isMine = pair < slots && data->topkIdx[pair] >= 0;
    if (slopeAlong(d, isMine, isMine ? data->weights + pair : &none, &one,
                   0.25f, &slope))
      return 1;
    if (!isMine) continue;
    int isExact = d->kept[pair] || d->layer->routerGrad != lrmoeRouterGradKept;
    numDropped += !d->kept[pair];
    if (checkSlope(d, "d(alpha)", pair, d->dWeights[pair], isExact ? slope : 0))
      return 1;
  }
  RANK_TRUE(d->self, numDropped > 0);
  return 0;
}

/* user: a case. */
static int runAlphas(const struct testRank *self) {
  struct driver d;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               driverBackward(&d, NULL, 0) || checkAlphas(&d);
  driverClose(&d);
  return failed;
}

START_TEST(everyAlpha) {
  struct oracleCase c = floatCase();
  for (int i = 0; i < 12; i++) {
    c.routerGrad = (lrmoeRouterGrad_t)(i % 3);
    c.convention = (lrmoeWeightConvention_t)(i / 3 % 2);
    c.numSlots = i / 6;
    c.activation = i % 2 ? lrmoeGelu : lrmoeSwiglu;
    ck_assert_int_eq(testRanksRun(c.numRanks, runAlphas, &c), 0);
  }
}
END_TEST

static void randomDirection(float *direction, int64_t count, uint64_t seed) {
  for (int64_t i = 0; i < count; i++)
    direction[i] = (float)(2 * oracleUniform(seed, 1, (uint64_t)i) - 1);
}

static double dot(const float *a, const float *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += (double)a[i] * b[i];
  return sum;
}

/* A slope of the loss of all ranks. */
static int sumOverRanks(struct driver *d, double *value) {
  double all[16];
  RANK_TRUE(d->self, d->comm->numRanks <= 16);
  RANK_OK(d->self, lrmoeAllGatherHost(d->comm, value, all,
                                      (int64_t)sizeof *value, NULL));
  *value = 0;
  for (int r = 0; r < d->comm->numRanks; r++)
    *value += all[r];
  return 0;
}

static int checkX(struct driver *d) {
  struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  int64_t count =
      d->oracle->spec.numTokens[d->self->rank] * d->oracle->spec.hidden;
  float *direction = calloc((size_t)count, sizeof *direction);
  if (!direction) abort();
  randomDirection(direction, count, 3 + (uint64_t)d->self->rank);
  double slope;
  int failed = slopeAlong(d, count, data->x, direction, 1e-2f, &slope) ||
               checkSlope(d, "dx along a direction", 0,
                          dot(d->dx, direction, count), slope);
  free(direction);
  return failed;
}

/* Expert e's w1 or w2, at home; all ranks feel it. */
static int checkMatrix(struct driver *d, int32_t e, int isW2) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t rows = isW2 ? spec->ffn : oracleFc1Rows(spec);
  int64_t count = rows * spec->hidden;
  int local = 0;
  while (local < d->numLocal && d->local[local] != e)
    local++;
  int isMine = local < d->numLocal;
  float *weights = isW2 ? d->oracle->experts[e].w2 : d->oracle->experts[e].w1;
  float *direction = calloc((size_t)count, sizeof *direction);
  if (!direction) abort();
  randomDirection(direction, count, 40 + (uint64_t)e);
  double slope;
  double got = 0;
  if (isMine) got = dot(isW2 ? d->dw2[local] : d->dw1[local], direction, count);
  int failed =
      slopeAlong(d, isMine ? count : 0, weights, direction, 1e-2f, &slope) ||
      sumOverRanks(d, &slope) || sumOverRanks(d, &got) ||
      checkSlope(d, isW2 ? "dw2 of expert" : "dw1 of expert", e, got, slope);
  free(direction);
  return failed;
}

static int runDirections(const struct testRank *self) {
  struct driver d;
  int failed = driverOpen(&d, self, self->user) || driverForward(&d) ||
               driverBackward(&d, NULL, 1) || checkX(&d);
  for (int32_t e = 0; e < d.oracle->spec.numExperts && !failed; e++)
    failed = checkMatrix(&d, e, 0) || checkMatrix(&d, e, 1);
  driverClose(&d);
  return failed;
}

START_TEST(inputsAndWeights) {
  struct oracleCase c = floatCase();
  c.retainPpm = 1000000;
  for (int i = 0; i < 4; i++) {
    c.activation = (lrmoeActivation_t)(i % 2);
    c.convention = (lrmoeWeightConvention_t)(i / 2);
    ck_assert_int_eq(testRanksRun(c.numRanks, runDirections, &c), 0);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {everyAlpha, inputsAndWeights};
  return suiteRunTests("difference", tests, sizeof tests / sizeof *tests, 600);
}
