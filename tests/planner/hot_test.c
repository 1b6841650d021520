/* What the call that makes a plan allocates: also what the C library does on
 * its behalf, which the library's own counter does not see. */
#include "base/alloc.h"
#include "planner/checks.h"
#include "planner/loads.h"
#include "support/suite.h"
#include "topo/profile.h"

#include <dlfcn.h>
#include <stdlib.h>

enum {
  numRanks = 144, /* qsort of so many times would allocate */
  numExperts = 288
};

/* Sanitizers have a malloc of their own, and leave this to other builds. */
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define hasOwnMalloc 1
#endif
#endif
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define hasOwnMalloc 1
#endif

#ifdef hasOwnMalloc
static const int64_t numExpected = 0;
static int64_t numMallocs;
#else
static const int64_t numExpected = 1; /* the plan */
static int64_t numMallocs;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void *malloc(size_t bytes) {
  static void *(*next)(size_t);
  numMallocs++;
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "malloc");
  return next(bytes);
}
#endif

/* Ranks of one memory that share cores, calibrated. */
static lrmoeTopology_t sharedMemory(void) {
  static const struct lrmoeFit fits[] = {
      {lrmoePatternAll, lrmoeLinkMemory, {0, 16000000000, 3, 4, 5}},
      {lrmoePatternMessage, lrmoeLinkSelf, {0, 8000000000, 0, 0, 1}},
      {lrmoePatternMessage, lrmoeLinkMemory, {0, 8000000000, 1, 2, 9}},
      {lrmoePatternScatter, lrmoeLinkMemory, {0, 16000000000, 0, 0, 1}},
      {lrmoePatternGather, lrmoeLinkMemory, {0, 8000000000, 0, 0, 1}}};
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
  ASSERT_OK(lrmoeTopologyApplyFits(topology, fits, 5));
  return topology;
}

/* The plan, made by a planner that has made one before. */
static lrmoePlan_t makeCounted(const lrmoePlannerConfig_t *config,
                               const int64_t *demand) {
  lrmoeTopology_t topology = sharedMemory();
  lrmoePlanner_t planner = NULL;
  lrmoePlan_t plan = NULL;
  ASSERT_OK(lrmoePlannerCreate(topology, config, &planner));
  lrmoePlanDestroy(makePlan(planner, demand));
  lrmoeAllocFailAt(0);
  numMallocs = 0;
  lrmoeResult_t result = lrmoePlanMake(planner, demand, &plan);
  int64_t mallocs = numMallocs;
  ASSERT_OK(result);
  ck_assert_int_eq(mallocs, numExpected);
  ck_assert_int_eq(lrmoeAllocFailAt(0), 1);
  lrmoePlannerDestroy(planner);
  lrmoeTopologyDestroy(topology);
  return plan;
}

/* With T_comm worked out many times, and with moves that cost memory. */
START_TEST(planIsTheOnlyAllocation) {
  struct testRandom random = {7};
  const struct loadSpec spec = {loadZipf, 1.0, 999};
  int64_t *demand = makeLoad(&random, spec, numRanks, numExperts);
  lrmoePlannerConfig_t config = replicated(numExperts, 1);
  config.hidden = config.ffn = 8;
  config.weightBytes = config.gradBytes = 64;
  if (_i) config.quota = lrmoeQuotaOverload;
  lrmoePlan_t plan = makeCounted(&config, demand);
  lrmoePlanView_t view = viewOf(plan);
  config.retain = lrmoeRetainLargest;
  config.windowNs = view.commNs / 4 * 3;
  config.windowWork = 1 << 20;
  for (int g = 0; g < numRanks; g++)
    if (view.memory[g].peakBytes > config.memoryBytes)
      config.memoryBytes = view.memory[g].peakBytes;
  config.memoryBytes -= config.memoryBytes / 8;
  lrmoePlanDestroy(plan);
  plan = makeCounted(&config, demand);
  view = viewOf(plan);
  ck_assert_int_lt(view.kept, view.pairs);
  ck_assert_int_le(view.commNs, config.windowNs);
  lrmoePlanDestroy(plan);
  free(demand);
}
END_TEST

int main(void) {
  TCase *cases = tcase_create("hot");
  tcase_set_timeout(cases, 120);
  tcase_add_loop_test(cases, planIsTheOnlyAllocation, 0, 2);
  Suite *suite = suite_create("planner hot");
  suite_add_tcase(suite, cases);
  return suiteRun(suite);
}
