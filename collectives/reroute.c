/* Reroute: see reroute.h. */
#include "collectives/reroute.h"

#include <string.h>

int lrmoeStepMayMove(const struct lrmoeStep *step) {
  return step->plan->numInstances > step->plan->numExperts &&
         step->config.metric != lrmoeMetricAll &&
         step->config.scope == lrmoeScopeExpert &&
         step->config.wire != lrmoeWireMasked;
}

int32_t lrmoeStepInstanceOf(const struct lrmoeStep *step, int32_t expert) {
  const int32_t *offsets = step->plan->instanceOffsets;
  int32_t low = 0;
  int32_t high = step->numInstances;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (step->instances[middle] < offsets[expert])
      low = middle + 1;
    else
      high = middle;
  }
  int isHere =
      low < step->numInstances && step->instances[low] < offsets[expert + 1];
  return isHere ? low : -1;
}

lrmoeResult_t lrmoeRerouteBegin(struct lrmoeStep *step) {
  int64_t numSlots = step->numTokens * step->layer->topk;
  int64_t numSegments = (int64_t)step->numInstances * step->plan->numRanks + 1;
  /* Pairs that can come with x: all that this rank may execute. */
  int64_t most = step->instanceOffsets[step->numInstances];
  for (int32_t j = 0; j < step->numInstances; j++)
    most += step->plan->keptPairs[step->instances[j]];
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayBackDest, numSlots, &step->backDest));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayMovedOffsets, numSegments,
                            &step->movedOffsets));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayMovedTokens, most, &step->movedTokens));
  memset(step->movedOffsets, 0,
         (size_t)numSegments * sizeof *step->movedOffsets);
  step->numMoved = 0;
  for (int64_t i = 0; i < numSlots; i++)
    step->backDest[i] = -1;
  return lrmoeSuccess;
}

void lrmoeRerouteOwn(struct lrmoeStep *step) {
  for (int64_t i = 0; i < step->numTokens * step->layer->topk; i++)
    step->backDest[i] = step->kept[i] ? step->dest[i] : -1;
}

/* Ends the list of (instance j, source s) where it has got to. */
static void endSegment(struct lrmoeStep *step, int32_t j, int32_t s) {
  step->movedOffsets[(int64_t)j * step->plan->numRanks + s + 1] =
      step->numMoved;
}

void lrmoeRerouteLocal(struct lrmoeStep *step, int32_t j) {
  int comesWithX = step->layer->savedState == lrmoeSavedNone;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    const struct lrmoeSegment *segment =
        &step->segments[(int64_t)s * step->numInstances + j];
    for (int64_t p = segment->local;
         comesWithX && p < segment->local + segment->count; p++) {
      if (!step->keptLocal[p] && step->config.wire != lrmoeWireMasked) continue;
      step->movedTokens[step->numMoved++] = step->pairToken[p];
      step->keptLocal[p] = 0;
    }
    endSegment(step, j, s);
  }
}

/* One expert while its pairs are assigned. */
struct expertShare {
  int32_t first; /* of its instances in the plan */
  int32_t count;
  int64_t *stays; /* [count] how many more may stay */
  int64_t *room;  /* [count] how many more may come */
};

static void countShares(const struct lrmoeStep *step,
                        const struct lrmoeMoves *moves,
                        const struct expertShare *share) {
  int64_t q = 0;
  for (int32_t i = 0; i < share->count; i++) {
    int64_t kept = 0;
    int64_t end = q + step->plan->forwardPairs[share->first + i];
    for (; q < end; q++)
      kept += moves->flags[q];
    int64_t wanted = step->plan->keptPairs[share->first + i];
    share->stays[i] = kept < wanted ? kept : wanted;
    share->room[i] = wanted - share->stays[i];
  }
}

enum {
  notKept = -1,
  notPlaced = -2
};

/* work[q] = instance that pair q stays at, notKept or notPlaced. */
static void placeStaying(const struct lrmoeStep *step,
                         const struct lrmoeMoves *moves,
                         const struct expertShare *share) {
  int64_t q = 0;
  for (int32_t i = 0; i < share->count; i++) {
    int64_t end = q + step->plan->forwardPairs[share->first + i];
    for (; q < end; q++) {
      moves->work[q] = notKept;
      if (!moves->flags[q]) continue;
      moves->work[q] = share->stays[i] > 0 ? i : notPlaced;
      share->stays[i]--;
    }
  }
}

/* How far from its source a pair goes, by passes. */
enum reach {
  ownRank,
  ownDomain, /* joined by NVLink, xGMI or memory */
  ownHost,
  anyRank,
  numReaches
};

