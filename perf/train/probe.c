/* Gradients of kept pairs beside those of all: see probe.h. */
#include "perf/train/probe.h"

#include "perf/train/optimizer.h"
#include "tools/common/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  lrmoeMetric_t metric;
} ways[] = {{"lrm", lrmoeMetricLrm},
            {"grad2", lrmoeMetricGrad2},
            {"grad1", lrmoeMetricGrad1},
            {"random", lrmoeMetricRandom}};

enum {
  numWays = sizeof ways / sizeof *ways,
  numParts = 2 /* the experts' gradients, and the dense ones */
};

static const char *const partNames[numParts] = {"experts", "dense"};

struct work {
  const struct trainProbe *probe;
  struct trainModel *model;
  int64_t counts[numParts]; /* of this rank */
  float *exact;             /* of a batch, [counts] one after the other */
  float *kept;              /* of a batch, one way */
  float *exactSum;          /* over batches */
  float *keptSums[numWays];
  double once[numWays][numParts]; /* sum over batches of relative errors */
};

/* ---- Vectors ------------------------------------------------------------- */

static int64_t expertsCount(const struct trainModel *model) {
  const struct trainShape *shape = &model->config->shape;
  return model->layers[0].moe.numLocal *
         (trainExpertCount(shape, 0) + trainExpertCount(shape, 1));
}

static int64_t countOf(const struct work *work) {
  return work->counts[0] + work->counts[1];
}

/* Takes the model's gradients, and sets them to zero. */
static void take(const struct work *work, float *to) {
  struct trainModel *model = work->model;
  int64_t count = expertsCount(model);
  for (int64_t i = 0; i < model->config->shape.numLayers; i++) {
    float *gradients = model->layers[i].moe.gradients;
    memcpy(to + i * count, gradients, (size_t)count * sizeof *to);
    memset(gradients, 0, (size_t)count * sizeof *to);
  }
  size_t bytes = (size_t)work->counts[1] * sizeof *to;
  memcpy(to + work->counts[0], model->gradients.all, bytes);
  memset(model->gradients.all, 0, bytes);
}

static void add(const struct work *work, const float *from, float *to) {
  for (int64_t i = 0; i < countOf(work); i++)
    to[i] += from[i];
}

/* <a, b>, <a, a>, <b, b>: of all ranks. */
struct products {
  double ab, aa, bb;
};

static enum toolExit multiply(const struct work *work, int part, const float *a,
                              const float *b, struct products *products) {
  int64_t first = part ? work->counts[0] : 0;
  double sums[3] = {0};
  for (int64_t i = first; i < first + work->counts[part]; i++) {
    sums[0] += (double)a[i] * (double)b[i];
    sums[1] += (double)a[i] * (double)a[i];
    sums[2] += (double)b[i] * (double)b[i];
  }
  if (part == 0) /* each rank has its own experts; the rest all have */
    TOOL_RANK_OK(work->model->team.self,
                 lrmoeAllReduce(sums, sums, 3, lrmoeFloat64, lrmoeSum,
                                work->model->team.comm, NULL));
  *products = (struct products){sums[0], sums[1], sums[2]};
  return toolGood;
}

/* |a - b| / |b| */
static double errorOf(const struct products *p) {
  return sqrt(fmax(p->aa - 2 * p->ab + p->bb, 0) / p->bb);
}

/* ---- A batch ------------------------------------------------------------- */

/* The gradients of batch i with the pairs that the metric keeps. */
static enum toolExit run(const struct work *work, int64_t i,
                         lrmoeMetric_t metric, float *to) {
  struct trainModel *model = work->model;
  struct trainMoeFigures figures = {0};
  const struct trainConfig *config = model->config;
  struct trainConfig other = *config;
  int64_t tokens = config->batch * config->shape.context;
  other.metric = metric;
  work->probe->set(work->probe->user, i);
  enum toolExit code = trainModelForward(model);
  if (code) return code;
  trainModelScore(model, tokens);
  model->team.config = &other;
  model->team.keepsAll = 0;
  code = trainModelBackward(model, tokens, (uint64_t)i << 20, &figures);
  model->team.config = config;
  trainModelEnd(model);
  if (code == toolGood) code = trainOptimizerGather(model);
  take(work, to);
  return code;
}

static enum toolExit runBatch(struct work *work, int64_t i) {
  struct products products = {0};
  enum toolExit code = run(work, i, lrmoeMetricAll, work->exact);
  add(work, work->exact, work->exactSum);
  for (int w = 0; w < numWays && code == toolGood; w++) {
    code = run(work, i, ways[w].metric, work->kept);
    add(work, work->kept, work->keptSums[w]);
    for (int part = 0; part < numParts && code == toolGood; part++) {
      code = multiply(work, part, work->kept, work->exact, &products);
      work->once[w][part] += errorOf(&products);
    }
  }
  return code;
}

/* ---- What comes out ------------------------------------------------------ */

static const struct toolColumn columns[] = {
    {"gradients", "", 9},      {"select", "", 7},      {"batches", "", 7},
    {"error_batch", "", 11},   {"error_mean", "", 10}, {"scale_mean", "", 10},
    {"direction_mean", "", 14}};

/* `direction`: the error that no factor takes away, as an optimizer that
 * divides by the gradient's size sees it. */
static void show(const struct work *work, int w, int part,
                 const struct products *p, struct toolTable *table) {
  double cosine = p->ab / sqrt(p->aa * p->bb);
  double n = (double)work->probe->numBatches;
  toolTableText(table, partNames[part]);
  toolTableText(table, ways[w].name);
  toolTableInt(table, work->probe->numBatches);
  toolTableReal(table, work->once[w][part] / n, 4);
  toolTableReal(table, errorOf(p), 4);
  toolTableReal(table, p->ab / p->bb, 4);
  toolTableReal(table, sqrt(fmax(1 - cosine * cosine, 0)), 4);
  toolJsonText(table->json, "row", "probe");
}

static enum toolExit showAll(const struct work *work) {
  int isFirst = work->model->team.self->rank == 0;
  struct toolTable table = {.out = stdout,
                            .json = work->probe->json,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  struct products products = {0};
  enum toolExit code = toolGood;
  if (isFirst) toolTableBegin(&table);
  for (int i = 0; i < numParts * numWays && code == toolGood; i++) {
    int part = i / numWays, w = i % numWays;
    code = multiply(work, part, work->keptSums[w], work->exactSum, &products);
    if (code == toolGood && isFirst) show(work, w, part, &products, &table);
  }
  return code;
}

enum toolExit trainProbeRun(const struct trainProbe *probe) {
  struct trainModel *model = probe->model;
  struct work work = {.probe = probe, .model = model};
  work.counts[0] = model->config->shape.numLayers * expertsCount(model);
  work.counts[1] = model->gradients.count;
  work.exact = trainRoom(countOf(&work), sizeof(float));
  work.kept = trainRoom(countOf(&work), sizeof(float));
  work.exactSum = trainRoom(countOf(&work), sizeof(float));
  for (int w = 0; w < numWays; w++)
    work.keptSums[w] = trainRoom(countOf(&work), sizeof(float));
  enum toolExit code = toolGood;
  for (int64_t i = 0; i < probe->numBatches && code == toolGood; i++)
    code = runBatch(&work, i);
  if (code == toolGood) code = showAll(&work);
  free(work.exact);
  free(work.kept);
  free(work.exactSum);
  for (int w = 0; w < numWays; w++)
    free(work.keptSums[w]);
  return code;
}
