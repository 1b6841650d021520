/* One MoE layer, forward and calibrated backward, on two processes.
 *
 *   cc one_layer.c $(pkg-config --cflags --libs lrmoe) && ./a.out
 *
 * Read main first, then runRank from top to bottom: each call of the library
 * stands alone with what it needs. */
#include <lrmoe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  numRanks = 2,
  numExperts = 4,
  topk = 2,
  numTokens = 8,
  hidden = 16,
  ffn = 8,
  expertsPerRank = numExperts / numRanks
};

/* Says what failed, and why, and leaves. */
#define CHECK(call)                                                        \
  do {                                                                     \
    lrmoeResult_t result_ = (call);                                        \
    if (result_ != lrmoeSuccess) {                                         \
      fprintf(stderr, "%s: %s: %s\n", #call, lrmoeGetErrorString(result_), \
              lrmoeGetLastError());                                        \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

/* This rank's tokens, their routing, and the weights of its experts. */
static float x[numTokens][hidden];
static float y[numTokens][hidden];
static float dy[numTokens][hidden];
static float dx[numTokens][hidden];
static int64_t topkIdx[numTokens][topk];
static float topkWeights[numTokens][topk];
static float dTopkWeights[numTokens][topk];
static uint8_t kept[numTokens][topk];
static float w1[expertsPerRank][2 * ffn][hidden];
static float w2[expertsPerRank][hidden][ffn];
static float dw1[expertsPerRank][2 * ffn][hidden];
static float dw2[expertsPerRank][hidden][ffn];

static void fill(float *values, size_t count) {
  for (size_t i = 0; i < count; i++)
    values[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

static void makeData(int rank) {
  srand((unsigned)rank + 1);
  fill(&x[0][0], sizeof x / sizeof(float));
  fill(&dy[0][0], sizeof dy / sizeof(float));
  fill(&w1[0][0][0], sizeof w1 / sizeof(float));
  fill(&w2[0][0][0], sizeof w2 / sizeof(float));
  for (int t = 0; t < numTokens; t++) {
    topkIdx[t][0] = t % numExperts;
    topkIdx[t][1] = (t + 1 + rank) % numExperts;
    topkWeights[t][0] = 0.75f;
    topkWeights[t][1] = 0.25f;
  }
}

/* The layer of this rank, its experts bound to w1, w2, dw1, dw2. */
static lrmoeLayer_t makeLayer(lrmoeComm_t comm, lrmoePlanner_t planner) {
  lrmoeLayerConfig_t config = LRMOE_LAYER_CONFIG_INITIALIZER;
  config.hidden = hidden;
  config.ffn = ffn;
  config.maxTokens = numTokens;
  config.topk = topk;
  config.dtype = lrmoeFloat32;
  config.gemm = "reference";
  lrmoeLayer_t layer;
  CHECK(lrmoeLayerCreate(comm, planner, &config, &layer));

  const void *w1s[expertsPerRank] = {w1[0], w1[1]};
  const void *w2s[expertsPerRank] = {w2[0], w2[1]};
  float *dw1s[expertsPerRank] = {&dw1[0][0][0], &dw1[1][0][0]};
  float *dw2s[expertsPerRank] = {&dw2[0][0][0], &dw2[1][0][0]};
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = w1s;
  weights.w2 = w2s;
  weights.dw1 = dw1s;
  weights.dw2 = dw2s;
  CHECK(lrmoeLayerBind(layer, &weights));
  return layer;
}

static void runRank(int rank, const lrmoeUniqueId *id) {
  makeData(rank);

  lrmoeComm_t comm;
  CHECK(lrmoeCommInitRank(numRanks, id, rank, NULL, &comm));

  lrmoeTopology_t topology;
  CHECK(lrmoeTopologyCreate(numRanks, &topology));

  /* Backward keeps half of each expert's pairs. */
  lrmoePlannerConfig_t planning = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planning.numExperts = numExperts;
  planning.retainPpm = 500000;
  lrmoePlanner_t planner;
  CHECK(lrmoePlannerCreate(topology, &planning, &planner));

  lrmoeLayer_t layer = makeLayer(comm, planner);

  /* One step: count, plan, prepare. */
  lrmoeStep_t step;
  CHECK(lrmoeStepCreate(layer, numTokens, &topkIdx[0][0], &topkWeights[0][0],
                        NULL, &step));
  const int64_t *demand;
  CHECK(lrmoeStepGetDemand(step, &demand));
  lrmoePlan_t plan;
  CHECK(lrmoePlanMake(planner, demand, &plan));
  CHECK(lrmoeStepPrepare(step, plan, NULL));

  /* Forward is exact: every pair is computed. */
  CHECK(lrmoeDispatch(step, x, NULL));
  CHECK(lrmoeExpertForward(step, NULL));
  CHECK(lrmoeCombine(step, y, NULL));

  /* Backward: score and select, send what stays, multiply, bring home. */
  CHECK(lrmoeSelectPackSend(step, x, dy, NULL, NULL));
  CHECK(lrmoeExpertBackward(step, NULL));
  CHECK(lrmoeReturn(step, dx, &dTopkWeights[0][0], NULL));

  CHECK(lrmoeStepGetKept(step, &kept[0][0]));
  int numKept = 0;
  for (int i = 0; i < numTokens * topk; i++)
    numKept += (&kept[0][0])[i];
  printf("rank %d: %d of %d pairs kept, dx[0][0] = %g, dw1[0][0][0] = %g\n",
         rank, numKept, numTokens * topk, (double)dx[0][0],
         (double)dw1[0][0][0]);

  CHECK(lrmoeStepDestroy(step));
  CHECK(lrmoePlanDestroy(plan));
  CHECK(lrmoeLayerDestroy(layer));
  CHECK(lrmoePlannerDestroy(planner));
  CHECK(lrmoeTopologyDestroy(topology));
  CHECK(lrmoeCommDestroy(comm));
}

int main(void) {
  lrmoeUniqueId id;
  CHECK(lrmoeGetUniqueId(&id));
  pid_t children[numRanks];
  for (int rank = 0; rank < numRanks; rank++) {
    children[rank] = fork();
    if (children[rank] == 0) {
      runRank(rank, &id);
      return 0;
    }
  }
  int failed = 0;
  for (int rank = 0; rank < numRanks; rank++) {
    int status = 1;
    waitpid(children[rank], &status, 0);
    failed |= status != 0;
  }
  return failed;
}
