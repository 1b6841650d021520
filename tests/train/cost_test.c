/* What an update's blocks cost: bytes are those that the library counts and
 * that follow from routing and plan; the critical rank's parts are one rank's.
 */
#include "perf/train/model.h"
#include "perf/train/optimizer.h"
#include "support/suite.h"
#include "tiny.h"

#include <math.h>
#include <string.h>

enum {
  maxRanks = 4,
  maxPairs = 128, /* of a rank */
  numLayers = 2
};

/* What one rank had of one block. */
struct block {
  int64_t cpuNs[trainNumPhases];
  int64_t pairsTo[maxRanks];
  int64_t rowsTo[maxRanks];
  int64_t selectBytes, rowBytes, returnBytes, movedIn, replicaBytes;
  int64_t experts[maxPairs];
  int64_t numTokens;
  int64_t numReplicas;
};

/* In memory that ranks share. */
struct update {
  struct trainConfig config;
  int numRanks;
  struct block blocks[maxRanks][numLayers];
  struct trainCost costs[maxRanks];
};

static enum toolExit keep(const struct trainModel *model, int64_t layer,
                          struct block *block) {
  const struct trainLayer *from = &model->layers[layer];
  const struct trainMoeCost *cost = &from->moe.cost;
  size_t ranks = (size_t)model->team.self->numRanks;
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  TOOL_RANK_OK(model->team.self, lrmoePlanGetView(from->moe.plan, &view));
  memcpy(block->pairsTo, cost->pairsTo, ranks * sizeof *block->pairsTo);
  memcpy(block->rowsTo, cost->rowsTo, ranks * sizeof *block->rowsTo);
  block->selectBytes = cost->selectBytes;
  block->rowBytes = cost->rowBytes;
  block->returnBytes = cost->returnBytes;
  block->movedIn = cost->movedIn;
  block->replicaBytes = cost->replicaBytes;
  block->numTokens = from->routing.numTokens;
  block->numReplicas = view.numReplicas;
  memcpy(block->experts, from->routing.experts,
         (size_t)(block->numTokens * from->routing.topk) *
             sizeof *block->experts);
  return toolGood;
}

static enum toolExit runUpdate(const struct toolRank *self) {
  struct update *update = self->user;
  struct trainModel model;
  struct trainMoeFigures figures = {0};
  enum toolExit code = trainModelOpen(self, &update->config, &model);
  if (code == toolGood) tinySet(&model);
  if (code == toolGood) code = trainModelForward(&model);
  if (code == toolGood) trainModelScore(&model, tinyTokens(&model));
  if (code == toolGood)
    code = trainModelBackward(&model, tinyTokens(&model), 1, &figures);
  for (int64_t i = 0; i < numLayers && code == toolGood; i++)
    code = keep(&model, i, &update->blocks[self->rank][i]);
  if (code == toolGood) trainModelEnd(&model);
  if (code == toolGood) code = trainOptimizerGather(&model);
  for (int64_t i = 0; i < numLayers && code == toolGood; i++)
    memcpy(update->blocks[self->rank][i].cpuNs, model.layers[i].moe.cost.cpuNs,
           sizeof update->blocks[self->rank][i].cpuNs);
  if (code == toolGood)
    code = trainCostGather(&model, &update->costs[self->rank]);
  trainModelClose(&model);
  return code;
}

static struct update *make(int numRanks, const struct trainConfig *config) {
  struct update *update = toolSharedAlloc(sizeof *update);
  struct toolError error = {""};
  ck_assert_ptr_nonnull(update);
  update->config = *config;
  update->numRanks = numRanks;
  int code = toolRanksRun(numRanks, runUpdate, update, NULL, &error);
  ck_assert_msg(code == 0, "%d ranks: %s", numRanks, error.text);
  return update;
}

static void drop(struct update *update) {
  toolSharedFree(update, sizeof *update);
}

/* ---- What is expected ---------------------------------------------------- */

static double rowOf(const struct update *update) {
  return (double)update->config.shape.dim * (double)sizeof(float);
}

