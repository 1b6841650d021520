/* Checkpoints: see checkpoint.h. */
#include "perf/train/checkpoint.h"

#include "perf/train/folder.h"
#include "perf/train/shard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Records of a file: expert e of layer l is l * experts + e. */
enum {
  recordDense = -1,
  recordPast = -2
};

/* Numbers at the head of each file; those before `factStep` must be those of
 * the run that resumes. */
enum fact {
  factVersion,
  factDim,
  factLayers,
  factHeads,
  factExperts,
  factTopk,
  factFfn,
  factContext,
  factGrams,
  factGramRows,
  factBatch,
  factSeed,
  factText,
  factStep,
  factRanks,
  numFacts
};

static const char *const factNames[] = {
    "format",  "--dim",  "--layers",  "--heads", "--experts",
    "--topk",  "--ffn",  "--context", "--grams", "--gram-rows",
    "--batch", "--seed", "text"};

_Static_assert((int)numFacts <= (int)trainShardFacts, "facts have room");

/* What saving and resuming work on. */
struct job {
  struct trainOptimizer *optimizer;
  const struct trainModel *model;
  const struct toolRank *self;
  const char *folder;
  int64_t facts[trainShardFacts]; /* of this run */
};

static struct job jobOf(struct trainOptimizer *optimizer, uint64_t textHash) {
  const struct trainModel *model = optimizer->model;
  const struct trainConfig *config = model->config;
  const struct trainShape *shape = &config->shape;
  return (struct job){.optimizer = optimizer,
                      .model = model,
                      .self = model->team.self,
                      .folder = config->checkpoint,
                      .facts = {[factVersion] = 2,
                                [factDim] = shape->dim,
                                [factLayers] = shape->numLayers,
                                [factHeads] = shape->numHeads,
                                [factExperts] = shape->numExperts,
                                [factTopk] = shape->topk,
                                [factFfn] = shape->ffn,
                                [factContext] = shape->context,
                                [factGrams] = shape->numGrams,
                                [factGramRows] = shape->gramRows,
                                [factBatch] = config->batch,
                                [factSeed] = config->seed,
                                [factText] = (int64_t)textHash,
                                [factRanks] = model->team.self->numRanks}};
}

/* Whether all ranks say 1; also a point that none passes before the others. */
static enum toolExit agree(const struct job *job, int isGood, int *allGood) {
  int32_t value = isGood;
  TOOL_RANK_OK(job->self,
               lrmoeAllReduce(&value, &value, 1, lrmoeInt32, lrmoeMin,
                              job->model->team.comm, NULL));
  *allGood = value;
  return toolGood;
}

/* Fails where a rank failed; `why` is this rank's errno. */
static enum toolExit agreeOn(const struct job *job, int why, const char *what) {
  int allGood = 0;
  enum toolExit code = agree(job, why == 0, &allGood);
  if (code || allGood) return code;
  return toolRankFail(job->self, lrmoeSuccess, "%s in %.200s: %s", what,
                      job->folder, why ? strerror(why) : "see another rank");
}

static int64_t expertId(const struct job *job, int64_t i) {
  int64_t numLocal =
      job->optimizer->numExperts / job->model->config->shape.numLayers;
  const struct trainMoe *moe = &job->model->layers[i / numLocal].moe;
  return i / numLocal * job->model->config->shape.numExperts +
         moe->local[i % numLocal];
}

/* ---- Save ---------------------------------------------------------------- */

static enum toolExit addOptimizer(const struct job *job,
                                  lrmoeHostOptimizer_t optimizer, int64_t id,
                                  struct trainShard *shard) {
  size_t bytes = 0;
  TOOL_RANK_OK(job->self, lrmoeHostOptimizerSave(optimizer, NULL, &bytes));
  void *place = trainShardAdd(shard, id, bytes);
  TOOL_RANK_OK(job->self, lrmoeHostOptimizerSave(optimizer, place, &bytes));
  return toolGood;
}

static void addPast(const struct job *job, struct trainShard *shard) {
  const struct trainShape *shape = &job->model->config->shape;
  size_t bytes = (size_t)shape->numExperts * sizeof(int64_t);
  char *place =
      trainShardAdd(shard, recordPast, (size_t)shape->numLayers * bytes);
  for (int64_t i = 0; i < shape->numLayers; i++)
    memcpy(place + (size_t)i * bytes, job->model->layers[i].moe.past, bytes);
}

static enum toolExit fill(const struct job *job, struct trainShard *shard) {
  const struct trainOptimizer *optimizer = job->optimizer;
  enum toolExit code = toolGood;
  if (job->self->rank == 0) {
    addPast(job, shard);
    code = addOptimizer(job, optimizer->dense, recordDense, shard);
  }
  for (int64_t i = 0; i < optimizer->numExperts && code == toolGood; i++)
    code = addOptimizer(job, optimizer->experts[i], expertId(job, i), shard);
  return code;
}

