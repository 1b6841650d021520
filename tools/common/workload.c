/* Routing for benchmarks: popularity and shares; see workload.h. */
#include "tools/common/workload.h"

#include "tools/common/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Streams of random numbers that are not a rank's. */
enum {
  popularityStream = 1
};

static const double maxShape = 10;

static double *makeWeights(int32_t numExperts, struct toolError *error) {
  double *weights = calloc((size_t)numExperts, sizeof *weights);
  if (!weights)
    toolFail(error, toolRunFailed, "no memory for %d experts", numExperts);
  return weights;
}

static void fillLognormal(const struct toolWorkloadConfig *config, double shape,
                          double *weights) {
  struct toolRandom random = toolRandomMake(config->seed, popularityStream);
  for (int32_t e = 0; e < config->numExperts; e++)
    weights[e] = exp(shape * toolRandomNormal(&random));
}

static void fillZipf(const struct toolWorkloadConfig *config, double shape,
                     double *weights) {
  struct toolRandom random = toolRandomMake(config->seed, popularityStream);
  for (int32_t e = 0; e < config->numExperts; e++) {
    uint64_t other = toolRandomBelow(&random, (uint64_t)e + 1);
    weights[e] = weights[other];
    weights[other] = pow(e + 1, -shape);
  }
}

/* Reads "name:S"; 0 if text is not that. */
static int readShape(const char *text, const char *name, double *shape) {
  size_t length = strlen(name);
  if (strncmp(text, name, length) != 0 || text[length] != ':') return 0;
  char *end = NULL;
  double value = strtod(text + length + 1, &end);
  if (end == text + length + 1 || *end || !(value >= 0 && value <= maxShape))
    return 0;
  *shape = value;
  return 1;
}

static enum toolExit fillNamed(const struct toolWorkloadConfig *config,
                               struct toolWorkload *made, double *weights,
                               struct toolError *error) {
  double shape = 0;
  made->isBalanced = strcmp(config->routing, "balanced") == 0;
  if (made->isBalanced || readShape(config->routing, "lognormal", &shape))
    fillLognormal(config, shape, weights);
  else if (readShape(config->routing, "zipf", &shape))
    fillZipf(config, shape, weights);
  else
    return toolFail(error, toolBadInput,
                    "routing \"%.80s\" is not balanced, lognormal:S or zipf:S "
                    "with S from 0 to %g",
                    config->routing, maxShape);
  return toolGood;
}

static enum toolExit fillLoaded(const struct toolWorkloadConfig *config,
                                const struct toolLoad *load, double *weights,
                                struct toolError *error) {
  const struct toolLoadSection *section =
      toolLoadFind(load, config->step, config->layer);
  if (!section)
    return toolFail(error, toolBadInput, "%.200s: has no step %lld, layer %lld",
                    config->load, (long long)config->step,
                    (long long)config->layer);
  if (!section->total)
    return toolFail(error, toolBadInput,
                    "%.200s: step %lld, layer %lld has no pairs", config->load,
                    (long long)section->step, (long long)section->layer);
  int64_t *counts = NULL;
  enum toolExit code = toolLoadCounts(load, section, &counts, error);
  if (code) return code;
  for (int32_t e = 0; e < load->numExperts; e++)
    weights[e] = (double)counts[e];
  free(counts);
  return toolGood;
}

/* ---- Shares ------------------------------------------------------------- */

static const uint64_t unit = UINT64_C(1) << 32;

/* What is still to be spread over the experts below a whole unit. */
struct spread {
  double slots;
  double weight;
  int32_t numOpen;
};

static double wanted(const struct spread *spread, double weight) {
  if (spread->weight > 0) return spread->slots * weight / spread->weight;
  return spread->slots / spread->numOpen; /* only weightless ones are left */
}

static struct spread findOpen(const double *weights, int32_t numExperts,
                              int32_t topk, const uint64_t *shares) {
  struct spread spread = {topk, 0, 0};
  for (int32_t e = 0; e < numExperts; e++) {
    if (shares[e] == unit) {
      spread.slots--;
    } else {
      spread.weight += weights[e];
      spread.numOpen++;
    }
  }
  return spread;
}

/* Gives a whole unit to every expert that wants as much, until none does. */
static struct spread cutShares(const double *weights, int32_t numExperts,
                               int32_t topk, uint64_t *shares) {
  struct spread spread;
  int numCut;
  do {
    spread = findOpen(weights, numExperts, topk, shares);
    numCut = 0;
    for (int32_t e = 0; e < numExperts && spread.slots > 0; e++) {
      if (shares[e] == unit || wanted(&spread, weights[e]) < 1) continue;
      shares[e] = unit;
      numCut++;
    }
  } while (numCut);
  return spread;
}

