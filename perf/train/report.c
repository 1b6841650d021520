/* What a step did: see report.h. */
#include "perf/train/report.h"

#include "tools/common/file.h"
#include "tools/common/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Figures ------------------------------------------------------------- */

/* What ranks tell each other; all as doubles, which hold them exactly. */
enum told {
  toldLoss,
  toldAuxiliary,
  toldPairs,
  toldKept,
  toldMoved,
  toldBytes,
  toldCpuNs,
  toldWallNs,
  toldGemmNs,
  numTold
};

static double sumOf(const double *told, int numRanks, enum told what) {
  double sum = 0;
  for (int rank = 0; rank < numRanks; rank++)
    sum += told[rank * numTold + (int)what];
  return sum;
}

static double mostOf(const double *told, int numRanks, enum told what) {
  double most = 0;
  for (int rank = 0; rank < numRanks; rank++)
    most = fmax(most, told[rank * numTold + (int)what]);
  return most;
}

static void summarise(const double *told, int numRanks,
                      struct trainStepFigures *figures) {
  figures->loss = sumOf(told, numRanks, toldLoss);
  figures->auxiliary = sumOf(told, numRanks, toldAuxiliary);
  figures->pairs = (int64_t)sumOf(told, numRanks, toldPairs);
  figures->kept = (int64_t)sumOf(told, numRanks, toldKept);
  figures->moved = (int64_t)sumOf(told, numRanks, toldMoved);
  figures->bytes = (int64_t)sumOf(told, numRanks, toldBytes);
  figures->cpuMs = 1e-6 * mostOf(told, numRanks, toldCpuNs);
  figures->wallMs = 1e-6 * mostOf(told, numRanks, toldWallNs);
  figures->gemmMs = 1e-6 * mostOf(told, numRanks, toldGemmNs);
}

enum toolExit trainFiguresGather(const struct trainTeam *team,
                                 const struct trainModelLoss *loss,
                                 const struct trainMoeFigures *mine,
                                 struct trainStepFigures *figures) {
  int numRanks = team->self->numRanks;
  const double own[numTold] = {[toldLoss] = loss->loss,
                               [toldAuxiliary] = loss->auxiliary,
                               [toldPairs] = (double)mine->pairs,
                               [toldKept] = (double)mine->kept,
                               [toldMoved] = (double)mine->moved,
                               [toldBytes] = (double)mine->bytes,
                               [toldCpuNs] = (double)mine->cpuNs,
                               [toldWallNs] = (double)mine->wallNs,
                               [toldGemmNs] = (double)mine->gemmNs};
  double *told = trainRoom((int64_t)numRanks * numTold, sizeof *told);
  lrmoeResult_t result =
      lrmoeAllGather(own, told, numTold, lrmoeFloat64, team->comm, NULL);
  if (result == lrmoeSuccess) summarise(told, numRanks, figures);
  free(told);
  TOOL_RANK_OK(team->self, result);
  double blocks = (double)mine->numBlocks;
  figures->imbalance = mine->imbalance / blocks;
  figures->forwardImbalance = mine->forwardImbalance / blocks;
  return toolGood;
}

/* ---- Table and JSON ------------------------------------------------------ */

static const struct toolColumn columns[] = {
    {"step", "", 6},        {"loss", "nats/B", 8}, {"held_out", "nats/B", 8},
    {"held_ppl", "", 8},    {"tokens", "/s", 8},   {"retention", "", 9},
    {"imbalance", "", 9},   {"bytes", "step", 10}, {"backward_cpu", "ms", 12},
    {"norm", "gradient", 8}};

void trainReportOpen(const struct trainConfig *config, struct toolJson *json,
                     struct trainReport *report) {
  *report = (struct trainReport){
      .config = config,
      .json = json,
      .table = {.out = stdout,
                .columns = columns,
                .numColumns = sizeof columns / sizeof *columns},
      .firstStep = -1,
      .startNs = toolWallNs()};
  toolTableBegin(&report->table);
}

void trainReportFree(struct trainReport *report) {
  free(report->loads);
  toolJsonDrop(report->json);
  *report = (struct trainReport){0};
}

static double shareOf(int64_t part, int64_t all) {
  return all ? (double)part / (double)all : 1;
}

static void writeJson(struct toolJson *json, const struct trainStepFigures *f) {
  toolJsonRow(json);
  toolJsonInt(json, "step", f->step);
  toolJsonReal(json, "loss", f->loss);
  toolJsonReal(json, "auxiliary", f->auxiliary);
  toolJsonReal(json, "held_out", f->heldOut);
  toolJsonReal(json, "held_out_ppl", exp(f->heldOut));
  toolJsonReal(json, "tokens_per_s", f->tokensPerSecond);
  toolJsonReal(json, "retention", shareOf(f->kept, f->pairs));
  toolJsonReal(json, "imbalance", f->imbalance);
  toolJsonReal(json, "imbalance_forward", f->forwardImbalance);
  toolJsonInt(json, "pairs", f->pairs);
  toolJsonInt(json, "kept", f->kept);
  toolJsonInt(json, "moved", f->moved);
  toolJsonInt(json, "bytes", f->bytes);
  toolJsonReal(json, "moe_backward_cpu_ms", f->cpuMs);
  toolJsonReal(json, "moe_backward_wall_ms", f->wallMs);
  toolJsonReal(json, "moe_backward_gemm_ms", f->gemmMs);
  toolJsonReal(json, "gradient_norm", f->gradientNorm);
  toolJsonReal(json, "learning_rate", f->learningRate);
  for (int i = 0; i < trainNumPhases; i++)
    toolJsonReal(json, trainPhaseNames[i], f->cost.cpuMs[i]);
  for (int i = 0; i < trainNumRounds; i++)
    toolJsonReal(json, trainRoundNames[i], f->cost.bytes[i]);
}

