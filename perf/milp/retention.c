/* Retention on a placement as a mixed-integer program: where the instances
 * stand and what forward gives them is fixed; K[e] and X[e][g] are not.
 *
 *   K[e], X[e][g] whole;  sum over g of X[e][g] = K[e] <= n[e]
 *   memory of each rank as lrmoe.h sums it up (lrmoeRankMemory_t)
 *   quota uniform    K[e] >= n[e] r: the largest r makes K[e] = ceil(r n[e])
 *   quota overload   ceil(least n[e]) <= K[e] <= ceil(most n[e])
 *
 * Worst-case moves m = max(0, X - s) with s = max(0, K - (n - F)), where the
 * second maximum takes a binary.  The window: kept pairs of the first sources
 * are floor(before K / n), a floor being a whole q with q <= v < q + 1; those
 * of the first sources on the first instances are the lesser of q and their X,
 * which takes a binary; a rank's rows out and home, in whole ns per message,
 * fit what the window leaves. */
#include "perf/milp/milp.h"

static const char *nameOf(char text[24], const char *kind, int64_t index) {
  snprintf(text, 24, "%s%lld", kind, (long long)index);
  return text;
}

/* " + 5 x7" */
static void term(FILE *model, int64_t factor, const char *kind, int64_t index) {
  char name[24];
  fprintf(model, " %+lld %s\n", (long long)factor, nameOf(name, kind, index));
}

static void less(FILE *model, int64_t value) {
  fprintf(model, " <= %lld\n", (long long)value);
}

/* ---- Memory ------------------------------------------------------------- */

struct unitBytes {
  int64_t forward;
  int64_t saved;
  int64_t backward;
  int64_t move;
  int64_t dropped;
  int64_t replica;
  int64_t row;
};

static struct unitBytes unitsOf(const lrmoePlannerConfig_t *config) {
  int64_t h = config->hidden, f = config->ffn, b = config->elementBytes;
  int64_t u = config->activation == lrmoeSwiglu ? 2 * f : f;
  int isFull = config->savedState == lrmoeSavedFull;
  return (struct unitBytes){
      .forward = (h + f) * b,
      .saved = isFull ? (h + u) * b : 0,
      .backward = (2 * h + 2 * f + u) * b + (isFull ? 0 : (h + u) * b),
      .move = isFull ? (h + u) * b : 0,
      .dropped =
          config->routerGrad == lrmoeRouterGradExecutor ? (h + f) * b : 0,
      .replica = (u + f) * h * (b + 4),
      .row = h * b};
}

static int64_t sourcePairs(const lrmoePlanView_t *view, int32_t s) {
  int64_t sum = 0;
  for (int32_t e = 0; e < view->numExperts; e++)
    sum += view->demand[(int64_t)s * view->numExperts + e];
  return sum;
}

static int hasMoves(const struct milpRetention *retention, int32_t e) {
  const lrmoePlanView_t *view = retention->view;
  return unitsOf(retention->config).move &&
         view->instanceOffsets[e + 1] - view->instanceOffsets[e] > 1;
}

/* One limit of rank g: X at `each` bytes, of `budget`. */
static void writeBudget(FILE *model, const struct milpRetention *retention,
                        int32_t g, int64_t each, int64_t budget) {
  const lrmoePlanView_t *view = retention->view;
  int64_t move = unitsOf(retention->config).move;
  int isFirst = 1;
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      if (view->instanceRanks[i] != g) continue;
      if (isFirst) fprintf(model, " memory%d_%lld:", g, (long long)each);
      isFirst = 0;
      term(model, each, "X", i);
      if (hasMoves(retention, e)) term(model, move, "m", i);
    }
  if (!isFirst) less(model, budget);
}

static void writeMemory(FILE *model, const struct milpRetention *retention,
                        int32_t g) {
  const lrmoePlanView_t *view = retention->view;
  const lrmoePlannerConfig_t *config = retention->config;
  struct unitBytes unit = unitsOf(config);
  int64_t forward = 0, replicas = 0;
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      if (view->instanceRanks[i] == g) {
        forward += view->forwardPairs[i];
        replicas += g != view->homes[e];
      }
  int64_t budget =
      config->memoryBytes - forward * unit.saved - replicas * unit.replica;
  if (config->routerGrad == lrmoeRouterGradOwner)
    budget -= sourcePairs(view, g) * unit.row;
  writeBudget(model, retention, g, unit.backward, budget);
  if (unit.dropped)
    writeBudget(model, retention, g, unit.backward - unit.dropped,
                budget - forward * unit.dropped);
}

