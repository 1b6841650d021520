/* The layer in a training loop: backward, replica gradients home, the host
 * optimizer, weights back out, the next version.  Every iteration is compared
 * with the oracle on the weights that the optimizer gave, so a replica with old
 * weights, a gradient lost on its way home or one counted twice shows.  And
 * what a step holds between combine and select. */
#include "collectives/layer.h"
#include "collectives/step.h"
#include "driver.h"
#include "kernels/rows.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct oracleCase trainingCase(void) {
  struct oracleCase c = oraclePlainCase();
  c.hidden = 32;
  c.ffn = 16;
  c.numSlots = 2;
  return c;
}

static int64_t countOf(const struct driver *d, int tensor) {
  const struct oracleCase *spec = &d->oracle->spec;
  return spec->hidden * (tensor ? spec->ffn : oracleFc1Rows(spec));
}

static int openOptimizer(const struct driver *d,
                         lrmoeHostOptimizer_t *optimizer) {
  const int64_t elements[] = {countOf(d, 0), countOf(d, 1)};
  lrmoeHostOptimizerConfig_t config = LRMOE_HOST_OPTIMIZER_CONFIG_INITIALIZER;
  config.tensorElements = elements;
  config.numTensors = 2;
  config.numExperts = d->numLocal;
  config.numThreads = 2;
  const void **weights = calloc(2 * (size_t)d->numLocal + 1, sizeof *weights);
  if (!weights) abort();
  for (int i = 0; i < d->numLocal; i++) {
    weights[2 * i] = d->oracle->experts[d->local[i]].w1;
    weights[2 * i + 1] = d->oracle->experts[d->local[i]].w2;
  }
  lrmoeResult_t result = lrmoeHostOptimizerCreate(&config, d->oracle->spec.type,
                                                  weights, optimizer);
  free(weights);
  RANK_OK(d->self, result);
  return 0;
}

/* Expert e's tensor as its home has it now, to this rank's oracle. */
static int shareTensor(struct driver *d, int32_t e, int tensor) {
  const struct oracleCase *spec = &d->oracle->spec;
  struct oracleWeights *w = &d->oracle->experts[e];
  void *raw = tensor ? w->w2 : w->w1;
  int64_t count = countOf(d, tensor);
  int64_t bytes = count * (int64_t)lrmoeTypeBytes(spec->type);
  char *all = oracleZeroed(bytes * spec->numRanks, 1);
  lrmoeResult_t result = lrmoeAllGatherHost(d->comm, raw, all, bytes, NULL);
  memcpy(raw, all + d->oracle->homes[e] * bytes, (size_t)bytes);
  free(all);
  RANK_OK(d->self, result);
  oracleConvert(spec->type, raw, lrmoeFloat32, count, tensor ? w->w2f : w->w1f);
  return 0;
}

static int pushTensor(struct driver *d, lrmoeHostOptimizer_t optimizer, int i,
                      int tensor) {
  RANK_OK(d->self, lrmoeHostOptimizerPush(optimizer, i, tensor,
                                          tensor ? d->dw2[i] : d->dw1[i],
                                          countOf(d, tensor)));
  return 0;
}

static int pullTensor(struct driver *d, lrmoeHostOptimizer_t optimizer, int i,
                      int tensor) {
  struct oracleWeights *w = &d->oracle->experts[d->local[i]];
  RANK_OK(d->self,
          lrmoeHostOptimizerPull(optimizer, i, tensor, d->oracle->spec.type,
                                 tensor ? w->w2 : w->w1));
  return 0;
}

/* One optimizer step; the layer computes with the new weights from here on. */
static int updateWeights(struct driver *d, lrmoeHostOptimizer_t optimizer) {
  int failed = 0;
  int32_t isSkipped = 1;
  for (int i = 0; i < 2 * d->numLocal && !failed; i++)
    failed = pushTensor(d, optimizer, i / 2, i % 2);
  if (failed) return 1;
  RANK_OK(d->self, lrmoeHostOptimizerStep(optimizer, 0.05, 1, &isSkipped));
  RANK_TRUE(d->self, !isSkipped);
  for (int i = 0; i < 2 * d->numLocal && !failed; i++)
    failed = pullTensor(d, optimizer, i / 2, i % 2);
  for (int i = 0; i < 2 * d->oracle->spec.numExperts && !failed; i++)
    failed = shareTensor(d, i / 2, i % 2);
  if (failed) return 1;
  RANK_OK(d->self, lrmoeLayerAdvanceVersion(d->layer));
  return 0;
}

