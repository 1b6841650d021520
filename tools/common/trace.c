/* Traces: see trace.h. */
#include "tools/common/trace.h"

#include "tools/common/apportion.h"
#include "tools/common/csv.h"
#include "tools/common/workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxNumbers = 1 << 26 /* of demand */
};

struct toolTrace {
  struct toolTraceConfig config;
  struct toolLoad load;
  int64_t *picked; /* [length] sections of load, NULL if made */
  int64_t length;
  int64_t *demand;
  int64_t *counts;
  double *importance; /* of the last section read */
  char source[256];
};

/* ---- Opening ------------------------------------------------------------ */

static enum toolExit pickSections(struct toolTrace *trace,
                                  struct toolError *error) {
  const struct toolLoad *load = &trace->load;
  const struct toolTraceConfig *config = &trace->config;
  trace->picked = calloc((size_t)load->numSections, sizeof *trace->picked);
  if (!trace->picked)
    return toolFail(error, toolRunFailed, "no memory for %lld sections",
                    (long long)load->numSections);
  for (int64_t i = 0; i < load->numSections; i++)
    if ((config->step < 0 || load->sections[i].step == config->step) &&
        (config->layer < 0 || load->sections[i].layer == config->layer))
      trace->picked[trace->length++] = i;
  if (trace->length) return toolGood;
  return toolFail(error, toolBadInput, "%.200s: has no step %lld, layer %lld",
                  config->load, (long long)config->step,
                  (long long)config->layer);
}

static void nameSource(struct toolTrace *trace) {
  int ranks = trace->load.numRanks, wanted = trace->config.numRanks;
  const char *how = "counts divided evenly over the ranks";
  if (ranks == wanted)
    how = "demand by rank as in the file";
  else if (ranks > wanted && ranks % wanted == 0)
    how = "demand of neighbouring ranks of the file added up";
  snprintf(trace->source, sizeof trace->source, "%.160s: %lld layers, %s",
           trace->config.load, (long long)trace->length, how);
}

static enum toolExit openLoad(struct toolTrace *trace,
                              struct toolError *error) {
  struct toolTraceConfig *config = &trace->config;
  enum toolExit code = toolLoadRead(config->load, &trace->load, error);
  if (code) return code;
  if (config->numExperts && config->numExperts != trace->load.numExperts)
    return toolFail(error, toolBadInput,
                    "%.200s: has %d experts and %d were asked for",
                    config->load, trace->load.numExperts, config->numExperts);
  config->numExperts = trace->load.numExperts;
  code = pickSections(trace, error);
  if (code == toolGood) nameSource(trace);
  return code;
}

/* A workload of the config's routing and the given seed. */
static enum toolExit makeWorkload(const struct toolTraceConfig *config,
                                  int64_t index, struct toolWorkload *workload,
                                  struct toolError *error) {
  const struct toolWorkloadConfig asked = {.routing = config->routing,
                                           .seed =
                                               config->seed + (uint64_t)index,
                                           .numExperts = config->numExperts,
                                           .topk = config->topk};
  return toolWorkloadCreate(&asked, workload, error);
}

/* Finds wrong options before anything is printed. */
static enum toolExit openMade(struct toolTrace *trace,
                              struct toolError *error) {
  const struct toolTraceConfig *config = &trace->config;
  struct toolWorkload workload;
  enum toolExit code = makeWorkload(config, 0, &workload, error);
  if (code) return code;
  toolWorkloadFree(&workload);
  trace->length = config->numLayers;
  snprintf(trace->source, sizeof trace->source,
           "%.80s, seed %llu: %lld layers, expected loads of %lld tokens",
           config->routing, (unsigned long long)config->seed,
           (long long)trace->length, (long long)config->numTokens);
  return toolGood;
}

static enum toolExit makeRoom(struct toolTrace *trace,
                              struct toolError *error) {
  int64_t ranks = trace->config.numRanks, experts = trace->config.numExperts;
  if (ranks * experts > maxNumbers)
    return toolFail(error, toolBadInput,
                    "%lld ranks of %lld experts are more counts than %d",
                    (long long)ranks, (long long)experts, maxNumbers);
  size_t numbers = (size_t)(ranks * experts);
  trace->demand = calloc(numbers, sizeof *trace->demand);
  trace->counts = calloc((size_t)experts, sizeof *trace->counts);
  if (trace->demand && trace->counts) return toolGood;
  return toolFail(error, toolRunFailed, "no memory for %zu counts", numbers);
}

enum toolExit toolTraceOpen(const struct toolTraceConfig *config,
                            struct toolTrace **trace, struct toolError *error) {
  struct toolTrace *made = calloc(1, sizeof *made);
  if (!made) return toolFail(error, toolRunFailed, "no memory for a trace");
  made->config = *config;
  enum toolExit code =
      config->load ? openLoad(made, error) : openMade(made, error);
  if (code == toolGood) code = makeRoom(made, error);
  if (code == toolGood)
    *trace = made;
  else
    toolTraceClose(made);
  return code;
}