static int isWithin(const struct lrmoePlanner *planner, enum reach reach,
                    int32_t source, int32_t rank) {
  switch (reach) {
  case ownRank:
    return rank == source;
  case ownDomain:
    return planner->domains[rank] == planner->domains[source];
  case ownHost:
    return planner->hosts[rank] == planner->hosts[source];
  default:
    return 1;
  }
}

/* The first instance within reach of the source that has room from `i` on. */
static int32_t nextInstance(const struct lrmoeStep *step,
                            const struct expertShare *share, enum reach reach,
                            int32_t source, int32_t i) {
  const int32_t *ranks = step->plan->instanceRanks + share->first;
  while (i < share->count &&
         (!share->room[i] ||
          !isWithin(step->layer->planner, reach, source, ranks[i])))
    i++;
  return i;
}

/* Places what is within reach of those that do not stay. */
static void placeMoving(const struct lrmoeStep *step,
                        const struct lrmoeMoves *moves,
                        const struct expertShare *share, enum reach reach) {
  int64_t q = 0;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    int32_t i = nextInstance(step, share, reach, s, 0);
    int64_t end =
        q + step->demand[(int64_t)s * step->plan->numExperts + moves->expert];
    for (; q < end; q++) {
      if (moves->work[q] != notPlaced) continue;
      i = nextInstance(step, share, reach, s, i);
      if (i == share->count) continue;
      moves->work[q] = i;
      share->room[i]--;
    }
  }
}

/* What the assignment means for this rank as source ... */
static void takeOwn(struct lrmoeStep *step, const struct lrmoeMoves *moves,
                    const struct expertShare *share) {
  int64_t cell =
      (int64_t)step->layer->comm->rank * step->plan->numExperts + moves->expert;
  const int32_t *mine = moves->work + step->sourceBase[cell];
  const int64_t *sorted = step->sorted + step->expertOffsets[moves->expert];
  for (int64_t o = 0; o < step->demand[cell]; o++)
    step->backDest[sorted[o]] =
        mine[o] < 0 ? -1 : step->plan->instanceRanks[share->first + mine[o]];
}

/* ... and as executor. */
static void takeLocal(struct lrmoeStep *step, const struct lrmoeMoves *moves,
                      const struct expertShare *share, int32_t j) {
  const struct lrmoePlan *plan = step->plan;
  int32_t mine = step->instances[j] - share->first;
  int comesWithX = step->layer->savedState == lrmoeSavedNone;
  int64_t low = 0; /* forward's pairs of this instance: [low, high) */
  for (int32_t i = 0; i < mine; i++)
    low += plan->forwardPairs[share->first + i];
  int64_t high = low + plan->forwardPairs[step->instances[j]];
  int64_t q = 0;
  for (int32_t s = 0; s < plan->numRanks; s++) {
    int64_t end =
        q + step->demand[(int64_t)s * plan->numExperts + moves->expert];
    for (; q < end; q++) {
      int isHere = moves->work[q] == mine;
      int wasHere = q >= low && q < high;
      if (wasHere)
        step->keptLocal[step->instanceOffsets[j] + q - low] =
            isHere && !comesWithX;
      if (isHere && (comesWithX || !wasHere))
        step->movedTokens[step->numMoved++] = moves->tokens[q];
    }
    endSegment(step, j, s);
  }
}

lrmoeResult_t lrmoeRerouteMoves(struct lrmoeStep *step,
                                const struct lrmoeMoves *moves) {
  const int32_t *offsets = step->plan->instanceOffsets + moves->expert;
  struct expertShare share = {offsets[0], offsets[1] - offsets[0], NULL, NULL};
  LRMOE_CHECK(LRMOE_ALLOCATE(2 * (int64_t)share.count, &share.stays));
  share.room = share.stays + share.count;
  countShares(step, moves, &share);
  placeStaying(step, moves, &share);
  for (int reach = ownRank; reach < numReaches; reach++)
    placeMoving(step, moves, &share, (enum reach)reach);
  int64_t left = 0;
  for (int32_t i = 0; i < share.count; i++)
    left += share.room[i];
  takeOwn(step, moves, &share);
  int32_t j = lrmoeStepInstanceOf(step, moves->expert);
  if (j >= 0) takeLocal(step, moves, &share, j);
  lrmoeFree(share.stays);
  if (left)
    return LRMOE_FAIL(lrmoeInternalError,
                      "expert %d: %lld pairs of the plan's share are missing",
                      moves->expert, (long long)left);
  return lrmoeSuccess;
}
