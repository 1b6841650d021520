/* What the MoE blocks of an update cost: see cost.h. */
#include "perf/train/cost.h"

#include "perf/train/model.h"
#include "tools/common/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const trainPhaseNames[trainNumPhases] = {
    "critical_prepare_ms",       "critical_dispatch_ms",
    "critical_compute_ms",       "critical_combine_ms",
    "critical_back_dispatch_ms", "critical_back_compute_ms",
    "critical_back_combine_ms",  "critical_reduce_ms"};

const char *const trainRoundNames[trainNumRounds] = {
    "wire_dispatch_bytes",      "wire_combine_bytes",      "wire_select_bytes",
    "wire_back_dispatch_bytes", "wire_back_combine_bytes", "wire_weights_bytes",
    "wire_gradients_bytes"};

/* ---- One rank and block -------------------------------------------------- */

void trainCostOpen(int numRanks, struct trainMoeCost *cost) {
  *cost = (struct trainMoeCost){
      .pairsTo = trainRoom(numRanks, sizeof *cost->pairsTo),
      .rowsTo = trainRoom(numRanks, sizeof *cost->rowsTo)};
}

void trainCostFree(struct trainMoeCost *cost) {
  free(cost->pairsTo);
  free(cost->rowsTo);
  *cost = (struct trainMoeCost){0};
}

void trainCostClear(int numRanks, struct trainMoeCost *cost) {
  int64_t *pairsTo = cost->pairsTo, *rowsTo = cost->rowsTo;
  memset(pairsTo, 0, (size_t)numRanks * sizeof *pairsTo);
  memset(rowsTo, 0, (size_t)numRanks * sizeof *rowsTo);
  *cost = (struct trainMoeCost){.pairsTo = pairsTo, .rowsTo = rowsTo};
}

void trainCostLap(struct trainMoeCost *cost, enum trainPhase phase,
                  int64_t *startNs) {
  int64_t now = toolCpuNs();
  cost->cpuNs[phase] += now - *startNs;
  *startNs = now;
}

/* Pairs of an expert go to its instances by their place among all of it: those
 * of the ranks before stand before this rank's. */
static void placesBefore(const struct trainMoe *moe,
                         const lrmoePlanView_t *view, int64_t *places) {
  for (int rank = 0; rank < moe->team->self->rank; rank++)
    for (int64_t e = 0; e < view->numExperts; e++)
      places[e] += view->demand[rank * (int64_t)view->numExperts + e];
}

static int32_t executorOf(const lrmoePlanView_t *view, int64_t expert,
                          int64_t place) {
  int32_t i = view->instanceOffsets[expert];
  for (; place >= view->forwardPairs[i]; i++)
    place -= view->forwardPairs[i];
  return view->instanceRanks[i];
}

/* Weights of replicas: what each rank gives and gets, the most of either. */
static int64_t replicaBytes(const struct trainShape *shape,
                            const lrmoePlanView_t *view) {
  int64_t *given = trainRoom(2 * (int64_t)view->numRanks, sizeof *given);
  int64_t *got = given + view->numRanks;
  int64_t most = 0;
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      if (view->instanceRanks[i] == view->homes[e]) continue;
      given[view->homes[e]]++;
      got[view->instanceRanks[i]]++;
    }
  for (int32_t i = 0; i < 2 * view->numRanks; i++)
    if (given[i] > most) most = given[i];
  free(given);
  return most * (trainExpertCount(shape, 0) + trainExpertCount(shape, 1)) *
         (int64_t)sizeof(float);
}

enum toolExit trainCostRoute(struct trainMoe *moe,
                             const struct trainRouting *routing) {
  lrmoePlanView_t view = LRMOE_PLAN_VIEW_INITIALIZER;
  TOOL_RANK_OK(moe->team->self, lrmoePlanGetView(moe->plan, &view));
  int64_t *places = trainRoom(view.numExperts, sizeof *places);
  int64_t *seen = trainRoom(view.numRanks, sizeof *seen); /* last token + 1 */
  placesBefore(moe, &view, places);
  for (int64_t pair = 0; pair < routing->numTokens * routing->topk; pair++) {
    int64_t expert = routing->experts[pair];
    int64_t token = pair / routing->topk + 1;
    if (expert < 0) continue;
    int32_t to = executorOf(&view, expert, places[expert]++);
    moe->cost.pairsTo[to]++;
    moe->cost.rowsTo[to] += seen[to] != token;
    seen[to] = token;
  }
  free(places);
  free(seen);
  moe->cost.replicaBytes = replicaBytes(&moe->team->config->shape, &view);
  return toolGood;
}

/* ---- All ranks ----------------------------------------------------------- */

/* What a rank tells of a block, as doubles, which hold it exactly; behind it
 * pairsTo [G] and rowsTo [G]. */
enum told {
  toldSelect = trainNumPhases,
  toldRows,
  toldReturn,
  toldMoved,
  numTold
};

struct gathered {
  const struct trainConfig *config;
  int numRanks;
  const double *told; /* of one block; a rank's is `stride` after the last's */
  int64_t stride;
};

