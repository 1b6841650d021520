/* The loop of a rank: see trainer.h.
 *
 * Everything of step i follows from the seed, i and the state before it: a run
 * that resumes goes on as if it had not stopped. */
#include "perf/train/trainer.h"

#include "perf/train/checkpoint.h"
#include "perf/train/ngram.h"
#include "perf/train/probe.h"
#include "tools/common/workload.h"

#include <math.h>
#include <stdlib.h>

struct trainer {
  const struct toolRank *self;
  const struct trainRun *run;
  const struct trainConfig *config;
  struct trainModel model;
  struct trainOptimizer optimizer;
  struct trainReport report; /* rank 0's */
  int64_t *starts;           /* [batch] of this rank's windows */
};

/* ---- Held-out text ------------------------------------------------------- */

/* Sets this rank's part of held-out windows [first, first + count) of all. */
static void setHeldOut(struct trainer *t, int64_t first, int64_t count,
                       int64_t all) {
  const struct trainText *text = &t->run->text;
  struct trainShare share =
      trainShareOf(count, t->self->rank, t->self->numRanks);
  for (int64_t i = 0; i < share.count; i++)
    t->starts[i] = trainTextHeldOutAt(text, t->config->shape.context, all,
                                      first + share.first + i);
  trainModelSet(&t->model, text->heldOut, t->starts, share.count);
}

/* Mean loss a byte.  Collective. */
static enum toolExit scoreHeldOut(struct trainer *t, double *loss) {
  int64_t context = t->config->shape.context;
  int64_t all =
      trainTextHeldOut(&t->run->text, context, t->config->heldOutWindows);
  double sum = 0;
  for (int64_t first = 0; first < all; first += t->config->batch) {
    int64_t count =
        all - first < t->config->batch ? all - first : t->config->batch;
    setHeldOut(t, first, count, all);
    enum toolExit code = trainModelForward(&t->model);
    if (code) return code;
    sum += trainModelScore(&t->model, all * context).loss;
    trainModelEnd(&t->model);
  }
  TOOL_RANK_OK(t->self, lrmoeAllReduce(&sum, &sum, 1, lrmoeFloat64, lrmoeSum,
                                       t->model.team.comm, NULL));
  *loss = sum;
  return toolGood;
}

/* The same bytes, by the n-gram model of the train part. */
static double scoreNgram(const struct trainer *t) {
  const struct trainText *text = &t->run->text;
  int64_t context = t->config->shape.context;
  int64_t all = trainTextHeldOut(text, context, t->config->heldOutWindows);
  struct trainNgram *ngram = trainNgramMake(text->train, text->numTrain);
  double loss = 0;
  for (int64_t i = 0; i < all; i++)
    loss +=
        trainNgramLoss(ngram, text->heldOut,
                       trainTextHeldOutAt(text, context, all, i) + 1, context);
  trainNgramFree(ngram);
  return loss / (double)(all * context);
}

/* ---- A step -------------------------------------------------------------- */

static void setBatch(struct trainer *t, int64_t step) {
  const struct trainText *text = &t->run->text;
  int64_t batch = t->config->batch;
  struct trainShare share =
      trainShareOf(batch, t->self->rank, t->self->numRanks);
  for (int64_t i = 0; i < share.count; i++)
    t->starts[i] = trainTextWindow(text, (uint64_t)t->config->seed,
                                   step * batch + share.first + i,
                                   t->config->shape.context);
  trainModelSet(&t->model, text->train, t->starts, share.count);
}

static int isDue(int64_t every, int64_t count) {
  return every > 0 && count % every == 0;
}

static uint64_t seedOf(const struct trainConfig *config, int64_t step) {
  struct toolRandom random =
      toolRandomMake((uint64_t)config->seed, ~(uint64_t)step);
  return toolRandomNext(&random);
}

