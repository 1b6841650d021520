/* What holds for every plan: see verify.h.  Nothing here knows how a plan was
 * found; each rule is written from its sentence in lrmoe.h. */
#include "tools/common/verify_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MUST_BE(name, got, expected)                                       \
  do {                                                                     \
    int64_t got_ = (got), expected_ = (expected);                          \
    if (got_ != expected_)                                                 \
      return WRONG("%s is %" PRId64 " and should be %" PRId64, name, got_, \
                   expected_);                                             \
  } while (0)

int64_t toolPairsOf(const lrmoePlanView_t *view, int32_t e) {
  int64_t pairs = 0;
  if (!view->demand) return view->totals[e];
  for (int64_t s = 0; s < view->numRanks; s++)
    pairs += view->demand[s * view->numExperts + e];
  return pairs;
}

static enum toolExit checkInstances(const lrmoePlanView_t *view,
                                    struct toolError *error) {
  MUST_BE("the first instance offset", view->instanceOffsets[0], 0);
  for (int32_t e = 0; e < view->numExperts; e++) {
    int32_t numHomes = 0, last = -1;
    if (view->instanceOffsets[e + 1] < view->instanceOffsets[e] ||
        view->instanceOffsets[e + 1] > view->numInstances)
      return WRONG("instances of expert %d end at %d", e,
                   view->instanceOffsets[e + 1]);
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      int32_t rank = view->instanceRanks[i];
      if (rank <= last || rank >= view->numRanks)
        return WRONG("expert %d has an instance on rank %d after %d of %d", e,
                     rank, last, view->numRanks);
      last = rank;
      numHomes += rank == view->homes[e];
    }
    if (numHomes != 1)
      return WRONG("expert %d has no instance at its home, rank %d", e,
                   view->homes[e]);
  }
  MUST_BE("the last instance offset", view->instanceOffsets[view->numExperts],
          view->numInstances);
  MUST_BE("numReplicas", view->numReplicas,
          view->numInstances - view->numExperts);
  return toolGood;
}

/* One direction of one expert; adds to the ranks. */
static enum toolExit addShares(const lrmoePlanView_t *view, int32_t e,
                               const int64_t *shares, wide total, wide *perRank,
                               struct toolError *error) {
  wide sum = 0;
  for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
       i++) {
    if (shares[i] < 0)
      return WRONG("expert %d has %" PRId64 " pairs on rank %d", e, shares[i],
                   view->instanceRanks[i]);
    sum += shares[i];
    perRank[view->instanceRanks[i]] += shares[i];
  }
  if (sum != total)
    return WRONG("expert %d has %" PRId64 " pairs on its instances of %" PRId64,
                 e, (int64_t)sum, (int64_t)total);
  return toolGood;
}

static wide highest(const wide *values, int32_t count) {
  wide most = 0;
  for (int32_t i = 0; i < count; i++)
    if (values[i] > most) most = values[i];
  return most;
}

static enum toolExit checkBound(const char *name, wide total, int32_t numRanks,
                                const int64_t figures[3],
                                struct toolError *error) {
  int64_t peak = figures[0], bound = figures[1], gapPpm = figures[2];
  if ((wide)bound * numRanks < total || bound > peak)
    return WRONG("the bound of %s pairs is %" PRId64 ", of %" PRId64
                 " on %d ranks with peak %" PRId64,
                 name, bound, (int64_t)total, numRanks, peak);
  wide over = (wide)(peak - bound) * 1000000;
  if (gapPpm != (int64_t)(bound ? (over + bound - 1) / bound : 0))
    return WRONG("the gap of %s pairs is %" PRId64 " ppm, of bound %" PRId64
                 " and peak %" PRId64,
                 name, gapPpm, bound, peak);
  return toolGood;
}

/* Worst-case moves by their definition. */
static enum toolExit checkMoves(const lrmoePlanView_t *view, wide *into,
                                struct toolError *error) {
  wide sum = 0;
  memset(into, 0, (size_t)view->numRanks * sizeof *into);
  for (int32_t e = 0; e < view->numExperts; e++) {
    wide pairs = toolPairsOf(view, e);
    for (int32_t i = view->instanceOffsets[e]; i < view->instanceOffsets[e + 1];
         i++) {
      wide stays = view->quotas[e] - (pairs - view->forwardPairs[i]);
      wide moves = view->keptPairs[i] - (stays > 0 ? stays : 0);
      if (moves <= 0) continue;
      sum += moves;
      into[view->instanceRanks[i]] += moves;
    }
  }
  MUST_BE("movesIn", view->movesIn, (int64_t)sum);
  MUST_BE("peakMovesIn", view->peakMovesIn,
          (int64_t)highest(into, view->numRanks));
  return toolGood;
}

