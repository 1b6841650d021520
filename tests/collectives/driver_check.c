/* Whether one rank's selection and results are right: see driver.h. */
#include "collectives/step.h"
#include "driver.h"
#include "kernels/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of all ranks by pair id; slots without an expert stay 0. */
static int gatherKeys(struct driver *d, uint32_t **all) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t most = oracleMostTokens(spec) * spec->topk;
  *all = oracleZeroed(most * spec->numRanks, sizeof **all);
  uint32_t *mine = oracleZeroed(most, sizeof *mine);
  for (int64_t i = 0; i < d->step->numPairs; i++)
    mine[d->step->sorted[i]] = d->step->keys[i];
  lrmoeResult_t result = lrmoeAllGatherHost(d->comm, mine, *all,
                                            most * (int64_t)sizeof *mine, NULL);
  free(mine);
  RANK_OK(d->self, result);
  return 0;
}

/* Pairs of expert e (of all experts for -1), in ascending pair id. */
static int checkOneSelection(struct driver *d, const uint32_t *all,
                             int64_t expert) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t most = oracleMostTokens(spec) * spec->topk;
  uint32_t *keys = oracleZeroed(most * spec->numRanks, sizeof *keys);
  uint8_t *want = oracleZeroed(most * spec->numRanks, 1);
  uint8_t *got = oracleZeroed(most * spec->numRanks, 1);
  int64_t numPairs = 0;
  for (int r = 0; r < spec->numRanks; r++) {
    for (int64_t p = 0; p < driverSlots(spec, r); p++) {
      int64_t e = d->oracle->ranks[r].topkIdx[p];
      if (e < 0 || (expert >= 0 && e != expert)) continue;
      keys[numPairs] = all[r * most + p];
      got[numPairs++] = d->allKept[r][p];
    }
  }
  int64_t quota = expert >= 0 ? d->plan->quotas[expert] : d->plan->kept;
  oracleSelect(numPairs, keys, quota, want);
  int differs = numPairs && memcmp(want, got, (size_t)numPairs) != 0;
  free(keys);
  free(want);
  free(got);
  RANK_TRUE(d->self, !differs);
  return 0;
}

/* Every instance selects among a stretch of its expert's pairs. */
static int checkInstances(struct driver *d, const uint32_t *all, int32_t e) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct lrmoePlan *plan = d->plan;
  int64_t most = oracleMostTokens(spec) * spec->topk;
  uint32_t *keys = oracleZeroed(most * spec->numRanks, sizeof *keys);
  uint8_t *want = oracleZeroed(most * spec->numRanks, 1);
  uint8_t *got = oracleZeroed(most * spec->numRanks, 1);
  int64_t numPairs = 0;
  for (int r = 0; r < spec->numRanks; r++)
    for (int64_t p = 0; p < driverSlots(spec, r); p++)
      if (d->oracle->ranks[r].topkIdx[p] == e) {
        keys[numPairs] = all[r * most + p];
        got[numPairs++] = d->allKept[r][p];
      }
  int64_t first = 0;
  for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
       i++) {
    oracleSelect(plan->forwardPairs[i], keys + first, plan->keptPairs[i],
                 want + first);
    first += plan->forwardPairs[i];
  }
  int differs = numPairs && memcmp(want, got, (size_t)numPairs) != 0;
  free(keys);
  free(want);
  free(got);
  RANK_TRUE(d->self, !differs);
  return 0;
}

/* Each instance executes its share exactly, and no more pairs moved to it than
 * the plan charges for the worst case. */
