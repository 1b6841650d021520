/* Calls out of order, ranks that disagree, wrong values: an error that names
 * the cause, on every rank, and never a hang. */
#include "collectives/step.h"
#include "driver.h"
#include "support/suite.h"

#include <string.h>

static struct oracleCase smallCase(void) {
  struct oracleCase c = oracleRandomCase(3);
  c.numRanks = 3;
  for (int r = 0; r < 3; r++)
    c.numTokens[r] = 6;
  c.numExperts = 6;
  c.topk = 2;
  c.hidden = 16;
  c.ffn = 8;
  c.retainPpm = 500000;
  c.noneShare = 0;
  c.isHomesMixed = 0;
  c.numSlots = 0;
  c.savedState = lrmoeSavedFull;
  c.routerGrad = lrmoeRouterGradKept;
  c.backward = (lrmoeBackwardConfig_t)LRMOE_BACKWARD_CONFIG_INITIALIZER;
  return c;
}

#define RANK_RESULT(self, call, expected)                        \
  do {                                                           \
    lrmoeResult_t was_ = (call);                                 \
    if (was_ != (expected)) {                                    \
      testRankComplain((self), __FILE__, __LINE__, #call, was_); \
      return 1;                                                  \
    }                                                            \
  } while (0)

/* Opens a driver, runs `body`, closes. */
static int withDriver(const struct testRank *self,
                      int (*body)(struct driver *driver)) {
  struct driver d;
  struct oracleCase spec = smallCase();
  int failed = driverOpen(&d, self, &spec) || body(&d);
  driverClose(&d);
  return failed;
}

/* A test that runs `body` as three ranks with a driver each. */
#define RANKS_TEST(name, body)                              \
  static int body##Rank(const struct testRank *self) {      \
    return withDriver(self, body);                          \
  }                                                         \
  START_TEST(name) {                                        \
    ck_assert_int_eq(testRanksRun(3, body##Rank, NULL), 0); \
  }                                                         \
  END_TEST

static lrmoeLayerConfig_t smallLayer(const struct driver *d) {
  lrmoeLayerConfig_t config = LRMOE_LAYER_CONFIG_INITIALIZER;
  config.hidden = 16;
  config.ffn = 8;
  config.maxTokens = 6;
  config.topk = 2;
  config.gemm = driverGemm(d);
  return config;
}

static int createStep(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self,
          lrmoeStepCreate(d->layer, 6, driverDevice(d, data->topkIdx),
                          driverDevice(d, data->weights), NULL, &d->step));
  return 0;
}

/* What rank 1 does wrong in the routing of otherwise right ranks. */
static int refuseRouting(struct driver *d) {
  struct oracleRank *mine = &d->oracle->ranks[d->self->rank];
  const int64_t *topkIdx = driverDevice(d, mine->topkIdx);
  const float *weights = driverDevice(d, mine->weights);
  int64_t numTokens = d->oracle->spec.numTokens[d->self->rank];
  int isWrong = d->self->rank == 1;
  lrmoeStep_t step = NULL;
  int64_t right = mine->topkIdx[1];
  const int64_t wrong[] = {mine->topkIdx[0], 6, -2};
  for (int i = 0; i < 3; i++) {
    if (isWrong) mine->topkIdx[1] = wrong[i];
    mirrorPush(&d->mirrors, mine->topkIdx);
    RANK_RESULT(
        d->self,
        lrmoeStepCreate(d->layer, numTokens, topkIdx, weights, NULL, &step),
        lrmoeInvalidArgument);
    RANK_TRUE(d->self, strstr(lrmoeGetLastError(), "rank 1"));
  }
  mine->topkIdx[1] = right;
  mirrorPush(&d->mirrors, mine->topkIdx);
  RANK_RESULT(d->self,
              lrmoeStepCreate(d->layer, isWrong ? 7 : numTokens, topkIdx,
                              weights, NULL, &step),
              lrmoeInvalidArgument);
  /* The communicator is whole: the right routing goes through. */
  return driverForward(d) || driverBackward(d, NULL, 0) ||
         driverCheckSelection(d) || driverCheckResults(d);
}

RANKS_TEST(routingRefusedByOneRank, refuseRouting)

static int disagreeOn(struct driver *d, const lrmoeLayerConfig_t *config) {
  lrmoeLayer_t other = NULL;
  lrmoeStep_t step = NULL;
  RANK_OK(d->self, lrmoeLayerCreate(d->comm, d->planner, config, &other));
  lrmoeResult_t got = lrmoeStepCreate(other, 0, NULL, NULL, NULL, &step);
  int namesRank = strstr(lrmoeGetLastError(), "rank 2") != NULL;
  RANK_OK(d->self, lrmoeLayerDestroy(other));
  RANK_TRUE(d->self, got == lrmoeInvalidUsage && namesRank);
  return 0;
}

static int disagreeOnLayer(struct driver *d) {
  lrmoeLayerConfig_t sizes = smallLayer(d);
  lrmoeLayerConfig_t wires = sizes;
  if (d->self->rank == 2) sizes.ffn = 16;
  if (d->self->rank == 2) wires.forwardWire = lrmoeWireNode;
  return disagreeOn(d, &sizes) || disagreeOn(d, &wires);
}

RANKS_TEST(layersThatDiffer, disagreeOnLayer)

/* Rank 0 plans with another retention: found out before rows move. */
static int disagreeOnPlan(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = 6;
  config.retainPpm = d->self->rank == 0 ? 250000 : 500000;
  lrmoePlanner_t planner = NULL;
  const int64_t *demand = NULL;
  RANK_OK(d->self, lrmoePlannerCreate(d->topology, &config, &planner));
  if (createStep(d)) return 1;
  RANK_OK(d->self, lrmoeStepGetDemand(d->step, &demand));
  RANK_OK(d->self, lrmoePlanMake(planner, demand, &d->plan));
  RANK_OK(d->self, lrmoePlannerDestroy(planner));
  RANK_OK(d->self, lrmoeStepPrepare(d->step, d->plan, NULL));
  lrmoeResult_t got = lrmoeDispatch(d->step, driverDevice(d, data->x), NULL);
  RANK_TRUE(d->self, got == lrmoeInvalidUsage || got == lrmoeRemoteError);
  return 0;
}

RANKS_TEST(plansThatDiffer, disagreeOnPlan)

static int refusePlan(struct driver *d, lrmoePolicy_t policy, const char *why) {
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  lrmoePlanner_t planner = NULL;
  lrmoePlan_t plan = NULL;
  const int64_t *demand = NULL;
  config.numExperts = 6;
  config.policy = policy;
  config.slots = policy == lrmoePolicyProportional;
  RANK_OK(d->self, lrmoeStepGetDemand(d->step, &demand));
  RANK_OK(d->self, lrmoePlannerCreate(d->topology, &config, &planner));
  RANK_OK(d->self, lrmoePlanMake(planner, demand, &plan));
  RANK_RESULT(d->self, lrmoeStepPrepare(d->step, plan, NULL), lrmoeUnsupported);
  RANK_TRUE(d->self, strstr(lrmoeGetLastError(), why) != NULL);
  RANK_OK(d->self, lrmoePlanDestroy(plan));
  RANK_OK(d->self, lrmoePlannerDestroy(planner));
  return 0;
}

/* Plans for comparison are refused by name, and another one may follow. */
static int comparisonPlans(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  if (createStep(d)) return 1;
  if (refusePlan(d, lrmoePolicyProportional,
                 "policy proportional moves the home of expert") ||
      refusePlan(d, lrmoePolicyPermute,
                 "policy permute moves the home of expert") ||
      refusePlan(d, lrmoePolicyBalanced,
                 "policy balanced changes the forward") ||
      refusePlan(d, lrmoePolicyLocal, "policy local changes the forward"))
    return 1;
  const int64_t *demand = NULL;
  RANK_OK(d->self, lrmoeStepGetDemand(d->step, &demand));
  RANK_OK(d->self, lrmoePlanMake(d->planner, demand, &d->plan));
  RANK_OK(d->self, lrmoeStepPrepare(d->step, d->plan, NULL));
  RANK_OK(d->self, lrmoeDispatch(d->step, driverDevice(d, data->x), NULL));
  return 0;
}

RANKS_TEST(plansForComparison, comparisonPlans)

static int disagreeOnBackward(struct driver *d) {
  if (driverForward(d)) return 1;
  lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
  config.wire = d->self->rank == 1 ? lrmoeWirePairwise : lrmoeWireDedup;
  lrmoeResult_t got =
      lrmoeSelect(d->step, driverDevice(d, d->oracle->ranks[d->self->rank].g),
                  &config, NULL);
  RANK_TRUE(d->self, got == lrmoeInvalidUsage || got == lrmoeRemoteError);
  return 0;
}

RANKS_TEST(backwardConfigsThatDiffer, disagreeOnBackward)

/* Every call but the next one is refused, and nothing changes. */
static int callOutOfOrder(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const void *x = driverDevice(d, data->x);
  const void *g = driverDevice(d, data->g);
  void *dx = driverDevice(d, d->dx);
  const int64_t *demand = NULL;
  lrmoeHandoff_t handoff = LRMOE_HANDOFF_INITIALIZER;
  if (createStep(d)) return 1;
  RANK_RESULT(d->self, lrmoeDispatch(d->step, x, NULL), lrmoeInvalidUsage);
  RANK_RESULT(d->self, lrmoeCombine(d->step, driverDevice(d, d->y), NULL),
              lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeStepGetDemand(d->step, &demand));
  RANK_OK(d->self, lrmoePlanMake(d->planner, demand, &d->plan));
  RANK_OK(d->self, lrmoeStepPrepare(d->step, d->plan, NULL));
  RANK_RESULT(d->self, lrmoeExpertForward(d->step, NULL), lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeDispatch(d->step, x, NULL));
  RANK_RESULT(d->self, lrmoeDispatch(d->step, x, NULL), lrmoeInvalidUsage);
  RANK_RESULT(d->self, lrmoeSelect(d->step, g, NULL, NULL), lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeExpertForward(d->step, NULL));
  RANK_OK(d->self, lrmoeCombine(d->step, driverDevice(d, d->y), NULL));
  RANK_RESULT(d->self, lrmoeReturn(d->step, dx, NULL, NULL), lrmoeInvalidUsage);
  RANK_RESULT(d->self, lrmoeStepGetHandoff(d->step, &handoff),
              lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeSelect(d->step, g, NULL, NULL));
  RANK_RESULT(d->self, lrmoeSelect(d->step, g, NULL, NULL), lrmoeInvalidUsage);
  RANK_RESULT(d->self, lrmoeExpertBackward(d->step, NULL), lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeAllToAllCompact(d->step, x, g, NULL));
  RANK_OK(d->self, lrmoeStepGetHandoff(d->step, &handoff));
  if (handoff.numPairs)
    RANK_RESULT(d->self, lrmoeReturn(d->step, dx, NULL, NULL),
                lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  RANK_OK(d->self, lrmoeReturn(d->step, dx, NULL, NULL));
  return 0;
}

RANKS_TEST(callsOutOfOrder, callOutOfOrder)

static int useStaleWeights(struct driver *d) {
  if (driverForward(d)) return 1;
  RANK_OK(d->self, lrmoeLayerAdvanceVersion(d->layer));
  RANK_RESULT(d->self,
              lrmoeSelect(d->step,
                          driverDevice(d, d->oracle->ranks[d->self->rank].g),
                          NULL, NULL),
              lrmoeInvalidUsage);
  return 0;
}

RANKS_TEST(weightsChangedSinceForward, useStaleWeights)

/* maxSteps is 2; handles in use refuse to go; backwards do not interleave. */
static int crowd(struct driver *d) {
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const void *g = driverDevice(d, data->g);
  struct driver second = *d;
  if (driverForward(d) || driverForward(&second)) return 1;
  lrmoeStep_t third = NULL;
  RANK_RESULT(d->self,
              lrmoeStepCreate(d->layer, 6, driverDevice(d, data->topkIdx),
                              driverDevice(d, data->weights), NULL, &third),
              lrmoeInvalidUsage);
  RANK_RESULT(d->self, lrmoeLayerDestroy(d->layer), lrmoeInvalidUsage);
  RANK_RESULT(d->self, lrmoeCommDestroy(d->comm), lrmoeInvalidUsage);
  RANK_OK(d->self, lrmoeSelect(d->step, g, NULL, NULL));
  RANK_RESULT(d->self, lrmoeSelect(second.step, g, NULL, NULL),
              lrmoeInvalidUsage);
  /* Giving up a step frees the layer for the other. */
  RANK_OK(d->self, lrmoeStepDestroy(d->step));
  d->step = NULL;
  RANK_OK(d->self, lrmoeSelect(second.step, g, NULL, NULL));
  RANK_OK(d->self, lrmoeStepDestroy(second.step));
  RANK_OK(d->self, lrmoePlanDestroy(second.plan));
  return 0;
}

RANKS_TEST(handlesInUse, crowd)

static int giveBadConfigs(struct driver *d) {
  lrmoeLayer_t layer = NULL;
  lrmoeLayerConfig_t good = smallLayer(d);
  enum {
    numBad = 12
  };
  lrmoeLayerConfig_t bad[numBad];
  for (int i = 0; i < numBad; i++)
    bad[i] = good;
  bad[0].hidden = 12;
  bad[1].ffn = 0;
  bad[2].maxTokens = 0;
  bad[3].topk = 65;
  bad[4].maxSteps = 0;
  bad[5].dtype = lrmoeInt8;
  bad[6].activation = (lrmoeActivation_t)9;
  bad[7].magic = 0;
  bad[8].overlapsReturn = 2;
  bad[9].packsX = -1;
  bad[10].forwardWire = lrmoeWirePairwise;
  bad[11].forwardWire = lrmoeWireMasked;
  for (int i = 0; i < numBad; i++)
    RANK_RESULT(d->self, lrmoeLayerCreate(d->comm, d->planner, &bad[i], &layer),
                lrmoeInvalidArgument);
  RANK_TRUE(d->self, strstr(lrmoeGetLastError(), "forwardWire is 2"));
  good.tensorShards = 2;
  RANK_RESULT(d->self, lrmoeLayerCreate(d->comm, d->planner, &good, &layer),
              lrmoeUnsupported);
  good.tensorShards = 1;
  good.routerGrad = lrmoeRouterGradExecutor;
  good.savedState = lrmoeSavedNone;
  RANK_RESULT(d->self, lrmoeLayerCreate(d->comm, d->planner, &good, &layer),
              lrmoeUnsupported);
  RANK_RESULT(d->self, lrmoeLayerCreate(d->comm, d->planner, NULL, &layer),
              lrmoeInvalidArgument);
  return 0;
}

RANKS_TEST(configsOutOfRange, giveBadConfigs)

/* Relays hold rows that a limit of memory does not know of. */
static int limitMemory(struct driver *d) {
  lrmoeLayerConfig_t config = smallLayer(d);
  lrmoeLayer_t layer = NULL;
  config.forwardWire = lrmoeWireNode;
  d->planner->config.memoryBytes = 1 << 20;
  for (int r = 0; r < 3; r++)
    d->planner->hosts[r] = d->planner->domains[r] = r;
  RANK_RESULT(d->self, lrmoeLayerCreate(d->comm, d->planner, &config, &layer),
              lrmoeInvalidArgument);
  RANK_TRUE(d->self, strstr(lrmoeGetLastError(), "chargesRelays"));
  d->planner->config.chargesRelays = 1;
  RANK_OK(d->self, lrmoeLayerCreate(d->comm, d->planner, &config, &layer));
  RANK_OK(d->self, lrmoeLayerDestroy(layer));
  return 0;
}

RANKS_TEST(relaysUnderALimit, limitMemory)

/* A module that is not there breaks this rank's layer, so all ranks fail. */
static int missGemm(struct driver *d) {
  lrmoeLayerConfig_t config = smallLayer(d);
  if (d->self->rank == 1) config.gemm = "nosuch";
  lrmoeLayer_t layer = NULL;
  lrmoeResult_t got = lrmoeLayerCreate(d->comm, d->planner, &config, &layer);
  RANK_TRUE(d->self,
            got == (d->self->rank == 1 ? lrmoeNotInstalled : lrmoeRemoteError));
  return 0;
}

/* A rank that is still leaving an earlier call when rank 1 breaks the
 * communicator gets the error there. */
static int missGemmRank(const struct testRank *self) {
  struct driver d;
  struct oracleCase spec = smallCase();
  int failed = driverOpen(&d, self, &spec);
  if (failed && self->rank != 1) {
    lrmoeResult_t error = lrmoeSuccess;
    failed = !d.comm || lrmoeCommGetAsyncError(d.comm, &error) ||
             error != lrmoeRemoteError;
  } else if (!failed) {
    failed = missGemm(&d);
  }
  driverClose(&d);
  return failed;
}

START_TEST(gemmMissingOnOneRank) {
  ck_assert_int_eq(testRanksRun(3, missGemmRank, NULL), 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {routingRefusedByOneRank,
                                layersThatDiffer,
                                plansThatDiffer,
                                plansForComparison,
                                backwardConfigsThatDiffer,
                                callsOutOfOrder,
                                weightsChangedSinceForward,
                                handlesInUse,
                                configsOutOfRange,
                                relaysUnderALimit,
                                gemmMissingOnOneRank};
  return suiteRunTests("misuse", tests, sizeof tests / sizeof *tests, 600);
}
