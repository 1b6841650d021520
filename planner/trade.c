/* Quotas of `overload` where pairs that move cost memory.
 *
 * A pair that is dropped of an expert with one instance frees its memory and
 * costs nothing else; one of an expert with several makes each of the others
 * sure of one pair less.  So experts with one instance are dropped from first:
 * what they could free counts as room, the flow (moving.c) brings what is over
 * to where room is, and then each rank drops no more than it must, from those
 * with the highest rates.  For given quotas of the others that keeps as much
 * as can be, up to rounding.
 *
 * The others' quotas begin as high as they fit together and then change one by
 * one, or two against each other, in steps that get smaller, while more is
 * kept.  Bounded by the number of flows. */
#include "planner/planner.h"
#include "planner/retain.h"

#include <string.h>

/* Flows of one search.  Each takes time with instances times ranks: in large
 * groups there are as few as keep that within maxWork. */
enum {
  maxFlows = 4096,
  minFlows = 16,
  maxWork = 1 << 16
};

/* What quotas lead to; the more kept the better, then the more room. */
struct worth {
  int64_t kept; /* -1: they do not fit */
  int64_t room; /* bytes */
};

struct trade {
  const struct lrmoeRetainSearch *search;
  struct lrmoeMoving *moving;
  struct worth best;
  int64_t flows; /* that are left */
};

static int isLone(const struct lrmoeInstances *instances, int32_t e) {
  return instances->offsets[e + 1] - instances->offsets[e] == 1;
}

static int64_t leastOf(const struct trade *t, int32_t e) {
  return lrmoeRetained(t->search->work->pairs[e], t->search->least);
}

static int64_t mostOf(const struct trade *t, int32_t e) {
  return lrmoeRetained(t->search->work->pairs[e], t->search->ceiling);
}

/* ---- Experts with one instance ------------------------------------------ */

/* The quota of a lone expert where rates are cut at `level`. */
static int64_t cutTo(const struct trade *t, int32_t e, int64_t level) {
  int64_t pairs = t->search->work->pairs[e];
  return lrmoeRetained(pairs, level);
}

/* Pairs dropped on rank g by a cut at `level`. */
static int64_t droppedAt(const struct trade *t, int32_t g, int64_t level) {
  const struct lrmoeInstances *instances = t->search->instances;
  int64_t sum = 0;
  for (int32_t k = instances->rankOffsets[g]; k < instances->rankOffsets[g + 1];
       k++) {
    int32_t e = instances->experts[instances->ofRank[k]];
    if (isLone(instances, e)) sum += mostOf(t, e) - cutTo(t, e, level);
  }
  return sum;
}

/* Drops `pairs` on rank g, so that the lowest rate stays as high as can be. */
static void drop(const struct trade *t, int32_t g, int64_t pairs) {
  const struct lrmoeInstances *instances = t->search->instances;
  int64_t low = t->search->least, high = t->search->ceiling;
  while (low < high) { /* the highest level that drops enough */
    int64_t middle = high - (high - low) / 2;
    if (droppedAt(t, g, middle) >= pairs)
      low = middle;
    else
      high = middle - 1;
  }
  int64_t back = droppedAt(t, g, low) - pairs;
  int64_t next = low + (low < t->search->ceiling);
  for (int32_t k = instances->rankOffsets[g]; k < instances->rankOffsets[g + 1];
       k++) {
    int32_t i = instances->ofRank[k], e = instances->experts[i];
    if (!isLone(instances, e)) continue;
    int64_t quota = cutTo(t, e, low), more = cutTo(t, e, next) - quota;
    if (more > back) more = back;
    back -= more;
    quota += more;
    t->moving->sure[i] = quota;
    lrmoeMovingDrop(t->moving, i, t->search->quotas[e] - quota);
    t->search->quotas[e] = quota;
  }
}

/* ---- One flow ----------------------------------------------------------- */

static void addRooms(const struct trade *t, int direction) {
  const struct lrmoeUnitBytes *unit = &t->moving->unit;
  for (int32_t g = 0; g < t->search->work->numRanks; g++)
    t->moving->budgets[g] += direction * (unit->backward - unit->dropped) *
                             droppedAt(t, g, t->search->least);
}

static void dropAll(const struct trade *t) {
  for (int32_t g = 0; g < t->search->work->numRanks; g++) {
    int64_t pairs = lrmoeMovingOver(t->moving, g);
    if (pairs > 0) drop(t, g, pairs);
  }
}

static struct worth worthOf(const struct trade *t) {
  struct worth worth = {0, 0};
  for (int32_t e = 0; e < t->search->work->numExperts; e++)
    worth.kept += t->search->quotas[e];
  for (int32_t g = 0; g < t->search->work->numRanks; g++)
    worth.room += t->moving->budgets[g] - t->moving->bytes[g];
  return worth;
}

