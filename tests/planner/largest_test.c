/* The largest retention where moves cost memory: against all quotas and all
 * splits of them, on the instances and forward pairs of the plan. */
#include "planner/checks.h"
#include "support/suite.h"

enum {
  numRanks = 3,
  numExperts = 4,
  backwardBytes = 80, /* H 8, F 8, GELU, b 2: as in retain_test.c */
  savedBytes = 32,
  replicaBytes = 40
};

struct brute {
  const lrmoePlanView_t *view;
  int64_t pairs[numExperts];
  int64_t quotas[numExperts]; /* -1: free */
  int64_t room[numRanks];
  int64_t best; /* most that is kept, -1: nothing fits */
};

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static void tryExperts(struct brute *brute, int e, int64_t kept);

/* What instance i of expert e takes of its rank, with `kept` pairs of a quota;
 * savedBytes are also those of a move. */
static int64_t bytesOf(const struct brute *brute, int e, int i, int64_t kept,
                       int64_t quota) {
  int64_t dropped = brute->pairs[e] - quota;
  int64_t sure = larger(0, brute->view->forwardPairs[i] - dropped);
  return kept * backwardBytes + larger(0, kept - sure) * savedBytes;
}

/* All shares of instances from i on, with `left` of the quota. */
static void tryShares(struct brute *brute, int e, int i, int64_t left,
                      int64_t kept, int64_t quota) {
  if (i == brute->view->instanceOffsets[e + 1]) {
    if (!left) tryExperts(brute, e + 1, kept + quota);
    return;
  }
  int64_t *room = &brute->room[brute->view->instanceRanks[i]];
  int isLast = i + 1 == brute->view->instanceOffsets[e + 1];
  for (int64_t share = isLast ? left : 0; share <= left; share++) {
    int64_t bytes = bytesOf(brute, e, i, share, quota);
    if (bytes > *room) return;
    *room -= bytes;
    tryShares(brute, e, i + 1, left - share, kept, quota);
    *room += bytes;
  }
}

static void tryExperts(struct brute *brute, int e, int64_t kept) {
  int64_t rest = kept;
  for (int f = e; f < numExperts; f++)
    rest += brute->quotas[f] < 0 ? brute->pairs[f] : brute->quotas[f];
  if (rest <= brute->best) return;
  if (e == numExperts) {
    brute->best = kept;
    return;
  }
  int64_t fixed = brute->quotas[e];
  int64_t from = fixed < 0 ? brute->pairs[e] : fixed,
          to = fixed < 0 ? 0 : fixed;
  for (int64_t quota = from; quota >= to; quota--)
    tryShares(brute, e, brute->view->instanceOffsets[e], quota, kept, quota);
}

static void beginBrute(const lrmoePlanView_t *view, int64_t memoryBytes,
                       struct brute *brute) {
  *brute = (struct brute){.view = view, .best = -1};
  for (int g = 0; g < numRanks; g++)
    brute->room[g] = memoryBytes;
  for (int e = 0; e < numExperts; e++) {
    brute->quotas[e] = -1;
    brute->pairs[e] = view->totals[e];
    for (int i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      brute->room[view->instanceRanks[i]] -=
          view->forwardPairs[i] * savedBytes +
          (int64_t)(view->instanceRanks[i] != view->homes[e]) * replicaBytes;
  }
}

/* Over all rates k / n, which is where quotas change. */
static void tryRates(struct brute *brute) {
  int64_t best = -1;
  for (int of = 0; of < numExperts; of++)
    for (int64_t k = 0; k <= brute->pairs[of] && brute->pairs[of]; k++) {
      int64_t rate = k * 1000000 / brute->pairs[of];
      for (int e = 0; e < numExperts; e++)
        brute->quotas[e] = (brute->pairs[e] * rate + 999999) / 1000000;
      brute->best = -1;
      tryExperts(brute, 0, 0);
      best = larger(best, brute->best);
    }
  brute->best = best;
}

/* One random problem: what is kept, and by trying all. */
static void compare(int seed, int *numLess) {
  struct testRandom random = {(uint64_t)seed};
  int64_t demand[numRanks * numExperts];
  for (int i = 0; i < numRanks * numExperts; i++)
    demand[i] = randomBelow(&random, i % numExperts ? 3 : 7);
  lrmoePlannerConfig_t config = replicated(numExperts, 1);
  config.hidden = config.ffn = 8;
  config.activation = lrmoeGelu;
  config.weightBytes = config.gradBytes = replicaBytes / 2;
  config.retain = lrmoeRetainLargest;
  config.quota = seed % 2 ? lrmoeQuotaOverload : lrmoeQuotaUniform;
  config.memoryBytes = 600 + randomBelow(&random, 700);
  lrmoePlanInput_t input = LRMOE_PLAN_INPUT_INITIALIZER;
  input.bestEffort = 1;
  lrmoePlanner_t planner = makePlanner(numRanks, &config);
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlanMakeWith(planner, demand, &input, &plan));
  lrmoePlanView_t view = viewOf(plan);
  struct brute brute;
  beginBrute(&view, config.memoryBytes, &brute);
  if (config.quota == lrmoeQuotaUniform)
    tryRates(&brute);
  else
    tryExperts(&brute, 0, 0);
  if (view.constraintSlack >= 0) {
    checkPlan(plan, demand, numRanks, &config);
    ck_assert_int_le(view.kept, brute.best);
    ck_assert_int_le(brute.best, view.boundRetained);
    *numLess += view.kept < brute.best;
  } else if (view.constraint == lrmoeConstraintBackwardMemory) {
    ck_assert_int_lt(brute.best, 0);
  }
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
}

/* In whole pairs the question is hard: one in fifty may keep less. */
START_TEST(movesAreWeighed) {
  int numLess = 0;
  for (int seed = 0; seed < 100; seed++)
    compare(_i * 100 + seed, &numLess);
  ck_assert_int_le(numLess, 2);
}
END_TEST

int main(void) {
  TCase *cases = tcase_create("largest");
  tcase_set_timeout(cases, 120);
  tcase_add_loop_test(cases, movesAreWeighed, 0, 5);
  Suite *suite = suite_create("planner largest");
  suite_add_tcase(suite, cases);
  return suiteRun(suite);
}
