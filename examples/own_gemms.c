/* A backward whose experts are the caller's own.
 *
 * A framework with its own grouped GEMM takes the handoff instead of calling
 * lrmoeExpertBackward: per local expert a segment of rows, each with the place
 * of its gradient, its input and its weight.  Here one rank runs a layer both
 * ways and compares; with more ranks nothing changes but the numbers.
 *
 *   cc own_gemms.c $(pkg-config --cflags --libs lrmoe) -lm && ./a.out */
#include <lrmoe.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  numExperts = 3,
  topk = 2,
  numTokens = 12,
  hidden = 16,
  ffn = 8
};

#define CHECK(call)                                                        \
  do {                                                                     \
    lrmoeResult_t result_ = (call);                                        \
    if (result_ != lrmoeSuccess) {                                         \
      fprintf(stderr, "%s: %s: %s\n", #call, lrmoeGetErrorString(result_), \
              lrmoeGetLastError());                                        \
      exit(1);                                                             \
    }                                                                      \
  } while (0)

struct gradients {
  float dx[numTokens][hidden];
  float dWeights[numTokens][topk];
  float dw1[numExperts][2 * ffn][hidden];
  float dw2[numExperts][hidden][ffn];
};

static float x[numTokens][hidden];
static float y[numTokens][hidden];
static float dy[numTokens][hidden];
static int64_t topkIdx[numTokens][topk];
static float topkWeights[numTokens][topk];
static float w1[numExperts][2 * ffn][hidden];
static float w2[numExperts][hidden][ffn];
static struct gradients library; /* what lrmoeExpertBackward gives */
static struct gradients own;     /* what ownExpert gives */

