/* The split with the least peak, exactly: a flow with jumps of the target.
 *
 * Load above the target moves along paths: from a rank through an expert with
 * pairs there to another rank that hosts the expert, and so on to a rank that
 * is below the target.  These are augmenting paths of the flow from experts
 * through their instances to ranks of capacity `target`, begun at a full
 * assignment instead of nothing, because the exports that made the placement
 * are nearly right.  Breadth first: the shortest path moves least.
 *
 * Where no path leads on, the ranks reached are a cut: all pairs on them
 * belong to experts that stand on no other rank, so no split does better than
 * their mean.  The target jumps to it (the discrete Newton method on minimum
 * cuts) and the search goes on; every target is a proven bound, so the last
 * one is the optimum. */
#include "planner/split.h"

#include <string.h>

enum {
  lastStamp = INT32_MAX / 2 /* far more than the searches of one split */
};

static void sumLoads(struct lrmoeWork *work,
                     const struct lrmoeInstances *instances,
                     const int64_t *shares, const int64_t *base) {
  if (base)
    memcpy(work->loads, base, (size_t)work->numRanks * sizeof *work->loads);
  else
    memset(work->loads, 0, (size_t)work->numRanks * sizeof *work->loads);
  for (int32_t i = 0; i < instances->count; i++) {
    int64_t *load = &work->loads[instances->ranks[i]];
    int isOver = *load > 0 && shares[i] > INT64_MAX - *load;
    *load = isOver ? INT64_MAX : *load + shares[i];
  }
}

/* Queues the other ranks that host the expert of instance `from`; returns one
 * below the target, or -1. */
static int32_t reach(struct lrmoeWork *work,
                     const struct lrmoeInstances *instances, int32_t from,
                     int64_t target, int32_t *queued) {
  int32_t expert = instances->experts[from];
  if (work->expertStamps[expert] == work->stamp) return -1;
  work->expertStamps[expert] = work->stamp;
  for (int32_t to = instances->offsets[expert];
       to < instances->offsets[expert + 1]; to++) {
    int32_t rank = instances->ranks[to];
    if (work->rankStamps[rank] == work->stamp) continue;
    work->rankStamps[rank] = work->stamp;
    work->from[rank] = from;
    work->to[rank] = to;
    if (work->loads[rank] < target) return rank;
    work->queue[(*queued)++] = rank;
  }
  return -1;
}

/* A rank below the target that `source` can move load to, or -1; work->queue
 * [*reached] are then all ranks that it reaches, itself included. */
static int32_t findPath(struct lrmoeWork *work,
                        const struct lrmoeInstances *instances,
                        const int64_t *shares, int32_t source, int64_t target,
                        int32_t *reached) {
  work->stamp++;
  work->queue[0] = source;
  work->rankStamps[source] = work->stamp;
  *reached = 1;
  for (int32_t head = 0; head < *reached; head++) {
    int32_t rank = work->queue[head];
    for (int32_t k = instances->rankOffsets[rank];
         k < instances->rankOffsets[rank + 1]; k++) {
      int32_t from = instances->ofRank[k];
      if (shares[from] <= 0) continue;
      int32_t end = reach(work, instances, from, target, reached);
      if (end >= 0) return end;
    }
  }
  return -1;
}

static void movePairs(struct lrmoeWork *work,
                      const struct lrmoeInstances *instances, int64_t *shares,
                      int32_t source, int32_t end, int64_t target) {
  int64_t pairs = work->loads[source] - target;
  if (target - work->loads[end] < pairs) pairs = target - work->loads[end];
  for (int32_t g = end; g != source; g = instances->ranks[work->from[g]])
    if (shares[work->from[g]] < pairs) pairs = shares[work->from[g]];
  for (int32_t g = end; g != source; g = instances->ranks[work->from[g]]) {
    shares[work->from[g]] -= pairs;
    shares[work->to[g]] += pairs;
  }
  work->loads[source] -= pairs;
  work->loads[end] += pairs;
}

/* Mean load of the ranks in the queue, rounded up; more than the target,
 * since all are at it and the first is above. */
static int64_t cutMean(const struct lrmoeWork *work, int32_t reached) {
  int64_t whole = 0, rest = 0;
  for (int32_t k = 0; k < reached; k++) {
    whole += work->loads[work->queue[k]] / reached;
    rest += work->loads[work->queue[k]] % reached;
  }
  return whole + rest / reached + (rest % reached != 0);
}