enum toolExit trainCheckpointSave(struct trainOptimizer *optimizer,
                                  uint64_t textHash, int64_t step) {
  struct job job = jobOf(optimizer, textHash);
  int isFirst = job.self->rank == 0;
  char path[trainPathRoom];
  job.facts[factStep] = step;
  enum toolExit code =
      agreeOn(&job, isFirst ? trainFolderBegin(job.folder, step) : 0,
              "cannot begin a checkpoint");
  if (code) return code;
  struct trainShard shard = trainShardBegin(job.facts);
  code = fill(&job, &shard);
  trainFolderShard(job.folder, step, 1, job.self->rank, path);
  int why = code == toolGood ? trainShardWrite(&shard, path) : EIO;
  trainShardFree(&shard);
  if (code) return code;
  code = agreeOn(&job, why, "cannot write a checkpoint");
  if (code) return code;
  return agreeOn(&job, isFirst ? trainFolderCommit(job.folder, step) : 0,
                 "cannot complete a checkpoint");
}

/* ---- Resume -------------------------------------------------------------- */

/* What a rank thinks of a checkpoint. */
enum verdict {
  verdictWhole,
  verdictDamaged,
  verdictOther /* of another run: refused */
};

/* Name of the first fact that is not this run's; NULL: none. */
static const char *differingFact(const struct job *job, const int64_t *facts) {
  for (int i = 0; i < factStep; i++)
    if (facts[i] != job->facts[i]) return factNames[i];
  return NULL;
}

/* Loads an optimizer if the shard has it: 1, 0, or -1 where it is damaged. */
static int load(const struct trainShard *shard, int64_t id,
                lrmoeHostOptimizer_t optimizer) {
  size_t bytes = 0;
  const void *record = trainShardFind(shard, id, &bytes);
  if (!record) return 0;
  return lrmoeHostOptimizerLoad(optimizer, record, bytes) == lrmoeSuccess ? 1
                                                                          : -1;
}

static int loadPast(const struct job *job, const struct trainShard *shard) {
  const struct trainShape *shape = &job->model->config->shape;
  size_t bytes = (size_t)shape->numExperts * sizeof(int64_t), got = 0;
  const char *record = trainShardFind(shard, recordPast, &got);
  if (!record) return 0;
  if (got != (size_t)shape->numLayers * bytes) return -1;
  for (int64_t i = 0; i < shape->numLayers; i++)
    memcpy(job->model->layers[i].moe.past, record + (size_t)i * bytes, bytes);
  return 1;
}

/* Takes what this rank needs; *found counts it. */
static enum verdict takeShard(const struct job *job,
                              const struct trainShard *shard, int64_t *found) {
  const struct trainOptimizer *optimizer = job->optimizer;
  int got = loadPast(job, shard);
  *found += got;
  for (int64_t i = -1; i < optimizer->numExperts && got >= 0; i++) {
    got = i < 0 ? load(shard, recordDense, optimizer->dense)
                : load(shard, expertId(job, i), optimizer->experts[i]);
    *found += got;
  }
  return got < 0 ? verdictDamaged : verdictWhole;
}

static enum verdict takeStep(const struct job *job, int64_t step,
                             const char **differing) {
  int64_t numShards = 1, found = 0;
  for (int64_t i = 0; i < numShards; i++) {
    struct trainShard shard = {0};
    int64_t facts[trainShardFacts];
    char path[trainPathRoom];
    trainFolderShard(job->folder, step, 0, (int)i, path);
    if (trainShardRead(path, &shard, facts)) return verdictDamaged;
    *differing = differingFact(job, facts);
    enum verdict verdict = *differing ? verdictOther : verdictWhole;
    if (facts[factStep] != step) verdict = verdictDamaged;
    numShards = facts[factRanks];
    if (verdict == verdictWhole) verdict = takeShard(job, &shard, &found);
    trainShardFree(&shard);
    if (verdict != verdictWhole) return verdict;
  }
  return found == job->optimizer->numExperts + 2 ? verdictWhole
                                                 : verdictDamaged;
}

/* What is in DIR is the user's matter, not a call that failed. */
static enum toolExit refuse(const struct job *job, const char *what,
                            const char *more) {
  toolRankFail(job->self, lrmoeSuccess, "--checkpoint %.200s: %s%s",
               job->folder, what, more);
  return toolBadInput;
}

/* All ranks go on to the next one where any of them finds this one damaged. */
static enum toolExit tryStep(const struct job *job, int64_t step,
                             int *isTaken) {
  const char *differing = NULL;
  enum verdict verdict = takeStep(job, step, &differing);
  enum toolExit code = agree(job, verdict != verdictDamaged, isTaken);
  if (code) return code;
  if (verdict == verdictOther)
    return refuse(job, "was made with another ", differing);
  if (!*isTaken && job->self->rank == 0)
    fprintf(stderr, "# checkpoint %lld in %s is damaged: not used\n",
            (long long)step, job->folder);
  return toolGood;
}

enum toolExit trainCheckpointResume(struct trainOptimizer *optimizer,
                                    uint64_t textHash, int64_t *step) {
  struct job job = jobOf(optimizer, textHash);
  int64_t steps[trainMaxFolders];
  int count = trainFolderList(job.folder, steps);
  int isTaken = 0;
  enum toolExit code = toolGood;
  *step = 0;
  for (int i = 0; i < count && !isTaken && code == toolGood; i++) {
    code = tryStep(&job, steps[i], &isTaken);
    *step = steps[i];
  }
  if (code || !count) return code;
  if (!isTaken) return refuse(&job, "no checkpoint in it is whole", "");
  return trainOptimizerPull(optimizer);
}