/* Every pair once, and with experts at home where the expert's home is. */
static void checkRoute(const struct update *update, int rank, int layer) {
  const struct block *block = &update->blocks[rank][layer];
  int64_t topk = update->config.shape.topk;
  int64_t pairs[maxRanks] = {0}, rows[maxRanks] = {0}, sum = 0;
  for (int64_t token = 0; token < block->numTokens; token++) {
    int isThere[maxRanks] = {0};
    for (int64_t k = 0; k < topk; k++) {
      int64_t expert = block->experts[token * topk + k];
      int64_t home =
          expert * update->numRanks / update->config.shape.numExperts;
      pairs[home]++;
      rows[home] += !isThere[home];
      isThere[home] = 1;
    }
  }
  for (int to = 0; to < update->numRanks; to++) {
    sum += block->pairsTo[to];
    ck_assert_int_le(block->rowsTo[to], block->pairsTo[to]);
    if (block->numReplicas) continue;
    ck_assert_int_eq(block->pairsTo[to], pairs[to]);
    ck_assert_int_eq(block->rowsTo[to], rows[to]);
  }
  ck_assert_int_eq(sum, block->numTokens * topk);
}

/* All pairs kept where forward ran them: what the library has sent is the rows
 * of forward's route, with the counts that the fused exchange carries; home it
 * sends a row for each that came, and 4 bytes a pair. */
static void checkSent(const struct update *update, int rank, int layer) {
  const struct block *block = &update->blocks[rank][layer];
  double out = 0, home = 0;
  for (int other = 0; other < update->numRanks; other++) {
    if (other == rank) continue;
    const struct block *peer = &update->blocks[other][layer];
    out += rowOf(update) * (double)block->rowsTo[other];
    home += rowOf(update) * (double)peer->rowsTo[rank] +
            4 * (double)peer->pairsTo[rank];
  }
  double more = (double)block->rowBytes - out;
  ck_assert_msg(more == 0 || more == 8 * (update->numRanks - 1),
                "%g bytes more than rows", more);
  ck_assert_double_eq((double)block->returnBytes, home);
  ck_assert_int_eq(block->selectBytes, 0); /* all kept: no scores */
}

/* The longest of each round, of both blocks together. */
static struct trainCost expect(const struct update *update) {
  struct trainCost cost = {0};
  for (int layer = 0; layer < numLayers; layer++) {
    double most[trainNumRounds] = {0};
    for (int rank = 0; rank < update->numRanks; rank++) {
      const struct block *block = &update->blocks[rank][layer];
      double moved = rowOf(update) * (double)block->movedIn;
      double sums[4] = {0}; /* dispatch sent, received; combine likewise */
      for (int other = 0; other < update->numRanks; other++) {
        const struct block *peer = &update->blocks[other][layer];
        if (other == rank) continue;
        sums[0] += rowOf(update) * (double)block->rowsTo[other] +
                   8 * (double)block->pairsTo[other];
        sums[1] += rowOf(update) * (double)peer->rowsTo[rank] +
                   8 * (double)peer->pairsTo[rank];
        sums[2] += (rowOf(update) + 4) * (double)peer->pairsTo[rank];
        sums[3] += (rowOf(update) + 4) * (double)block->pairsTo[other];
      }
      const double here[trainNumRounds] = {
          [trainRoundDispatch] = fmax(sums[0], sums[1]),
          [trainRoundCombine] = fmax(sums[2], sums[3]),
          [trainRoundSelect] = (double)block->selectBytes,
          [trainRoundBackDispatch] =
              fmax((double)block->rowBytes, (double)block->returnBytes + moved),
          [trainRoundBackCombine] =
              fmax((double)block->returnBytes, (double)block->rowBytes),
          [trainRoundWeights] = (double)block->replicaBytes,
          [trainRoundGradients] = (double)block->replicaBytes};
      for (int i = 0; i < trainNumRounds; i++)
        most[i] = fmax(most[i], here[i]);
    }
    for (int i = 0; i < trainNumRounds; i++)
      cost.bytes[i] += most[i];
  }
  return cost;
}

static double sumOf(const struct block *block, int first, int last) {
  double sum = 0;
  for (int i = first; i <= last; i++)
    sum += (double)block->cpuNs[i];
  return sum;
}