static int checkShares(struct driver *d) {
  const struct lrmoeStep *step = d->step;
  const struct lrmoePlan *plan = d->plan;
  if (!lrmoeStepMayMove(step) || step->layer->savedState != lrmoeSavedFull)
    return 0;
  for (int32_t j = 0; j < step->numInstances; j++) {
    int32_t i = step->instances[j];
    int32_t e = lrmoeStepExpert(step, j);
    int64_t kept = plan->keptPairs[i];
    int64_t moved = step->handoff.offsets[j + 1] - step->handoff.offsets[j] -
                    step->handoff.stayed[j];
    int64_t numPairs = 0;
    for (int32_t k = plan->instanceOffsets[e]; k < plan->instanceOffsets[e + 1];
         k++)
      numPairs += plan->forwardPairs[k];
    int64_t sure = plan->quotas[e] - (numPairs - plan->forwardPairs[i]);
    int64_t bound = kept - (sure > 0 ? sure : 0);
    RANK_TRUE(d->self,
              step->handoff.offsets[j + 1] - step->handoff.offsets[j] == kept);
    RANK_TRUE(d->self, moved <= (bound > 0 ? bound : 0));
  }
  return 0;
}

/* The keys are those of the scores, but for rounding of phi. */
static int checkScores(struct driver *d) {
  const struct lrmoeStep *step = d->step;
  if (step->config.metric == lrmoeMetricRandom) return 0;
  double tolerance = d->oracle->spec.type == lrmoeFloat32 ? 1e-4 : 0.05;
  struct oracle *oracle = d->oracle;
  oracle->spec.backward = step->config;
  for (int64_t i = 0; i < step->numPairs; i++) {
    double want = oracleScore(oracle, d->self->rank, step->sorted[i]);
    if (!isfinite(want)) {
      RANK_TRUE(d->self, step->keys[i] == LRMOE_KEY_NON_FINITE);
      continue;
    }
    float got;
    memcpy(&got, &step->keys[i], sizeof got);
    RANK_TRUE(d->self, fabs(got - want) <= tolerance * want + 1e-3);
  }
  return 0;
}

int driverCheckSelection(struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  if (d->step->config.metric == lrmoeMetricAll) {
    for (int64_t p = 0; p < driverSlots(spec, d->self->rank); p++)
      RANK_TRUE(d->self, d->kept[p] ==
                             (d->oracle->ranks[d->self->rank].topkIdx[p] >= 0));
    return 0;
  }
  uint32_t *all = NULL;
  int failed = gatherKeys(d, &all);
  if (!failed && d->step->config.scope == lrmoeScopeLayer)
    failed = checkOneSelection(d, all, -1);
  for (int32_t e = 0; e < spec->numExperts && !failed &&
                      d->step->config.scope == lrmoeScopeExpert;
       e++)
    failed = checkOneSelection(d, all, e);
  for (int32_t e = 0; e < spec->numExperts && !failed &&
                      d->step->config.scope == lrmoeScopeInstance;
       e++)
    failed = checkInstances(d, all, e);
  free(all);
  return failed || checkScores(d) || checkShares(d);
}

static double toleranceOf(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 2e-5 : type == lrmoeFloat16 ? 4e-3 : 3e-2;
}

int driverCompare(struct driver *d, const char *what, int64_t count,
                  const float *got, const double *want) {
  double most = 1e-3;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(want[i]) && fabs(want[i]) > most) most = fabs(want[i]);
  double limit = most * toleranceOf(d->oracle->spec.type);
  for (int64_t i = 0; i < count; i++) {
    int isFine =
        isfinite(want[i]) ? fabs(got[i] - want[i]) <= limit : !isfinite(got[i]);
    if (isFine) continue;
    fprintf(stderr, "seed %llu, rank %d: %s[%lld] is %g, %g expected\n",
            (unsigned long long)d->oracle->spec.seed, d->self->rank, what,
            (long long)i, (double)got[i], want[i]);
    return 1;
  }
  return 0;
}

static int compareRows(struct driver *d, const char *what, const void *rows,
                       const double *want) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t count = spec->numTokens[d->self->rank] * spec->hidden;
  float *got = oracleZeroed(count, sizeof *got);
  oracleConvert(spec->type, rows, lrmoeFloat32, count, got);
  int failed = driverCompare(d, what, count, got, want);
  free(got);
  return failed;
}