/* Room for two directions on every rank. */
static enum toolExit checkSums(const lrmoePlanView_t *view, wide *forward,
                               wide *kept, struct toolError *error) {
  wide pairs = 0, quotas = 0;
  for (int32_t e = 0; e < view->numExperts; e++) {
    wide n = view->demand ? 0 : view->totals[e];
    for (int64_t s = 0; s < view->numRanks && view->demand; s++) {
      int64_t count = view->demand[s * view->numExperts + e];
      if (count < 0)
        return WRONG("demand of rank %d, expert %d is %" PRId64, (int)s, e,
                     count);
      n += count;
    }
    if (view->quotas[e] < 0 || view->quotas[e] > n)
      return WRONG("expert %d keeps %" PRId64 " of %" PRId64 " pairs", e,
                   view->quotas[e], (int64_t)n);
    HOLDS(addShares(view, e, view->forwardPairs, n, forward, error));
    HOLDS(addShares(view, e, view->keptPairs, view->quotas[e], kept, error));
    pairs += n;
    quotas += view->quotas[e];
  }
  MUST_BE("pairs", view->pairs, (int64_t)pairs);
  MUST_BE("kept", view->kept, (int64_t)quotas);
  MUST_BE("peakForward", view->peakForward,
          (int64_t)highest(forward, view->numRanks));
  MUST_BE("peakKept", view->peakKept, (int64_t)highest(kept, view->numRanks));
  MUST_BE("retainPpm", view->retainPpm,
          (int64_t)(pairs ? quotas * 1000000 / pairs : 1000000));
  const int64_t figures[2][3] = {
      {view->peakForward, view->boundForward, view->gapForwardPpm},
      {view->peakKept, view->boundKept, view->gapKeptPpm}};
  HOLDS(checkBound("forward", pairs, view->numRanks, figures[0], error));
  HOLDS(checkBound("kept", quotas, view->numRanks, figures[1], error));
  return checkMoves(view, forward, error);
}

static enum toolExit checkNumbers(const lrmoePlanView_t *view,
                                  struct toolError *error) {
  size_t ranks = (size_t)view->numRanks;
  wide *room = calloc(2 * ranks, sizeof *room);
  if (!room) return WRONG("no memory to check the plan");
  enum toolExit code = checkSums(view, room, room + ranks, error);
  free(room);
  return code;
}

static enum toolExit checkTotals(const lrmoePlanView_t *view,
                                 const struct toolPlanOrigin *origin,
                                 struct toolError *error) {
  if (!view->demand && !origin->totals)
    return WRONG("the plan has no demand and was not made from totals");
  for (int32_t e = 0; e < view->numExperts; e++) {
    int64_t total = view->demand ? toolPairsOf(view, e) : origin->totals[e];
    if (view->totals[e] != total)
      return WRONG("expert %d has %" PRId64 " pairs in all and should have "
                   "%" PRId64,
                   e, view->totals[e], total);
  }
  return toolGood;
}

static enum toolExit checkDemand(const lrmoePlanView_t *view,
                                 const struct toolPlanOrigin *origin,
                                 struct toolError *error) {
  size_t cells = (size_t)view->numRanks * (size_t)view->numExperts;
  if (!view->demand || !origin->demand || view->changesForward) return toolGood;
  if (memcmp(view->demand, origin->demand, cells * sizeof(int64_t)) != 0)
    return WRONG("the plan is for another demand");
  return toolGood;
}

enum toolExit toolPlanVerify(const lrmoePlanView_t *view,
                             const struct toolPlanOrigin *origin,
                             struct toolError *error) {
  MUST_BE("numRanks", view->numRanks, origin->numRanks);
  HOLDS(checkInstances(view, error));
  HOLDS(checkNumbers(view, error));
  HOLDS(checkTotals(view, origin, error));
  HOLDS(checkDemand(view, origin, error));
  if (!origin->config) return toolGood;
  HOLDS(toolPlanVerifyConfig(view, origin, error));
  return toolPlanVerifyPolicy(view, origin, error);
}