/* A step of its own data, on the oracle that has the weights of now. */
static int trainOnce(struct driver *base, uint64_t seed, double *before) {
  struct driver d = *base;
  d.step = NULL;
  d.plan = NULL;
  d.numPlans = (int)seed;
  int failed = driverForward(&d) || driverBackward(&d, NULL, (int)seed % 2) ||
               driverCheckSelection(&d) || driverCheckResults(&d);
  const struct oracleWeights *w = &d.oracle->experts[0];
  double change = 0;
  for (int64_t i = 0; i < countOf(&d, 0); i++)
    change += fabs(w->w1f[i]);
  if (change == *before) failed = 1;
  *before = change;
  lrmoeStepDestroy(d.step);
  lrmoePlanDestroy(d.plan);
  return failed;
}

static int runTraining(const struct testRank *self) {
  struct driver d;
  lrmoeHostOptimizer_t optimizer = NULL;
  double before = 0;
  int failed =
      driverOpen(&d, self, self->user) || openOptimizer(&d, &optimizer);
  for (uint64_t i = 0; i < 5 && !failed; i++)
    failed = trainOnce(&d, i, &before) || updateWeights(&d, optimizer);
  lrmoeHostOptimizerDestroy(optimizer);
  driverClose(&d);
  return failed;
}

START_TEST(fiveUpdates) {
  struct oracleCase c = trainingCase();
  ck_assert_int_eq(testRanksRun(c.numRanks, runTraining, &c), 0);
  c.savedState = lrmoeSavedNone;
  c.convention = lrmoeWeightPre;
  ck_assert_int_eq(testRanksRun(c.numRanks, runTraining, &c), 0);
}
END_TEST

/* Bytes of rows that the step holds, and what it says that it holds. */
static int holdOnce(struct driver *d, int64_t *rows, int64_t *said) {
  if (driverForward(d)) return 1;
  *rows = (int64_t)(d->step->blocks[lrmoeBlockSaved].bytes +
                    d->step->blocks[lrmoeBlockXRows].bytes);
  if (driverBackward(d, NULL, 0)) return 1;
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  *said = stats.savedBytes;
  return 0;
}

/* Two layers on one communicator, which differ in what they save. */
static int runHolding(const struct testRank *self) {
  int64_t rows[2] = {0, 0};
  int64_t said[2] = {0, 0};
  struct driver d[2];
  struct driverLayer options = {NULL, 1, 0};
  struct oracleCase c = trainingCase();
  c.hidden = 512;
  c.ffn = 256;
  c.numSlots = 0;
  int numOpen = 0;
  int failed = 0;
  while (numOpen < 2 && !failed) {
    c.savedState = (lrmoeSavedState_t)numOpen;
    options.comm = numOpen ? d[0].comm : NULL;
    failed = driverOpenLayer(&d[numOpen++], self, &c, &options);
  }
  for (int i = 0; i < 2 && !failed; i++)
    failed = holdOnce(&d[i], &rows[i], &said[i]);
  while (numOpen > 0)
    driverClose(&d[--numOpen]);
  if (failed) return 1;
  RANK_TRUE(self, rows[lrmoeSavedFull] > 0 && rows[lrmoeSavedNone] == 0);
  /* Buffers have an eighth more room than was asked for. */
  RANK_TRUE(self, 8 * rows[lrmoeSavedFull] <= 9 * said[lrmoeSavedFull]);
  RANK_TRUE(self, 50 * said[lrmoeSavedNone] <= said[lrmoeSavedFull]);
  return 0;
}

START_TEST(whatIsHeldForBackward) {
  ck_assert_int_eq(testRanksRun(3, runHolding, NULL), 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {fiveUpdates, whatIsHeldForBackward};
  return suiteRunTests("training", tests, sizeof tests / sizeof *tests, 600);
}
