/* The library's own backward: see hint_case.h. */
#include "hint_case.h"

#include "collectives/driver.h"
#include "collectives/step.h"
#include "support/program.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* alpha is a power of two, so that alpha times a row is exact. */
static void adjust(struct driver *d, const struct hintCase *shared) {
  for (int r = 0; r < hintCaseRanks; r++) {
    struct oracleRank *data = &d->oracle->ranks[r];
    int64_t slots = driverSlots(&shared->spec, r);
    for (int64_t i = 0; i < slots; i++) {
      if (shared->spec.convention == lrmoeWeightPost)
        data->weights[i] = ldexpf(1, (int)(i % 3) - 2);
      if (shared->isUniform) data->topkIdx[i] = i % hintCaseExperts;
    }
  }
}

/* The row that a framework sends: g, times alpha where that weighs outputs. */
static void sendRow(const struct driver *d, const struct lrmoeStep *step,
                    int64_t i, unsigned char *out) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t hidden = spec->hidden;
  const float *g =
      d->oracle->ranks[d->self->rank].gf + step->sortedTokens[i] * hidden;
  float scale =
      spec->convention == lrmoeWeightPost ? step->sortedWeights[i] : 1;
  float row[hintCaseMaxRowBytes / 2];
  for (int64_t j = 0; j < hidden; j++)
    row[j] = scale * g[j];
  oracleConvert(lrmoeFloat32, row, spec->type, hidden, out);
}

static int keep(struct driver *d, struct hintCase *shared) {
  const struct lrmoeStep *step = d->step;
  int own = d->self->rank;
  int64_t at = 0;
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  RANK_OK(d->self, lrmoePlanGetView(d->plan, &view));
  RANK_OK(d->self, lrmoeStepGetKept(d->step, d->kept));
  RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  RANK_TRUE(d->self, step->numPairs <= hintCaseMaxRows);
  shared->ranks[own].numRows = step->numPairs;
  for (int64_t i = 0; i < step->numPairs; i++) {
    shared->ranks[own].phi[i] = step->phiSorted[i];
    shared->ranks[own].kept[i] = d->kept[step->sorted[i]];
    sendRow(d, step, i, shared->ranks[own].rows + i * shared->head.rowBytes);
  }
  for (int e = 0; e < hintCaseExperts; e++)
    for (int64_t i = 0; i < step->demand[own * hintCaseExperts + e];
         i++, at++) {
      int isAcross = d->oracle->homes[e] != own;
      __atomic_add_fetch(&shared->rowsAcross, isAcross, __ATOMIC_RELAXED);
      __atomic_add_fetch(&shared->keptAcross,
                         isAcross && shared->ranks[own].kept[at],
                         __ATOMIC_RELAXED);
    }
  __atomic_add_fetch(&shared->numDropped, stats.nonFiniteDropped,
                     __ATOMIC_RELAXED);
  if (own) return 0;
  memcpy(shared->demand, step->demand, sizeof shared->demand);
  memcpy(shared->quotas, view.quotas, sizeof shared->quotas);
  return 0;
}

static int rankBody(const struct testRank *self) {
  struct hintCase *shared = self->user;
  struct driver d;
  int failed = driverOpen(&d, self, &shared->spec);
  if (!failed) {
    adjust(&d, shared);
    failed = driverForward(&d) || driverSelect(&d, &shared->spec.backward, 0) ||
             driverSend(&d) || keep(&d, shared);
  }
  driverClose(&d);
  return failed;
}

static void writeData(const struct hintCase *shared) {
  FILE *file = fopen(programPath("data"), "wb");
  ck_assert_ptr_nonnull(file);
  fwrite(&shared->head, sizeof shared->head, 1, file);
  fwrite(shared->demand, sizeof shared->demand, 1, file);
  fwrite(shared->quotas, sizeof shared->quotas, 1, file);
  for (int r = 0; r < hintCaseRanks; r++) {
    size_t count = (size_t)shared->ranks[r].numRows;
    fwrite(shared->ranks[r].phi, sizeof(float), count, file);
    fwrite(shared->ranks[r].kept, 1, count, file);
    fwrite(shared->ranks[r].rows, (size_t)shared->head.rowBytes, count, file);
  }
  ck_assert(!fclose(file));
}

struct hintCase *hintCaseRun(const struct oracleCase *spec, int isUniform) {
  struct hintCase *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(shared != MAP_FAILED);
  shared->spec = *spec;
  shared->isUniform = isUniform;
  shared->head = (struct hintDataHead){
      hintCaseRanks, hintCaseExperts,
      spec->hidden * (int64_t)lrmoeTypeBytes(spec->type), spec->type};
  ck_assert_int_le(shared->head.rowBytes, hintCaseMaxRowBytes);
  ck_assert_int_eq(testRanksRun(hintCaseRanks, rankBody, shared), 0);
  writeData(shared);
  return shared;
}

struct oracleCase hintCaseOf(uint64_t seed) {
  struct oracleCase c = oraclePlainCase();
  c.seed = seed;
  c.numRanks = hintCaseRanks;
  c.numExperts = hintCaseExperts;
  for (int r = 0; r < hintCaseRanks; r++)
    c.numTokens[r] = 24 + 8 * r;
  c.hidden = 64;
  c.convention = lrmoeWeightPre;
  return c;
}