/* Exact zeros where nothing was kept; NaN where an overflow was dropped. */
static void expectDropped(struct driver *d, struct oracleResult *want) {
  const struct lrmoeStep *step = d->step;
  if (step->config.metric == lrmoeMetricAll) return;
  for (int64_t i = 0; i < step->numPairs; i++) {
    int64_t pair = step->sorted[i];
    if (step->keys[i] != LRMOE_KEY_NON_FINITE || d->kept[pair]) continue;
    for (int64_t h = 0; h < d->oracle->spec.hidden; h++)
      want->dx[step->sortedTokens[i] * d->oracle->spec.hidden + h] = NAN;
  }
}

static int checkZeros(struct driver *d, const struct oracleResult *want) {
  const struct oracleCase *spec = &d->oracle->spec;
  size_t rowBytes = (size_t)spec->hidden * lrmoeTypeBytes(spec->type);
  unsigned char *zero = oracleZeroed((int64_t)rowBytes, 1);
  int failed = 0;
  for (int64_t t = 0; t < spec->numTokens[d->self->rank] && !failed; t++) {
    int numKept = 0;
    for (int32_t slot = 0; slot < spec->topk; slot++) {
      int64_t pair = t * spec->topk + slot;
      numKept += d->kept[pair];
      if (!d->kept[pair] && d->dWeights[pair] != 0 &&
          spec->routerGrad == lrmoeRouterGradKept)
        failed = 1;
    }
    const char *row = (const char *)d->dx + (size_t)t * rowBytes;
    if (!numKept && isfinite(want->dx[t * spec->hidden]) &&
        memcmp(row, zero, rowBytes))
      failed = 1;
  }
  free(zero);
  RANK_TRUE(d->self, !failed);
  return 0;
}

static void addTo(double *sums, const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    sums[i] += values[i];
}

/* Compares the weight gradients, or adds the oracle's to the sums. */
static int checkGradients(struct driver *d, const struct oracleResult *want) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t w1 = oracleFc1Rows(spec) * spec->hidden;
  int64_t w2 = spec->hidden * spec->ffn;
  for (int i = 0; i < d->numLocal; i++) {
    const double *want1 = want->dw1[d->local[i]];
    const double *want2 = want->dw2[d->local[i]];
    if (d->sums1) {
      addTo(d->sums1[i], want1, w1);
      addTo(d->sums2[i], want2, w2);
    } else if (driverCompare(d, "dw1", w1, d->dw1[i], want1) ||
               driverCompare(d, "dw2", w2, d->dw2[i], want2)) {
      return 1;
    }
  }
  return 0;
}

/* d(alpha) is often a small difference of large terms: of these, one unit of
 * the type's precision is allowed beside what other values are. */
static int checkWeights(struct driver *d, const struct oracleResult *want) {
  const struct oracleCase *spec = &d->oracle->spec;
  double unit = spec->type == lrmoeFloat32   ? 0x1p-22
                : spec->type == lrmoeFloat16 ? 0x1p-11
                                             : 0x1p-8;
  int64_t count = driverSlots(spec, d->self->rank);
  float *near = oracleZeroed(count, sizeof *near);
  for (int64_t i = 0; i < count; i++) {
    int isRounded =
        fabs(d->dWeights[i] - want->dWeights[i]) <= unit * want->terms[i];
    near[i] = isRounded ? (float)want->dWeights[i] : d->dWeights[i];
  }
  int failed = driverCompare(d, "dWeights", count, near, want->dWeights);
  free(near);
  return failed;
}

int driverCheckResults(struct driver *d) {
  struct oracleResult *want =
      oracleCompute(d->oracle, d->self->rank, d->allKept);
  expectDropped(d, want);
  int failed = compareRows(d, "y", d->y, want->y) ||
               compareRows(d, "dx", d->dx, want->dx) || checkWeights(d, want) ||
               checkZeros(d, want) || checkGradients(d, want);
  oracleResultFree(d->oracle, want);
  return failed;
}