/* Stamps rise from split to split, so that none has to be cleared. */
static void begin(struct lrmoeWork *work,
                  const struct lrmoeInstances *instances, const int64_t *shares,
                  const int64_t *base) {
  sumLoads(work, instances, shares, base);
  if (work->stamp < lastStamp) return;
  work->stamp = 0;
  memset(work->rankStamps, 0, (size_t)work->numRanks * sizeof(int32_t));
  memset(work->expertStamps, 0, (size_t)work->numExperts * sizeof(int32_t));
}

int64_t lrmoeSplitOver(struct lrmoeWork *work,
                       const struct lrmoeInstances *instances, int64_t *shares,
                       const int64_t *base, int64_t bound) {
  int64_t target = bound;
  begin(work, instances, shares, base);
  for (int32_t g = 0; g < work->numRanks; g++)
    while (work->loads[g] > target) {
      int32_t reached;
      int32_t end = findPath(work, instances, shares, g, target, &reached);
      if (end >= 0)
        movePairs(work, instances, shares, g, end, target);
      else
        target = cutMean(work, reached);
    }
  return target;
}

int64_t lrmoeSplit(struct lrmoeWork *work,
                   const struct lrmoeInstances *instances, int64_t *shares,
                   int64_t bound) {
  return lrmoeSplitOver(work, instances, shares, NULL, bound);
}

/* Rank g down to the limit; 0 if a cut is in the way. */
static int relieve(struct lrmoeWork *work,
                   const struct lrmoeInstances *instances, int64_t *shares,
                   int32_t g, int64_t limit) {
  while (work->loads[g] > limit) {
    int32_t reached;
    int32_t end = findPath(work, instances, shares, g, limit, &reached);
    if (end < 0) return 0;
    movePairs(work, instances, shares, g, end, limit);
  }
  return 1;
}

int lrmoeSplitFits(struct lrmoeWork *work,
                   const struct lrmoeInstances *instances, int64_t *shares,
                   const int64_t *base, int64_t limit) {
  begin(work, instances, shares, base);
  for (int32_t g = 0; g < work->numRanks; g++)
    if (!relieve(work, instances, shares, g, limit)) return 0;
  return 1;
}

int64_t lrmoeSplitExcess(struct lrmoeWork *work,
                         const struct lrmoeInstances *instances,
                         int64_t *shares, const struct lrmoeSplitGoal *goal) {
  int64_t excess = 0;
  begin(work, instances, shares, goal->base);
  for (int32_t g = 0; g < work->numRanks && excess < goal->enough; g++)
    if (!relieve(work, instances, shares, g, goal->limit))
      excess += work->loads[g] - goal->limit;
  return excess;
}

void lrmoeSplitMarkCut(struct lrmoeWork *work,
                       const struct lrmoeInstances *instances,
                       const int64_t *shares, int64_t limit) {
  memset(work->inCut, 0, (size_t)work->numRanks * sizeof *work->inCut);
  for (int32_t g = 0; g < work->numRanks; g++) {
    int32_t reached;
    if (work->loads[g] <= limit || work->inCut[g]) continue;
    findPath(work, instances, shares, g, limit, &reached);
    for (int32_t k = 0; k < reached; k++)
      work->inCut[work->queue[k]] = 1;
  }
}

int lrmoeSplitAdd(struct lrmoeWork *work,
                  const struct lrmoeInstances *instances, int64_t *shares,
                  const struct lrmoeSplitMore *more) {
  int32_t rank = instances->ranks[more->instance];
  shares[more->instance] += more->pairs;
  work->loads[rank] += more->pairs;
  return relieve(work, instances, shares, rank, more->limit);
}

/* share * to / from with 0 <= share <= from, at most that where the product
 * has no room. */
static int64_t scale(int64_t share, int64_t to, int64_t from) {
  int64_t whole = to / from * share, rest = to % from;
  int shift = 0;
  while (from >> shift > INT32_MAX)
    shift++;
  if (!shift) return whole + share * rest / from;
  int64_t part = (share >> shift) * (rest >> shift) / ((from >> shift) + 1);
  return whole + (part << shift);
}

void lrmoeSharesScale(const struct lrmoeWork *work,
                      const struct lrmoeInstances *instances,
                      const int64_t *from, const int64_t *to,
                      const int64_t *fromShares, int64_t *toShares) {
  for (int32_t e = 0; e < work->numExperts; e++) {
    int64_t left = to[e];
    int32_t home = -1;
    for (int32_t i = instances->offsets[e]; i < instances->offsets[e + 1];
         i++) {
      int atHome = instances->ranks[i] == work->homes[e];
      if (atHome) home = i;
      toShares[i] =
          from[e] && !atHome ? scale(fromShares[i], to[e], from[e]) : 0;
      left -= toShares[i];
    }
    toShares[home] = left;
  }
}