/* m[i] of the instances of an expert that has several. */
static void writeMoves(FILE *model, const lrmoePlanView_t *view, int32_t e) {
  int64_t pairs = toolPairsOf(view, e);
  for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
       i++) {
    int64_t dropped = pairs - view->forwardPairs[i];
    fprintf(model, " X%d - m%d - s%d <= 0\n", i, i, i);
    fprintf(model, " s%d - K%d + %lld z%d <= %lld\n", i, e,
            (long long)pairs + (long long)dropped, i, (long long)pairs);
    fprintf(model, " s%d - %lld z%d <= 0\n", i, (long long)pairs, i);
  }
}

/* ---- Window ------------------------------------------------------------- */

/* q[s,e]: kept pairs of e from sources up to s; w[s,e]: its growth, rows. */
static void writeRows(FILE *model, const lrmoePlanView_t *view, int32_t e) {
  int64_t pairs = toolPairsOf(view, e), before = 0;
  for (int32_t s = 0; s < view->numRanks && pairs; s++) {
    int64_t at = (int64_t)s * view->numExperts + e;
    before += view->demand[at];
    term(model, pairs, "q", at);
    term(model, -before, "K", e);
    less(model, 0);
    term(model, before, "K", e);
    term(model, -pairs, "q", at);
    less(model, pairs - 1);
    term(model, 1, "w", at);
    term(model, -1, "q", at);
    if (s) term(model, 1, "q", at - view->numExperts);
    fprintf(model, " = 0\n");
  }
}

static int64_t cellOf(const lrmoePlanView_t *view, int32_t s, int32_t i) {
  return (int64_t)i * view->numRanks + s;
}

/* c[s,i]: kept pairs of sources up to s on instances up to i, the lesser of
 * q[s] and the X; z: it is q[s]. */
static void writeCorner(FILE *model, const lrmoePlanView_t *view, int32_t e,
                        int32_t s, int32_t i) {
  int64_t source = (int64_t)s * view->numExperts + e;
  int64_t pairs = toolPairsOf(view, e), cell = cellOf(view, s, i);
  fprintf(model, " c%lld - q%lld <= 0\n", (long long)cell, (long long)source);
  fprintf(model, " q%lld - c%lld - %lld y%lld <= 0\n", (long long)source,
          (long long)cell, (long long)pairs, (long long)cell);
  term(model, 1, "c", cell);
  for (int32_t k = view->instanceOffsets[e]; k <= i; k++)
    term(model, -1, "X", k);
  less(model, 0);
  for (int32_t k = view->instanceOffsets[e]; k <= i; k++)
    term(model, 1, "X", k);
  term(model, -1, "c", cell);
  term(model, pairs, "y", cell);
  less(model, pairs);
}

/* v[s,i]: rows of s on instance i, from the corners around it. */
static void writeCells(FILE *model, const lrmoePlanView_t *view, int32_t e) {
  int32_t first = view->instanceOffsets[e];
  for (int32_t i = first; i < view->instanceOffsets[e + 1]; i++)
    for (int32_t s = 0; s < view->numRanks; s++) {
      writeCorner(model, view, e, s, i);
      term(model, 1, "v", cellOf(view, s, i));
      term(model, -1, "c", cellOf(view, s, i));
      if (s) term(model, 1, "c", cellOf(view, s - 1, i));
      if (i > first) term(model, 1, "c", cellOf(view, s, i - 1));
      if (s && i > first) term(model, -1, "c", cellOf(view, s - 1, i - 1));
      fprintf(model, " = 0\n");
    }
}

static int isLone(const lrmoePlanView_t *view, int32_t e) {
  return view->instanceOffsets[e + 1] - view->instanceOffsets[e] == 1;
}

/* What one direction's rows of s on instance i of e cost a rank that is an end
 * of them. */
static void addTraffic(FILE *model, const struct milpRetention *retention,
                       int32_t s, int32_t e, int32_t i, int64_t times) {
  const lrmoePlanView_t *view = retention->view;
  int isSelf = s == view->instanceRanks[i];
  int64_t ns = (isSelf ? retention->selfRowNs : retention->rowNs) * times;
  if (!toolPairsOf(view, e)) return;
  if (isLone(view, e))
    term(model, ns, "w", (int64_t)s * view->numExperts + e);
  else
    term(model, ns, "v", cellOf(view, s, i));
}

/* Of rank g as their source (end 0), or where the instance is (1). */
static void writeEnd(FILE *model, const struct milpRetention *retention,
                     int32_t g, int end, int64_t times) {
  const lrmoePlanView_t *view = retention->view;
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      for (int32_t s = 0; s < view->numRanks; s++)
        if ((end ? view->instanceRanks[i] : s) == g)
          addTraffic(model, retention, s, e, i, times);
}

/* Rows out and home of rank g: as their source, then as their executor. */
static void writeTraffic(FILE *model, const struct milpRetention *retention,
                         int32_t g, const char *direction, int64_t times) {
  for (int end = 0; end < 2; end++) {
    writeEnd(model, retention, g, end, times);
    fprintf(model, " - %s <= 0\n", direction);
  }
}

