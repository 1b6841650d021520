/* Forward pairs: F from X.
 *
 * Forward executes all n[e] pairs, on the instances that backward chose.  The
 * split begins at the shares of backward, X * n / K, because a kept pair stays
 * where its forward ran while that share lasts; then it is made exact.
 *
 * Which pairs are kept is known only after forward.  An instance is sure of
 * F - (n - K) kept pairs, if any, and the rest of its X may have to move in.
 * So pairs are worth more together: where the peak leaves room, pairs of an
 * instance that is sure of none go to one that is, or gets to be.  This is
 * greedy, since each instance pays n - K before its first sure pair, which no
 * flow can express. */
#include "planner/forward.h"

#include "planner/split.h"

enum {
  maxGathers = 4 /* for one expert: keeps the effort linear in instances */
};

/* One expert's pairs on their way to fewer moves. */
struct gathering {
  struct lrmoeInstances *instances;
  int64_t *loads; /* [G] */
  int64_t peak;
  int64_t dropped;
};

static int64_t minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Pairs that instance i could still use and its rank has room for. */
static int64_t usable(const struct gathering *g, int32_t i) {
  int64_t use = g->dropped + g->instances->kept[i] - g->instances->forward[i];
  return minimum(use, g->peak - g->loads[g->instances->ranks[i]]);
}

/* Pairs whose loss costs instance i no sure pair. */
static int64_t spare(const struct gathering *g, int32_t i) {
  int64_t forward = g->instances->forward[i];
  int64_t useful = g->dropped + g->instances->kept[i];
  return forward <= g->dropped ? forward : forward - useful;
}

static int64_t movesWith(const struct gathering *g, int32_t i, int64_t more) {
  return lrmoeMovesIn(g->instances->forward[i] + more, g->instances->kept[i],
                      g->dropped);
}

/* The instance that could get sure of most pairs; -1 if none could use any. */
static int32_t chooseReceiver(const struct gathering *g, int32_t first,
                              int32_t last) {
  int32_t chosen = -1;
  int64_t most = g->dropped;
  for (int32_t i = first; i < last; i++) {
    int64_t use = usable(g, i);
    if (use <= 0 || g->instances->forward[i] + use <= most) continue;
    most = g->instances->forward[i] + use;
    chosen = i;
  }
  return chosen;
}

/* All that can be used if that leaves fewer moves, else what is spare. */
static int64_t give(const struct gathering *g, int32_t from, int32_t to) {
  int64_t use = usable(g, to);
  int64_t pairs = minimum(use, g->instances->forward[from]);
  if (pairs <= 0) return 0;
  int64_t before = movesWith(g, from, 0) + movesWith(g, to, 0);
  int64_t after = movesWith(g, from, -pairs) + movesWith(g, to, pairs);
  if (after >= before) pairs = minimum(use, spare(g, from));
  if (pairs <= 0) return 0;
  g->instances->forward[from] -= pairs;
  g->instances->forward[to] += pairs;
  g->loads[g->instances->ranks[from]] -= pairs;
  g->loads[g->instances->ranks[to]] += pairs;
  return pairs;
}

static void gather(const struct gathering *g, int32_t first, int32_t last) {
  for (int k = 0; k < maxGathers; k++) {
    int32_t to = chooseReceiver(g, first, last);
    if (to < 0) return;
    int64_t given = 0;
    for (int32_t from = first; from < last; from++)
      if (from != to) given += give(g, from, to);
    if (!given) return;
  }
}

int64_t lrmoeForwardFill(struct lrmoeWork *work,
                         struct lrmoeInstances *instances, int64_t bound) {
  lrmoeSharesScale(work, instances, work->quotas, work->pairs, instances->kept,
                   instances->forward);
  int64_t peak = lrmoeSplit(work, instances, instances->forward, bound);
  struct gathering g = {
      .instances = instances, .loads = work->loads, .peak = peak};
  for (int32_t e = 0; e < work->numExperts; e++) {
    int32_t first = instances->offsets[e], last = instances->offsets[e + 1];
    g.dropped = work->pairs[e] - work->quotas[e];
    if (last - first > 1 && g.dropped > 0) gather(&g, first, last);
  }
  return peak;
}