static void printRow(struct toolTable *table,
                     const struct trainStepFigures *f) {
  toolTableInt(table, f->step);
  toolTableReal(table, f->loss, 4);
  toolTableReal(table, f->heldOut, 4);
  toolTableReal(table, exp(f->heldOut), 3);
  toolTableReal(table, f->tokensPerSecond, 0);
  toolTableReal(table, shareOf(f->kept, f->pairs), 4);
  toolTableReal(table, f->imbalance, 3);
  toolTableInt(table, f->bytes);
  toolTableReal(table, f->cpuMs, 2);
  toolTableReal(table, f->gradientNorm, 3);
  fflush(table->out);
}

void trainReportStep(struct trainReport *report,
                     const struct trainStepFigures *figures, int isShown) {
  struct trainStepFigures shown = *figures;
  if (report->firstStep < 0) report->firstStep = figures->step;
  report->totalCpuMs += figures->cpuMs;
  report->totalWallMs += figures->wallMs;
  report->totalKept += figures->kept;
  report->totalPairs += figures->pairs;
  report->totalTokens += report->config->batch * report->config->shape.context;
  double seconds = 1e-9 * (double)(toolWallNs() - report->startNs);
  shown.tokensPerSecond = (double)report->totalTokens / seconds;
  if (!isShown) return;
  printRow(&report->table, &shown);
  if (report->json) writeJson(report->json, &shown);
}

/* ---- Loads --------------------------------------------------------------- */

static void addText(struct trainReport *report, const char *text) {
  size_t length = strlen(text);
  if (report->loadsUsed + length >= report->loadsRoom) {
    report->loadsRoom = 2 * (report->loadsUsed + length) + 4096;
    report->loads = realloc(report->loads, report->loadsRoom);
    if (!report->loads) abort(); /* as trainRoom */
  }
  memcpy(report->loads + report->loadsUsed, text, length);
  report->loadsUsed += length;
}

void trainReportLoads(struct trainReport *report,
                      const struct trainModel *model, int64_t step) {
  const struct trainShape *shape = &model->config->shape;
  int64_t numRanks = model->team.self->numRanks;
  char line[128];
  if (!report->loadsUsed) addText(report, "step,layer,rank,expert,count\n");
  for (int64_t i = 0; i < shape->numLayers * numRanks * shape->numExperts;
       i++) {
    int64_t expert = i % shape->numExperts;
    int64_t rank = i / shape->numExperts % numRanks;
    int64_t layer = i / shape->numExperts / numRanks;
    const struct trainMoe *moe = &model->layers[layer].moe;
    snprintf(line, sizeof line, "%lld,%lld,%lld,%lld,%lld\n", (long long)step,
             (long long)layer, (long long)rank, (long long)expert,
             (long long)moe->demand[rank * shape->numExperts + expert]);
    addText(report, line);
  }
}

/* ---- The end ------------------------------------------------------------- */

static void writeEnd(struct trainReport *report, double heldOut, double ngram) {
  struct toolJson *json = report->json;
  double tokens = (double)report->totalTokens;
  double seconds = 1e-9 * (double)(toolWallNs() - report->startNs);
  toolTableNote(stdout,
                "held-out perplexity a byte: %.4f; 5-gram model (Kneser-Ney) "
                "on the same bytes: %.4f",
                exp(heldOut), exp(ngram));
  toolTableNote(stdout,
                "%.0f tokens in %.1f s; MoE backwards of the critical rank: "
                "%.1f ms CPU; retention %.4f",
                tokens, seconds, report->totalCpuMs,
                shareOf(report->totalKept, report->totalPairs));
  if (!json) return;
  toolJsonRow(json);
  toolJsonText(json, "row", "end");
  toolJsonReal(json, "held_out", heldOut);
  toolJsonReal(json, "held_out_ppl", exp(heldOut));
  toolJsonReal(json, "ngram", ngram);
  toolJsonReal(json, "ngram_ppl", exp(ngram));
  toolJsonInt(json, "first_step", report->firstStep);
  toolJsonInt(json, "tokens", report->totalTokens);
  toolJsonReal(json, "seconds", seconds);
  toolJsonReal(json, "retention",
               shareOf(report->totalKept, report->totalPairs));
  toolJsonReal(json, "moe_backward_cpu_ms", report->totalCpuMs);
  toolJsonReal(json, "moe_backward_wall_ms", report->totalWallMs);
}

enum toolExit trainReportEnd(struct trainReport *report, double heldOut,
                             double ngram, struct toolError *error) {
  enum toolExit code = toolGood;
  writeEnd(report, heldOut, ngram);
  if (report->loadsUsed)
    code = toolFileWrite("record", report->config->record, report->loads,
                         report->loadsUsed, error);
  if (code == toolGood) {
    code = toolJsonEnd(report->json, error);
    report->json = NULL;
  }
  return code;
}