static void writeWindow(FILE *model, const struct milpRetention *retention) {
  const lrmoePlanView_t *view = retention->view;
  int64_t timesOut =
      retention->config->savedState == lrmoeSavedNone ? 2 : 1; /* g, x */
  for (int32_t e = 0; e < view->numExperts; e++) {
    writeRows(model, view, e);
    if (!isLone(view, e) && toolPairsOf(view, e)) writeCells(model, view, e);
  }
  for (int32_t g = 0; g < view->numRanks; g++) {
    writeTraffic(model, retention, g, "out", timesOut);
    writeTraffic(model, retention, g, "home", 1);
  }
  fprintf(model, " out + home");
  less(model, retention->config->windowNs - 2 * retention->latencyNs);
}

/* ---- The model ---------------------------------------------------------- */

static int64_t retained(int64_t pairs, int64_t ppm) {
  return (pairs * ppm + 999999) / 1000000;
}

static void writeQuota(FILE *model, const struct milpRetention *retention,
                       int32_t e) {
  const lrmoePlanView_t *view = retention->view;
  int64_t pairs = toolPairsOf(view, e);
  for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
       i++)
    term(model, 1, "X", i);
  fprintf(model, " - K%d = 0\n", e);
  if (retention->config->quota == lrmoeQuotaUniform) {
    fprintf(model, " %lld rate - K%d <= 0\n", (long long)pairs, e);
    fprintf(model, " K%d - %lld rate <= 0.999999\n", e, (long long)pairs);
  }
  if (hasMoves(retention, e)) writeMoves(model, view, e);
}

static void writeBounds(FILE *model, const struct milpRetention *retention) {
  const lrmoePlanView_t *view = retention->view;
  const lrmoePlannerConfig_t *config = retention->config;
  int isUniform = config->quota == lrmoeQuotaUniform;
  fprintf(model, "Bounds\n");
  if (isUniform)
    fprintf(model, " rate <= %.6f\n", (double)config->retainPpm / 1e6);
  for (int32_t e = 0; e < view->numExperts; e++) {
    int64_t pairs = toolPairsOf(view, e);
    fprintf(
        model, " %lld <= K%d <= %lld\n",
        (long long)retained(pairs, config->minRetainPpm), e,
        (long long)(isUniform ? pairs : retained(pairs, config->retainPpm)));
  }
}

static void writeIntegers(FILE *model, const struct milpRetention *retention) {
  const lrmoePlanView_t *view = retention->view;
  fprintf(model, "General\n");
  for (int32_t e = 0; e < view->numExperts; e++) {
    fprintf(model, " K%d\n", e);
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++)
      fprintf(model, " X%d\n", i);
    for (int32_t s = 0; s < view->numRanks && retention->config->windowNs; s++)
      if (toolPairsOf(view, e))
        fprintf(model, " q%lld\n", (long long)s * view->numExperts + e);
  }
}

static void writeBinaries(FILE *model, const struct milpRetention *retention) {
  const lrmoePlanView_t *view = retention->view;
  fprintf(model, "Binary\n");
  for (int32_t e = 0; e < view->numExperts; e++)
    for (int32_t i = view->instanceOffsets[e];
         i < view->instanceOffsets[e + 1] && hasMoves(retention, e); i++)
      fprintf(model, " z%d\n", i);
  for (int32_t e = 0; e < view->numExperts && retention->config->windowNs; e++)
    for (int32_t i = view->instanceOffsets[e];
         i < view->instanceOffsets[e + 1] && !isLone(view, e); i++)
      for (int32_t s = 0; s < view->numRanks && toolPairsOf(view, e); s++)
        fprintf(model, " y%lld\n", (long long)cellOf(view, s, i));
}

void milpRetentionWrite(FILE *model, const struct milpRetention *retention) {
  const lrmoePlanView_t *view = retention->view;
  fprintf(model, "Minimize\n cost:");
  if (retention->config->quota == lrmoeQuotaUniform)
    fprintf(model, " - 1000000 rate");
  for (int32_t e = 0; e < view->numExperts; e++)
    if (retention->config->quota != lrmoeQuotaUniform) term(model, -1, "K", e);
  fprintf(model, "\nSubject To\n");
  for (int32_t e = 0; e < view->numExperts; e++)
    writeQuota(model, retention, e);
  for (int32_t g = 0; g < view->numRanks && retention->config->memoryBytes; g++)
    writeMemory(model, retention, g);
  if (retention->config->windowNs) writeWindow(model, retention);
  writeBounds(model, retention);
  writeIntegers(model, retention);
  writeBinaries(model, retention);
  fprintf(model, "End\n");
}