static void fill(float *values, size_t count) {
  for (size_t i = 0; i < count; i++)
    values[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

static void makeData(void) {
  fill(&x[0][0], sizeof x / sizeof(float));
  fill(&dy[0][0], sizeof dy / sizeof(float));
  fill(&w1[0][0][0], sizeof w1 / sizeof(float));
  fill(&w2[0][0][0], sizeof w2 / sizeof(float));
  for (int t = 0; t < numTokens; t++) {
    topkIdx[t][0] = t % numExperts;
    topkIdx[t][1] = (t + 1) % numExperts;
    topkWeights[t][0] = 0.6f;
    topkWeights[t][1] = 0.4f;
  }
}

/* Backward of one row through SwiGLU expert e: the two data gradients and the
 * two weight gradients; returns d(alpha).  Stands for a framework's GEMMs. */
static float ownExpert(int32_t e, const float *in, const float *g, float alpha,
                       float *dIn) {
  float dAlpha = 0;
  memset(dIn, 0, hidden * sizeof *dIn);
  for (int f = 0; f < ffn; f++) {
    float gate = 0;
    float up = 0;
    float gPhi = 0;
    for (int h = 0; h < hidden; h++) {
      gate += w1[e][f][h] * in[h];
      up += w1[e][ffn + f][h] * in[h];
      gPhi += w2[e][h][f] * g[h];
    }
    float s = 1 / (1 + expf(-gate));
    float phi = gate * s * up;
    float dGate = alpha * gPhi * up * s * (1 + gate * (1 - s));
    float dUp = alpha * gPhi * gate * s;
    dAlpha += gPhi * phi;
    for (int h = 0; h < hidden; h++) {
      dIn[h] += dGate * w1[e][f][h] + dUp * w1[e][ffn + f][h];
      own.dw1[e][f][h] += dGate * in[h];
      own.dw1[e][ffn + f][h] += dUp * in[h];
      own.dw2[e][h][f] += alpha * phi * g[h];
    }
  }
  return dAlpha;
}

/* Runs row p of the handoff, of instance j, and gives its results. */
static void ownRow(lrmoeStep_t step, const lrmoeHandoff_t *handoff, int64_t j,
                   int64_t p) {
  int isMoved = p - handoff->offsets[j] >= handoff->stayed[j];
  const float *in = (const float *)(isMoved ? handoff->movedX : handoff->x) +
                    handoff->xRow[p] * hidden;
  const float *g = (const float *)handoff->g + handoff->gRow[p] * hidden;
  float dIn[hidden];
  float dAlpha =
      ownExpert(handoff->experts[j], in, g, handoff->weights[p], dIn);
  lrmoeHandoffRows_t put = LRMOE_HANDOFF_ROWS_INITIALIZER;
  put.instance = j;
  put.first = p - handoff->offsets[j];
  put.rows = 1;
  put.dx = dIn;
  put.dWeights = &dAlpha;
  CHECK(lrmoeHandoffPut(step, &put, NULL));
}

static void ownBackward(lrmoeStep_t step) {
  lrmoeHandoff_t handoff = LRMOE_HANDOFF_INITIALIZER;
  CHECK(lrmoeStepGetHandoff(step, &handoff));
  for (int64_t j = 0; j < handoff.numInstances; j++)
    for (int64_t p = handoff.offsets[j]; p < handoff.offsets[j + 1]; p++)
      ownRow(step, &handoff, j, p);
}

static void bindWeights(lrmoeLayer_t layer) {
  const void *w1s[numExperts];
  const void *w2s[numExperts];
  float *dw1s[numExperts];
  float *dw2s[numExperts];
  for (int e = 0; e < numExperts; e++) {
    w1s[e] = w1[e];
    w2s[e] = w2[e];
    dw1s[e] = &library.dw1[e][0][0];
    dw2s[e] = &library.dw2[e][0][0];
  }
  lrmoeLayerWeights_t weights = LRMOE_LAYER_WEIGHTS_INITIALIZER;
  weights.w1 = w1s;
  weights.w2 = w2s;
  weights.dw1 = dw1s;
  weights.dw2 = dw2s;
  CHECK(lrmoeLayerBind(layer, &weights));
}

/* The largest difference between the two ways, over all gradients. */
static float compare(void) {
  const float *a = (const float *)&library;
  const float *b = (const float *)&own;
  float most = 0;
  for (size_t i = 0; i < sizeof library / sizeof(float); i++)
    most = fmaxf(most, fabsf(a[i] - b[i]));
  return most;
}

static void runStep(lrmoeLayer_t layer, lrmoePlanner_t planner) {
  lrmoeStep_t step;
  lrmoePlan_t plan;
  const int64_t *demand;
  CHECK(lrmoeStepCreate(layer, numTokens, &topkIdx[0][0], &topkWeights[0][0],
                        NULL, &step));
  CHECK(lrmoeStepGetDemand(step, &demand));
  CHECK(lrmoePlanMake(planner, demand, &plan));
  CHECK(lrmoeStepPrepare(step, plan, NULL));
  CHECK(lrmoeDispatch(step, x, NULL));
  CHECK(lrmoeExpertForward(step, NULL));
  CHECK(lrmoeCombine(step, y, NULL));

  CHECK(lrmoeSelectPackSend(step, x, dy, NULL, NULL));
  CHECK(lrmoeExpertBackward(step, NULL));
  CHECK(lrmoeReturn(step, library.dx, &library.dWeights[0][0], NULL));

  /* The same backward again, on our own experts. */
  CHECK(lrmoeSelectPackSend(step, x, dy, NULL, NULL));
  ownBackward(step);
  CHECK(lrmoeReturn(step, own.dx, &own.dWeights[0][0], NULL));
  CHECK(lrmoeStepDestroy(step));
  CHECK(lrmoePlanDestroy(plan));
}

int main(void) {
  lrmoeUniqueId id;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoeLayer_t layer;
  makeData();
  CHECK(lrmoeGetUniqueId(&id));
  CHECK(lrmoeCommInitRank(1, &id, 0, NULL, &comm));
  CHECK(lrmoeTopologyCreate(1, &topology));
  lrmoePlannerConfig_t planning = LRMOE_PLANNER_CONFIG_INITIALIZER;
  planning.numExperts = numExperts;
  planning.retainPpm = 700000;
  CHECK(lrmoePlannerCreate(topology, &planning, &planner));
  lrmoeLayerConfig_t config = LRMOE_LAYER_CONFIG_INITIALIZER;
  config.hidden = hidden;
  config.ffn = ffn;
  config.maxTokens = numTokens;
  config.topk = topk;
  config.dtype = lrmoeFloat32;
  config.gemm = "reference";
  CHECK(lrmoeLayerCreate(comm, planner, &config, &layer));
  bindWeights(layer);
  runStep(layer, planner);
  float difference = compare();
  printf("largest difference of dx, d(alpha), dw1 and dw2: %g\n",
         (double)difference);
  CHECK(lrmoeLayerDestroy(layer));
  CHECK(lrmoePlannerDestroy(planner));
  CHECK(lrmoeTopologyDestroy(topology));
  CHECK(lrmoeCommDestroy(comm));
  return difference > 1e-5f;
}