static enum toolExit train(struct trainer *t, int64_t step,
                           struct trainStepFigures *figures) {
  const struct trainConfig *config = t->config;
  int64_t tokens = config->batch * config->shape.context;
  struct trainMoeFigures mine = {0};
  setBatch(t, step);
  t->model.team.keepsAll = step < config->exactSteps;
  enum toolExit code = trainModelForward(&t->model);
  if (code) return code;
  const struct trainModelLoss loss = trainModelScore(&t->model, tokens);
  code = trainModelBackward(&t->model, tokens, seedOf(config, step), &mine);
  trainModelEnd(&t->model);
  figures->learningRate = trainLearningRate(config, step);
  if (code == toolGood)
    code = trainOptimizerStep(&t->optimizer, figures->learningRate,
                              &figures->gradientNorm);
  if (code == toolGood)
    code = trainFiguresGather(&t->model.team, &loss, &mine, figures);
  if (code == toolGood) code = trainCostGather(&t->model, &figures->cost);
  return code;
}

/* A step, and what is due after it; steps are counted from 1 there. */
static enum toolExit runStep(struct trainer *t, int64_t step) {
  const struct trainConfig *config = t->config;
  struct trainStepFigures figures = {.step = step + 1, .heldOut = NAN};
  int isFirstRank = t->self->rank == 0;
  enum toolExit code = train(t, step, &figures);
  if (code) return code;
  if (isFirstRank && config->record && isDue(config->recordEvery, step + 1))
    trainReportLoads(&t->report, &t->model, step + 1);
  int isHeldOutDue = isDue(config->heldOutEvery, step + 1);
  if (isHeldOutDue) code = scoreHeldOut(t, &figures.heldOut);
  if (code) return code;
  if (isFirstRank)
    trainReportStep(&t->report, &figures,
                    isHeldOutDue || isDue(config->reportEvery, step + 1));
  if (config->checkpoint && (isDue(config->checkpointEvery, step + 1) ||
                             step + 1 == config->lastStep))
    code = trainCheckpointSave(&t->optimizer, t->run->text.hash, step + 1);
  return code;
}

/* Batches after the run's last. */
static void setProbe(void *user, int64_t i) {
  struct trainer *t = user;
  setBatch(t, t->config->numSteps + i);
}

static enum toolExit probe(struct trainer *t) {
  const struct trainProbe probe = {.model = &t->model,
                                   .numBatches = t->config->probeBatches,
                                   .set = setProbe,
                                   .user = t,
                                   .json = t->self->rank == 0 ? t->report.json
                                                              : NULL};
  return trainProbeRun(&probe);
}

/* ---- The run ------------------------------------------------------------- */

static enum toolExit finish(struct trainer *t) {
  double heldOut = 0;
  struct toolError error;
  enum toolExit code = scoreHeldOut(t, &heldOut);
  if (code == toolGood && t->config->probeBatches) code = probe(t);
  if (code || t->self->rank != 0) return code;
  code = trainReportEnd(&t->report, heldOut, scoreNgram(t), &error);
  return code == toolGood
             ? code
             : toolRankFail(t->self, lrmoeSuccess, "%s", error.text);
}

static enum toolExit runAll(struct trainer *t) {
  int64_t step = 0;
  enum toolExit code = trainModelOpen(t->self, t->config, &t->model);
  if (code == toolGood) code = trainOptimizerOpen(&t->model, &t->optimizer);
  if (code == toolGood && t->config->resumes)
    code = trainCheckpointResume(&t->optimizer, t->run->text.hash, &step);
  if (code) return code;
  if (t->self->rank == 0) {
    if (t->config->resumes)
      toolTableNote(stdout, "resumed after step %lld", (long long)step);
    trainReportOpen(t->config, t->run->json, &t->report);
  }
  for (; step < t->config->lastStep && code == toolGood; step++)
    code = runStep(t, step);
  return code == toolGood ? finish(t) : code;
}

enum toolExit trainRankMain(const struct toolRank *self) {
  const struct trainRun *run = self->user;
  struct trainer trainer = {.self = self,
                            .run = run,
                            .config = &run->config,
                            .starts =
                                trainRoom(run->config.batch, sizeof(int64_t))};
  enum toolExit code = runAll(&trainer);
  trainReportFree(&trainer.report);
  trainOptimizerClose(&trainer.optimizer);
  trainModelClose(&trainer.model);
  free(trainer.starts);
  return code;
}