void toolTraceClose(struct toolTrace *trace) {
  if (!trace) return;
  toolLoadFree(&trace->load);
  free(trace->picked);
  free(trace->demand);
  free(trace->counts);
  free(trace->importance);
  free(trace);
}

int64_t toolTraceLength(const struct toolTrace *trace) {
  return trace->length;
}

int32_t toolTraceExperts(const struct toolTrace *trace) {
  return trace->config.numExperts;
}

const char *toolTraceSource(const struct toolTrace *trace) {
  return trace->source;
}

/* ---- Reading ------------------------------------------------------------ */

/* counts over the ranks: as even as whole numbers are, and no rank gets the
 * spare pairs of all experts. */
static void divideEvenly(struct toolTrace *trace, const int64_t *counts) {
  int64_t ranks = trace->config.numRanks, experts = trace->config.numExperts;
  for (int64_t s = 0; s < ranks; s++)
    for (int64_t e = 0; e < experts; e++) {
      int64_t place = (s + e) % ranks;
      trace->demand[s * experts + e] =
          counts[e] / ranks + (place < counts[e] % ranks);
    }
}

static enum toolExit readMeasured(struct toolTrace *trace,
                                  const struct toolLoadSection *section,
                                  struct toolError *error) {
  int64_t ranks = trace->config.numRanks, experts = trace->config.numExperts;
  int64_t fileRanks = trace->load.numRanks;
  int byRank = fileRanks % ranks == 0;
  int64_t *counts = NULL;
  enum toolExit code =
      byRank ? toolLoadCountsByRank(&trace->load, section, &counts, error)
             : toolLoadCounts(&trace->load, section, &counts, error);
  if (code) return code;
  if (byRank) {
    memset(trace->demand, 0, (size_t)(ranks * experts) * sizeof *counts);
    for (int64_t s = 0; s < fileRanks; s++)
      for (int64_t e = 0; e < experts; e++)
        trace->demand[s * ranks / fileRanks * experts + e] +=
            counts[s * experts + e];
  } else {
    divideEvenly(trace, counts);
  }
  free(counts);
  if (!trace->config.numTokens) return toolGood;
  int64_t pairs = trace->config.numTokens * trace->config.topk;
  return toolApportion(trace->demand, ranks * experts, pairs, trace->demand,
                       error);
}

/* Ranks with equally many tokens have equal demand: it is worked out twice. */
static enum toolExit readMade(struct toolTrace *trace, int64_t index,
                              struct toolError *error) {
  const struct toolTraceConfig *config = &trace->config;
  int64_t ranks = config->numRanks, experts = config->numExperts;
  struct toolWorkload workload;
  enum toolExit code = makeWorkload(config, index, &workload, error);
  if (code) return code;
  for (int64_t e = 0; e < experts; e++)
    trace->counts[e] = (int64_t)workload.shares[e];
  toolWorkloadFree(&workload);
  int64_t last = -1;
  for (int64_t s = 0; s < ranks && code == toolGood; s++) {
    int64_t tokens =
        config->numTokens / ranks + (s < config->numTokens % ranks);
    int64_t *row = trace->demand + s * experts;
    if (tokens == last)
      memcpy(row, row - experts, (size_t)experts * sizeof *row);
    else
      code = toolApportion(trace->counts, experts, tokens * config->topk, row,
                           error);
    last = tokens;
  }
  return code;
}

static int64_t sumRanks(struct toolTrace *trace) {
  int64_t experts = trace->config.numExperts, pairs = 0;
  memset(trace->counts, 0, (size_t)experts * sizeof *trace->counts);
  for (int64_t s = 0; s < trace->config.numRanks; s++)
    for (int64_t e = 0; e < experts; e++)
      trace->counts[e] += trace->demand[s * experts + e];
  for (int64_t e = 0; e < experts; e++)
    pairs += trace->counts[e];
  return pairs;
}

enum toolExit toolTraceRead(struct toolTrace *trace, int64_t index,
                            struct toolTraceSection *section,
                            struct toolError *error) {
  const struct toolLoadSection *measured =
      trace->picked ? &trace->load.sections[trace->picked[index]] : NULL;
  enum toolExit code = measured ? readMeasured(trace, measured, error)
                                : readMade(trace, index, error);
  free(trace->importance);
  trace->importance = NULL;
  if (code == toolGood && measured)
    code =
        toolLoadImportance(&trace->load, measured, &trace->importance, error);
  if (code) return code;
  *section =
      (struct toolTraceSection){.step = measured ? measured->step : 0,
                                .layer = measured ? measured->layer : index,
                                .pairs = sumRanks(trace),
                                .demand = trace->demand,
                                .counts = trace->counts,
                                .importance = trace->importance,
                                .numExperts = trace->config.numExperts};
  return toolGood;
}