/* Shares of the rest, rounded down, then to the sum that they must have: at
 * most a unit of 2^-32 an expert is missing, and there is room for it, since
 * every open expert wants less than a whole share. */
static void fillShares(const double *weights, int32_t numExperts, int32_t topk,
                       uint64_t *shares) {
  struct spread spread = cutShares(weights, numExperts, topk, shares);
  int64_t left = (int64_t)topk * (int64_t)unit;
  for (int32_t e = 0; e < numExperts; e++) {
    if (shares[e] < unit && spread.slots > 0)
      shares[e] = (uint64_t)(wanted(&spread, weights[e]) * (double)unit);
    left -= (int64_t)shares[e];
  }
  for (int32_t e = 0; left != 0; e = (e + 1) % numExperts) {
    int isOpen = shares[e] < unit && (weights[e] > 0 || spread.weight == 0);
    if (left > 0 && isOpen) {
      shares[e]++;
      left--;
    } else if (left < 0 && isOpen && shares[e] > 0) { /* rounded up above */
      shares[e]--;
      left++;
    }
  }
}

/* ---- Creation ----------------------------------------------------------- */

static enum toolExit finish(struct toolWorkload *made, const double *weights,
                            struct toolError *error) {
  if (made->topk < 1 || made->topk > toolMaxTopk ||
      made->topk > made->numExperts)
    return toolFail(error, toolBadInput,
                    "%d slots a token, of %d experts and at most %d",
                    made->topk, made->numExperts, toolMaxTopk);
  made->shares = calloc((size_t)made->numExperts, sizeof *made->shares);
  if (!made->shares)
    return toolFail(error, toolRunFailed, "no memory for %d experts",
                    made->numExperts);
  fillShares(weights, made->numExperts, made->topk, made->shares);
  return toolGood;
}

static enum toolExit createFrom(const struct toolWorkloadConfig *config,
                                const struct toolLoad *load,
                                struct toolWorkload *made,
                                struct toolError *error) {
  if (config->numExperts && config->numExperts != load->numExperts)
    return toolFail(error, toolBadInput,
                    "%.200s: has %d experts and %d were asked for",
                    config->load, load->numExperts, config->numExperts);
  made->numExperts = load->numExperts;
  double *weights = makeWeights(load->numExperts, error);
  if (!weights) return toolRunFailed;
  enum toolExit code = fillLoaded(config, load, weights, error);
  if (!code) code = finish(made, weights, error);
  free(weights);
  return code;
}

static enum toolExit createLoaded(const struct toolWorkloadConfig *config,
                                  struct toolWorkload *made,
                                  struct toolError *error) {
  struct toolLoad load;
  enum toolExit code = toolLoadRead(config->load, &load, error);
  if (code) return code;
  code = createFrom(config, &load, made, error);
  toolLoadFree(&load);
  return code;
}

static enum toolExit createNamed(const struct toolWorkloadConfig *config,
                                 struct toolWorkload *made,
                                 struct toolError *error) {
  if (config->numExperts < 1 || config->numExperts > toolMaxLoadExperts)
    return toolFail(error, toolBadInput, "%d experts, not 1..%d",
                    config->numExperts, toolMaxLoadExperts);
  double *weights = makeWeights(config->numExperts, error);
  if (!weights) return toolRunFailed;
  enum toolExit code = fillNamed(config, made, weights, error);
  if (!code) code = finish(made, weights, error);
  free(weights);
  return code;
}

enum toolExit toolWorkloadCreate(const struct toolWorkloadConfig *config,
                                 struct toolWorkload *workload,
                                 struct toolError *error) {
  struct toolWorkload made = {.seed = config->seed,
                              .numExperts = config->numExperts,
                              .topk = config->topk};
  enum toolExit code = config->load ? createLoaded(config, &made, error)
                                    : createNamed(config, &made, error);
  if (!code) *workload = made;
  return code;
}

void toolWorkloadFree(struct toolWorkload *workload) {
  free(workload->shares);
  *workload = (struct toolWorkload){0};
}

int toolRoutingNext(const char **list, char name[64]) {
  if (!*list) return 0;
  size_t bytes = strcspn(*list, ",");
  snprintf(name, 64, "%.*s", bytes > 63 ? 63 : (int)bytes, *list);
  *list = (*list)[bytes] ? *list + bytes + 1 : NULL;
  return 1;
}