static int isBetter(struct worth a, struct worth b) {
  return a.kept != b.kept ? a.kept > b.kept : a.room > b.room;
}

/* The most kept with the quotas of experts with several instances as they
 * are. */
static struct worth flow(struct trade *t) {
  const struct lrmoeRetainSearch *search = t->search;
  t->flows--;
  for (int32_t e = 0; e < search->work->numExperts; e++)
    if (isLone(search->instances, e)) search->quotas[e] = mostOf(t, e);
  lrmoeMovingBegin(t->moving);
  if (lrmoeMovingRelieve(t->moving)) return worthOf(t);
  addRooms(t, 1);
  int fits = lrmoeMovingRelieve(t->moving);
  addRooms(t, -1);
  if (!fits) return (struct worth){-1, 0};
  dropAll(t);
  return worthOf(t);
}

/* ---- The others --------------------------------------------------------- */

static struct worth flowAtLevel(struct trade *t, int64_t level) {
  for (int32_t e = 0; e < t->search->work->numExperts; e++)
    t->search->quotas[e] = lrmoeRetained(t->search->work->pairs[e], level);
  return flow(t);
}

/* The highest common rate of the others; 0 if not even the least fits. */
static int beginAtLevel(struct trade *t) {
  int64_t low = t->search->least, high = t->search->ceiling;
  t->best = flowAtLevel(t, high);
  if (t->best.kept >= 0) return 1;
  t->best = flowAtLevel(t, low);
  if (t->best.kept < 0) return 0;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (flowAtLevel(t, middle).kept >= 0)
      low = middle;
    else
      high = middle;
  }
  t->best = flowAtLevel(t, low);
  return 1;
}

static int64_t clamped(const struct trade *t, int32_t e, int64_t quota) {
  if (quota < leastOf(t, e)) return leastOf(t, e);
  return quota > mostOf(t, e) ? mostOf(t, e) : quota;
}

/* Quotas of e and, if not -1, of f changed by so much; kept if better. */
static int tryQuotas(struct trade *t, int32_t e, int64_t pairs, int32_t f,
                     int64_t fPairs) {
  int64_t *quotas = t->search->quotas;
  int64_t before = quotas[e], fBefore = f < 0 ? 0 : quotas[f];
  quotas[e] = clamped(t, e, before + pairs);
  if (f >= 0) quotas[f] = clamped(t, f, fBefore + fPairs);
  int isChanged = quotas[e] != before && (f < 0 || quotas[f] != fBefore);
  if (isChanged && t->flows > 0) {
    struct worth worth = flow(t);
    if (isBetter(worth, t->best)) {
      t->best = worth;
      return 1;
    }
  }
  quotas[e] = before;
  if (f >= 0) quotas[f] = fBefore;
  return 0;
}

static int stepBy(struct trade *t, int64_t step) {
  const struct lrmoeInstances *instances = t->search->instances;
  int32_t numExperts = t->search->work->numExperts;
  int isBetterNow = 0;
  for (int32_t e = 0; e < numExperts; e++) {
    if (isLone(instances, e)) continue;
    isBetterNow |=
        tryQuotas(t, e, step, -1, 0) || tryQuotas(t, e, -step, -1, 0);
    for (int32_t f = 0; f < numExperts && t->flows > 0; f++)
      if (f != e && !isLone(instances, f))
        isBetterNow |= tryQuotas(t, e, step, f, -step);
  }
  return isBetterNow;
}

static int64_t largestStep(const struct trade *t) {
  int64_t most = 0, step = 1;
  for (int32_t e = 0; e < t->search->work->numExperts; e++)
    if (!isLone(t->search->instances, e) && mostOf(t, e) - leastOf(t, e) > most)
      most = mostOf(t, e) - leastOf(t, e);
  while (step <= most / 2)
    step *= 2;
  return step;
}

int lrmoeRetainTrade(const struct lrmoeRetainSearch *search) {
  struct trade t = {.search = search, .moving = search->moving};
  t.flows = maxWork / search->instances->count / search->work->numRanks;
  if (t.flows > maxFlows) t.flows = maxFlows;
  if (t.flows < minFlows) t.flows = minFlows;
  if (search->isQuick) t.flows = 0;
  for (int32_t g = 0; g < search->work->numRanks; g++)
    if (search->moving->budgets[g] < 0) return 0;
  if (!beginAtLevel(&t)) return 0;
  for (int64_t step = largestStep(&t); step > 0 && t.flows > 0; step /= 2)
    while (t.flows > 0 && stepBy(&t, step))
      continue;
  flow(&t);
  return 1;
}
