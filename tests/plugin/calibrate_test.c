/* LRMOE_PRELOAD=calibrate: what a program that hints receives is what the
 * library's own selection keeps of the same layer, and zeros; and a hint that
 * is wrong on one rank changes nothing but a warning. */
#include "collectives/driver.h"
#include "collectives/step.h"
#include "hint_data.h"
#include "preload_run.h"
#include "support/program.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
  numRanks = 4,
  numExperts = 8,
  maxRows = 512,
  maxRowBytes = 512
};

/* ---- The library's own backward ---- */

struct shared {
  struct oracleCase spec;
  int isUniform; /* messages of one size */
  struct hintDataHead head;
  int64_t demand[numRanks * numExperts];
  int64_t quotas[numExperts];
  int64_t numDropped; /* that are not finite */
  int64_t rowsAcross; /* between ranks, and of them kept */
  int64_t keptAcross;
  struct {
    int64_t numRows;
    float phi[maxRows];
    uint8_t kept[maxRows];
    unsigned char rows[maxRows * maxRowBytes];
  } ranks[numRanks];
};

/* alpha is a power of two, so that alpha times a row is exact. */
static void adjust(struct driver *d, const struct shared *shared) {
  for (int r = 0; r < numRanks; r++) {
    struct oracleRank *data = &d->oracle->ranks[r];
    int64_t slots = driverSlots(&shared->spec, r);
    for (int64_t i = 0; i < slots; i++) {
      if (shared->spec.convention == lrmoeWeightPost)
        data->weights[i] = ldexpf(1, (int)(i % 3) - 2);
      if (shared->isUniform) data->topkIdx[i] = i % numExperts;
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
  float row[maxRowBytes / 2];
  for (int64_t j = 0; j < hidden; j++)
    row[j] = scale * g[j];
  oracleConvert(lrmoeFloat32, row, spec->type, hidden, out);
}

static int keep(struct driver *d, struct shared *shared) {
  const struct lrmoeStep *step = d->step;
  int own = d->self->rank;
  int64_t at = 0;
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  lrmoeStepStats_t stats = LRMOE_STEP_STATS_INITIALIZER;
  RANK_OK(d->self, lrmoePlanGetView(d->plan, &view));
  RANK_OK(d->self, lrmoeStepGetKept(d->step, d->kept));
  RANK_OK(d->self, lrmoeStepGetStats(d->step, &stats));
  RANK_TRUE(d->self, step->numPairs <= maxRows);
  shared->ranks[own].numRows = step->numPairs;
  for (int64_t i = 0; i < step->numPairs; i++) {
    shared->ranks[own].phi[i] = step->phiSorted[i];
    shared->ranks[own].kept[i] = d->kept[step->sorted[i]];
    sendRow(d, step, i, shared->ranks[own].rows + i * shared->head.rowBytes);
  }
  for (int e = 0; e < numExperts; e++)
    for (int64_t i = 0; i < step->demand[own * numExperts + e]; i++, at++) {
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
  struct shared *shared = self->user;
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

static void writeData(const struct shared *shared) {
  FILE *file = fopen(programPath("data"), "wb");
  ck_assert_ptr_nonnull(file);
  fwrite(&shared->head, sizeof shared->head, 1, file);
  fwrite(shared->demand, sizeof shared->demand, 1, file);
  fwrite(shared->quotas, sizeof shared->quotas, 1, file);
  for (int r = 0; r < numRanks; r++) {
    size_t count = (size_t)shared->ranks[r].numRows;
    fwrite(shared->ranks[r].phi, sizeof(float), count, file);
    fwrite(shared->ranks[r].kept, 1, count, file);
    fwrite(shared->ranks[r].rows, (size_t)shared->head.rowBytes, count, file);
  }
  ck_assert(!fclose(file));
}

/* Runs the case in the library and writes what it did. */
static struct shared *runLibrary(const struct oracleCase *spec, int isUniform) {
  struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(shared != MAP_FAILED);
  shared->spec = *spec;
  shared->isUniform = isUniform;
  shared->head = (struct hintDataHead){
      numRanks, numExperts, spec->hidden * (int64_t)lrmoeTypeBytes(spec->type),
      spec->type};
  ck_assert_int_le(shared->head.rowBytes, maxRowBytes);
  ck_assert_int_eq(testRanksRun(numRanks, rankBody, shared), 0);
  writeData(shared);
  return shared;
}

static struct oracleCase layerCase(uint64_t seed) {
  struct oracleCase c = oraclePlainCase();
  c.seed = seed;
  c.numRanks = numRanks;
  c.numExperts = numExperts;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = 24 + 8 * r;
  c.hidden = 64;
  c.convention = lrmoeWeightPre;
  return c;
}

/* ---- Programs ---- */

/* Variables of a run; masked: rounds, as bits, that the program masks by
 * itself, -1: it hints. */
static const char *withData(int masked, const char *mode, const char *more) {
  static char variables[2048];
  char mask[32] = "";
  if (masked >= 0) snprintf(mask, sizeof mask, "USER_MASK=%d", masked);
  snprintf(variables, sizeof variables, "USER_HINT_FILE='%s' %s %s %s",
           programPath("data"), mask, mode ? preloadMode(mode, "") : "", more);
  return variables;
}

static void expectMasked(int masked, const char *changes, const char *more) {
  char arguments[256], plain[programMaxText];
  int code =
      preloadRun(USER_FILE, withData(masked, NULL, more), "hinted 4 0 0");
  ck_assert_msg(code == 0, "%d\n%s", code, programErr);
  strcpy(plain, programOut);
  snprintf(arguments, sizeof arguments, "hinted 4 0 0 %s", changes);
  code = preloadRun(USER_FILE, withData(-1, "calibrate", more), arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", changes, code, programErr);
  ck_assert_msg(!strcmp(programOut, plain), "%s:\n%s\nand masked %d:\n%s\n%s",
                changes, programOut, masked, plain, programErr);
}

static int numWarnings(void) {
  int count = 0;
  for (const char *at = programErr; (at = strstr(at, "a hint is not followed"));
       at++)
    count++;
  return count;
}

/* ---- Same choice ---- */

static const int64_t retentions[] = {700000, 100000, 1000000, 0};

static struct oracleCase cases[8];

static void makeCases(void) {
  static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                          lrmoeFloat32};
  for (int i = 0; i < 8; i++) {
    cases[i] = layerCase(100 + (uint64_t)i);
    cases[i].retainPpm = retentions[i % 4];
    cases[i].type = types[i % 3];
    cases[i].convention = (lrmoeWeightConvention_t)(i % 2);
  }
  cases[1].hotExpert = 3;
  cases[4].equalScores = 1;
  cases[5].unusedExpert = 0;
  cases[5].noneShare = 0.3;
  cases[4].numTokens[2] = 0;
}

START_TEST(keeps_what_the_library_keeps) {
  struct shared *shared = runLibrary(&cases[_i], 0);
  ck_assert_int_eq(shared->numDropped, 0);
  expectMasked(7, "", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(numWarnings(), 0);
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "hints"), 3 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "refused"), 0);
  ck_assert_int_eq(preloadSum("rank", "exact"), 3 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"),
                   3 * (shared->keptAcross + shared->rowsAcross) *
                       shared->head.rowBytes);
  ck_assert_int_eq(preloadSum("rank", "sentBytes"),
                   6 * shared->rowsAcross * shared->head.rowBytes);
}
END_TEST

START_TEST(all_to_all_of_one_size) {
  struct oracleCase spec = layerCase(7);
  spec.topk = 1;
  for (int r = 0; r < numRanks; r++)
    spec.numTokens[r] = 48;
  struct shared *shared = runLibrary(&spec, 1);
  expectMasked(7, "", "USER_ALLTOALL=1 LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * numRanks);
  ck_assert_int_lt(shared->keptAcross, shared->rowsAcross);
}
END_TEST

/* Rows that overflowed are kept first; where one would have to go all stay. */
START_TEST(overflows_are_not_dropped) {
  struct oracleCase spec = layerCase(8);
  spec.numPoison = 2;
  struct shared *few = runLibrary(&spec, 0);
  ck_assert_int_eq(few->numDropped, 0);
  expectMasked(7, "", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 3 * numRanks);
  spec.retainPpm = 10000;
  struct shared *many = runLibrary(&spec, 0);
  ck_assert_int_gt(many->numDropped, 0);
  expectMasked(0, "", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 0);
  ck_assert_int_eq(preloadSum("rank", "refused"), 3 * numRanks);
  ck_assert_int_eq(numWarnings(), numRanks);
}
END_TEST

/* The exchange behind one that was masked by a hint: here of the same rows, of
 * which a program has made zeros. */
START_TEST(zero_rows_stay_without_a_hint) {
  struct oracleCase spec = layerCase(9);
  struct shared *shared = runLibrary(&spec, 0);
  char width[64];
  snprintf(width, sizeof width, "LRMOE_ROW_BYTES=%lld",
           (long long)shared->head.rowBytes);
  int code =
      preloadRun(USER_FILE, withData(7, "calibrate", width), "hinted 4 0 0");
  ck_assert_int_eq(code, 0);
  ck_assert_int_eq(preloadSum("rank", "elided"), 3 * numRanks);
  ck_assert_int_eq(preloadSum("rank", "calibrated"), 0);
  ck_assert_int_eq(preloadSum("rank", "wireBytes"),
                   3 * (shared->keptAcross + shared->rowsAcross) *
                       shared->head.rowBytes);
}
END_TEST

/* ---- Ranks that differ ---- */

/* What rank 1, or all, say in the first round. */
static const struct {
  const char *changes;
  int numCalibrated; /* of three rounds */
} differences[] = {
    {"1:USER_HINT=none", 2},
    {"1:USER_HINT=layer", 2},
    {"1:USER_HINT=rowBytes", 2},
    {"1:USER_HINT=quotas", 2},
    {"1:USER_HINT=demand", 2},
    {"1:USER_HINT=experts", 2},
    {"1:USER_HINT=odd", 2},
    {"1:USER_HINT=many", 2},
    {"1:USER_HINT=negative", 2},
    {"1:USER_HINT=phi", 2},
    {"0:USER_HINT=lost 1:USER_HINT=lost", 0},
    {"0:USER_HINT=rowBytes 1:USER_HINT=rowBytes 2:USER_HINT=rowBytes "
     "3:USER_HINT=rowBytes",
     2}};

START_TEST(ranks_that_differ) {
  struct oracleCase spec = layerCase(10);
  runLibrary(&spec, 0);
  int numCalibrated = differences[_i].numCalibrated;
  expectMasked(numCalibrated ? 6 : 0, differences[_i].changes,
               "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "calibrated"), numCalibrated * numRanks);
  ck_assert_msg(numWarnings() == numRanks, "%s", programErr);
}
END_TEST

/* Rank 1 lacks the library, or has another mode. */
START_TEST(ranks_without_the_mode) {
  static const char *const changes[] = {
      "1:LD_PRELOAD=", "1:LRMOE_PRELOAD=elide", "0:LRMOE_PRELOAD=off"};
  struct oracleCase spec = layerCase(11);
  runLibrary(&spec, 0);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    expectMasked(0, changes[i], "");
    ck_assert_int_eq(numWarnings(), numRanks - 1);
  }
}
END_TEST

/* Of two hints the second counts; in other modes none does. */
START_TEST(second_hint_counts) {
  struct oracleCase spec = layerCase(12);
  runLibrary(&spec, 0);
  expectMasked(7, "1:USER_HINT=twice", "LRMOE_ROW_BYTES=");
  ck_assert_int_eq(preloadSum("rank", "hints"), 3 * numRanks + 1);
  int code = preloadRun(USER_FILE, withData(0, NULL, ""), "hinted 4 0 0");
  char plain[programMaxText];
  strcpy(plain, programOut);
  for (int i = 0; i < 4 && !code; i++) {
    static const char *const modes[] = {"off", "observe", "schedule", "elide"};
    code = preloadRun(USER_FILE, withData(-1, modes[i], ""), "hinted 4 0 0");
    ck_assert_str_eq(programOut, plain);
    ck_assert_str_eq(programErr, "");
  }
  ck_assert_int_eq(code, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("plugin_calibrate");
  TCase *all = tcase_create("all");
  makeCases();
  tcase_set_timeout(all, 300);
  tcase_add_loop_test(all, keeps_what_the_library_keeps, 0, 8);
  tcase_add_test(all, all_to_all_of_one_size);
  tcase_add_test(all, overflows_are_not_dropped);
  tcase_add_test(all, zero_rows_stay_without_a_hint);
  tcase_add_loop_test(all, ranks_that_differ, 0,
                      sizeof differences / sizeof *differences);
  tcase_add_test(all, ranks_without_the_mode);
  tcase_add_test(all, second_hint_counts);
  suite_add_tcase(suite, all);
  return suiteRun(suite);
}