/* The longest pass of any rank is the sum of the parts that are shown. */
static void checkPass(const struct update *update, int first, int last) {
  double all = 0, shown = 0;
  for (int layer = 0; layer < numLayers; layer++) {
    double most = 0;
    for (int rank = 0; rank < update->numRanks; rank++)
      most = fmax(most, sumOf(&update->blocks[rank][layer], first, last));
    all += most;
  }
  for (int i = first; i <= last; i++)
    shown += update->costs[0].cpuMs[i];
  ck_assert_double_gt(shown, 0);
  ck_assert_double_eq_tol(shown, all * 1e-6, 1e-9 * shown);
}

static void check(const struct update *update) {
  const struct trainCost expected = expect(update);
  for (int rank = 0; rank < update->numRanks; rank++) {
    const struct trainCost *cost = &update->costs[rank];
    ck_assert_mem_eq(cost, &update->costs[0], sizeof *cost);
    for (int i = 0; i < trainNumRounds; i++)
      ck_assert_msg(cost->bytes[i] == expected.bytes[i], "%s: %.17g, not %.17g",
                    trainRoundNames[i], cost->bytes[i], expected.bytes[i]);
    for (int layer = 0; layer < numLayers; layer++)
      checkRoute(update, rank, layer);
  }
  checkPass(update, trainPhasePrepare, trainPhaseCombine);
  checkPass(update, trainPhaseBackDispatch, trainPhaseBackCombine);
  checkPass(update, trainPhaseReduce, trainPhaseReduce);
}

/* ---- Tests --------------------------------------------------------------- */

START_TEST(expertsAtHome) {
  struct trainConfig config = tinyConfig();
  config.metric = lrmoeMetricAll;
  for (int numRanks = 1; numRanks <= maxRanks; numRanks++) {
    struct update *update = make(numRanks, &config);
    check(update);
    for (int i = 0; i < numRanks * numLayers; i++)
      checkSent(update, i / numLayers, i % numLayers);
    ck_assert_int_eq(update->blocks[0][0].replicaBytes, 0);
    drop(update);
  }
}
END_TEST

/* A rank that has or gives one replica, or more. */
START_TEST(replicas) {
  struct trainConfig config = tinyConfig();
  int64_t numReplicas = 0;
  config.metric = lrmoeMetricAll;
  config.policy = lrmoePolicyQuota;
  config.numSlots = 1;
  for (int numRanks = 2; numRanks <= maxRanks; numRanks++) {
    struct update *update = make(numRanks, &config);
    check(update);
    for (int i = 0; i < numRanks * numLayers; i++) {
      const struct block *block = &update->blocks[i / numLayers][i % numLayers];
      int64_t expertBytes = 3 * config.shape.dim * config.shape.ffn * 4;
      checkSent(update, i / numLayers, i % numLayers);
      ck_assert_int_eq(block->replicaBytes % expertBytes, 0);
      ck_assert_int_le(block->replicaBytes, block->numReplicas * expertBytes);
      ck_assert((block->replicaBytes > 0) == (block->numReplicas > 0));
      numReplicas += block->numReplicas;
    }
    drop(update);
  }
  ck_assert_int_gt(numReplicas, 0);
}
END_TEST

/* Half of the pairs: fewer bytes, and scores that are exchanged. */
START_TEST(droppedPairs) {
  struct trainConfig config = tinyConfig();
  config.metric = lrmoeMetricAll;
  struct update *whole = make(3, &config);
  config.metric = lrmoeMetricLrm;
  config.retain = 0.5;
  config.policy = lrmoePolicyLrmoe;
  config.numSlots = 1;
  struct update *half = make(3, &config);
  check(half);
  const double *all = whole->costs[0].bytes, *kept = half->costs[0].bytes;
  ck_assert_double_gt(kept[trainRoundSelect], 0);
  ck_assert_double_lt(kept[trainRoundBackCombine], all[trainRoundBackCombine]);
  drop(whole);
  drop(half);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {expertsAtHome, replicas, droppedPairs};
  return suiteRunTests("cost", tests, sizeof tests / sizeof *tests, 240);
}