static double saidOf(const struct gathered *all, int rank, int what) {
  return all->told[rank * all->stride + what];
}

static int64_t lengthOf(int numRanks) {
  return numTold + 2 * (int64_t)numRanks;
}

static void tell(const struct trainMoeCost *cost, int numRanks, double *told) {
  for (int i = 0; i < trainNumPhases; i++)
    told[i] = (double)cost->cpuNs[i];
  told[toldSelect] = (double)cost->selectBytes;
  told[toldRows] = (double)cost->rowBytes;
  told[toldReturn] = (double)cost->returnBytes;
  told[toldMoved] = (double)cost->movedIn;
  for (int rank = 0; rank < numRanks; rank++) {
    told[numTold + rank] = (double)cost->pairsTo[rank];
    told[numTold + numRanks + rank] = (double)cost->rowsTo[rank];
  }
}

/* Adds the phases [first, last] of the rank for which they take longest. */
static void addCritical(const struct gathered *all, int first, int last,
                        struct trainCost *cost) {
  double most = -1;
  int critical = 0;
  for (int rank = 0; rank < all->numRanks; rank++) {
    double sum = 0;
    for (int i = first; i <= last; i++)
      sum += saidOf(all, rank, i);
    if (sum > most) critical = rank;
    most = fmax(most, sum);
  }
  for (int i = first; i <= last; i++)
    cost->cpuMs[i] += 1e-6 * saidOf(all, critical, i);
}

/* Bytes from a source to an executor in forward, there and home. */
struct way {
  double out;
  double home;
};

/* A pair's token and alpha there, its |phi| home; home a row per pair where the
 * owner keeps them (see lrmoeRouterGrad_t). */
static struct way wayOf(const struct gathered *all, int from, int to) {
  double row = (double)all->config->shape.dim * (double)sizeof(float);
  double pairs = saidOf(all, from, numTold + to);
  double rows = saidOf(all, from, numTold + all->numRanks + to);
  double back = all->config->routerGrad == lrmoeRouterGradOwner ? pairs : rows;
  return (struct way){row * rows + 8 * pairs, row * back + 4 * pairs};
}

static void addForward(const struct gathered *all, struct trainCost *cost) {
  struct way most = {0};
  for (int rank = 0; rank < all->numRanks; rank++) {
    struct way source = {0}, executor = {0};
    for (int other = 0; other < all->numRanks; other++) {
      if (other == rank) continue;
      struct way there = wayOf(all, rank, other);
      struct way here = wayOf(all, other, rank);
      source.out += there.out;
      source.home += there.home;
      executor.out += here.out;
      executor.home += here.home;
    }
    most.out = fmax(most.out, fmax(source.out, executor.out));
    most.home = fmax(most.home, fmax(source.home, executor.home));
  }
  cost->bytes[trainRoundDispatch] += most.out;
  cost->bytes[trainRoundCombine] += most.home;
}

static void addBackward(const struct gathered *all, struct trainCost *cost) {
  double row = (double)all->config->shape.dim * (double)sizeof(float);
  double select = 0, out = 0, home = 0;
  for (int rank = 0; rank < all->numRanks; rank++) {
    double sent = saidOf(all, rank, toldRows);
    double returned = saidOf(all, rank, toldReturn);
    select = fmax(select, saidOf(all, rank, toldSelect));
    out = fmax(out, fmax(sent, returned + row * saidOf(all, rank, toldMoved)));
    home = fmax(home, fmax(returned, sent));
  }
  cost->bytes[trainRoundSelect] += select;
  cost->bytes[trainRoundBackDispatch] += out;
  cost->bytes[trainRoundBackCombine] += home;
}

enum toolExit trainCostGather(const struct trainModel *model,
                              struct trainCost *cost) {
  const struct toolRank *self = model->team.self;
  int64_t numLayers = model->config->shape.numLayers;
  int64_t length = lengthOf(self->numRanks);
  int64_t count = numLayers * length;
  double *own = trainRoom(count, sizeof *own);
  double *told = trainRoom(self->numRanks * count, sizeof *told);
  for (int64_t i = 0; i < numLayers; i++)
    tell(&model->layers[i].moe.cost, self->numRanks, own + i * length);
  lrmoeResult_t result = lrmoeAllGather(own, told, (size_t)count, lrmoeFloat64,
                                        model->team.comm, NULL);
  *cost = (struct trainCost){0};
  for (int64_t i = 0; i < numLayers && result == lrmoeSuccess; i++) {
    const struct gathered all = {model->config, self->numRanks,
                                 told + i * length, count};
    addCritical(&all, trainPhasePrepare, trainPhaseCombine, cost);
    addCritical(&all, trainPhaseBackDispatch, trainPhaseBackCombine, cost);
    addCritical(&all, trainPhaseReduce, trainPhaseReduce, cost);
    addForward(&all, cost);
    addBackward(&all, cost);
    double replicas = (double)model->layers[i].moe.cost.replicaBytes;
    cost->bytes[trainRoundWeights] += replicas;
    cost->bytes[trainRoundGradients] += replicas;
  }
  free(own);
  free(told);
  TOOL_RANK_OK(self, result);
  return toolGood;
}
