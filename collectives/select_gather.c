/* Selection on every rank, from all keys (one round).
 *
 * A message is the tag and the sender's keys in sorted order, whose lengths
 * follow from the demand.  With scope `layer` the pair ids follow the keys,
 * because ties then fall across experts by (source, token, slot).  Where pairs
 * may move, the tokens of the pairs that may (those of experts with replicas)
 * follow: an executor has to know which rows it will get. */
#include "collectives/reroute.h"
#include "collectives/select.h"

#include <string.h>

struct gathered {
  int64_t numPairs;     /* of all ranks */
  int64_t maxPairs;     /* of one expert, or of the layer */
  int64_t *offsets;     /* [G + 1] bytes of each rank's message */
  int64_t *firsts;      /* [G, E] place of (source, expert) in its keys */
  int64_t *movables;    /* [G, E] and in its tokens */
  unsigned char *bytes; /* all messages */
  uint32_t *keys;       /* [maxPairs] of one selection */
  int32_t *tokens;      /* [maxPairs] */
  int32_t *work;        /* [maxPairs] */
  uint8_t *flags;       /* [maxPairs] */
};

/* Bytes of a key, a token and a place in the assignment, and a flag. */
enum {
  bytesPerPair = 13
};

static int64_t pairBytes(const struct lrmoeStep *step) {
  return (int64_t)sizeof(uint32_t) +
         (step->config.scope == lrmoeScopeLayer ? (int64_t)sizeof(int64_t) : 0);
}

static int64_t countPairs(const struct lrmoeStep *step, struct gathered *all) {
  all->numPairs = step->plan->pairs;
  all->maxPairs = step->config.scope == lrmoeScopeLayer ? all->numPairs : 0;
  int64_t numMovable = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    int64_t count = lrmoeSelectNumPairs(step, e);
    if (count > all->maxPairs) all->maxPairs = count;
    if (lrmoeSelectHasReplicas(step, e)) numMovable += count;
  }
  return lrmoeStepMayMove(step) ? numMovable : 0;
}

/* Places of every (source, expert) in the messages, and their lengths. */
static void layOutMessages(const struct lrmoeStep *step, struct gathered *all) {
  int64_t numExperts = step->plan->numExperts;
  int mayMove = lrmoeStepMayMove(step);
  all->offsets[0] = 0;
  for (int64_t s = 0; s < step->plan->numRanks; s++) {
    int64_t numPairs = 0;
    int64_t numMovable = 0;
    for (int32_t e = 0; e < numExperts; e++) {
      int64_t cell = s * numExperts + e;
      all->firsts[cell] = numPairs;
      all->movables[cell] = numMovable;
      numPairs += step->demand[cell];
      if (mayMove && lrmoeSelectHasReplicas(step, e))
        numMovable += step->demand[cell];
    }
    all->offsets[s + 1] = all->offsets[s] + (int64_t)sizeof(uint64_t) +
                          numPairs * pairBytes(step) +
                          numMovable * (int64_t)sizeof(int32_t);
  }
}

/* All in one scratch block. */
static lrmoeResult_t layOut(struct lrmoeStep *step, struct gathered *all) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numCells = numRanks * step->plan->numExperts;
  int64_t numMovable = countPairs(step, all);
  int64_t messageBytes = numRanks * (int64_t)sizeof(uint64_t) +
                         all->numPairs * pairBytes(step) +
                         numMovable * (int64_t)sizeof(int32_t);
  int64_t bytes = (numRanks + 1 + 2 * numCells) * (int64_t)sizeof(int64_t) +
                  messageBytes + all->maxPairs * bytesPerPair + 8;
  LRMOE_CHECK(
      lrmoeStepReserve(step, lrmoeArrayScratch, bytes, 1, &all->offsets));
  lrmoeMeterAdd(&step->meter, bytes);
  all->firsts = all->offsets + numRanks + 1;
  all->movables = all->firsts + numCells;
  all->keys = (uint32_t *)(all->movables + numCells);
  all->tokens = (int32_t *)(all->keys + all->maxPairs);
  all->work = all->tokens + all->maxPairs;
  all->bytes = (unsigned char *)(all->work + all->maxPairs);
  all->flags = all->bytes + messageBytes;
  layOutMessages(step, all);
  return lrmoeSuccess;
}

static int64_t pairsOf(const struct lrmoeStep *step, const struct gathered *all,
                       int32_t s) {
  int64_t last = (int64_t)(s + 1) * step->plan->numExperts - 1;
  return all->firsts[last] + step->demand[last];
}

/* Rank s's keys and, with scope `layer`, pair ids; unaligned. */
static const unsigned char *keysOf(const struct gathered *all, int32_t s) {
  return all->bytes + all->offsets[s] + sizeof(uint64_t);
}

/* Tokens of this rank's pairs that may move, in sorted order; unaligned. */
static void writeTokens(const struct lrmoeStep *step, unsigned char *at) {
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    if (!lrmoeStepMayMove(step) || !lrmoeSelectHasReplicas(step, e)) continue;
    for (int64_t i = step->expertOffsets[e]; i < step->expertOffsets[e + 1];
         i++) {
      int32_t token = (int32_t)step->sortedTokens[i];
      memcpy(at, &token, sizeof token);
      at += sizeof token;
    }
  }
}

static lrmoeResult_t exchangeKeys(struct lrmoeStep *step,
                                  const struct gathered *all) {
  struct lrmoeComm *comm = step->layer->comm;
  int64_t bytes = all->offsets[comm->rank + 1] - all->offsets[comm->rank];
  unsigned char *message = NULL;
  LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArrayScratch2, bytes, 1, &message));
  uint64_t tag = lrmoeSelectTag(step);
  size_t keyBytes = (size_t)step->numPairs * sizeof(uint32_t);
  memcpy(message, &tag, sizeof tag);
  if (step->numPairs) memcpy(message + sizeof tag, step->keys, keyBytes);
  if (step->numPairs && step->config.scope == lrmoeScopeLayer)
    memcpy(message + sizeof tag + keyBytes, step->sorted,
           (size_t)step->numPairs * sizeof(int64_t));
  writeTokens(step, message + sizeof tag + step->numPairs * pairBytes(step));
  const struct lrmoeExchange exchange = {message,      NULL, all->bytes,
                                         all->offsets, 1,    bytes};
  LRMOE_CHECK(lrmoeExchangeRun(comm, &exchange, 1, &step->stats.selectBytes));
  for (int s = 0; s < comm->numRanks; s++)
    if (memcmp(all->bytes + all->offsets[s], &tag, sizeof tag) != 0)
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d is at another step, plan or backward config",
                        s);
  return lrmoeSuccess;
}

/* Flags of one expert, in (source, ordinal) order, to source and executor, with
 * the tokens of its pairs if they may move. */
static lrmoeResult_t takeFlags(struct lrmoeStep *step,
                               const struct gathered *all, int32_t e,
                               const uint8_t *flags) {
  struct lrmoeMoves moves = {e, flags, NULL, all->work};
  if (!lrmoeStepMayMove(step) || !lrmoeSelectHasReplicas(step, e))
    return lrmoeSelectTake(step, &moves);
  int64_t numPairs = 0;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    int64_t cell = (int64_t)s * step->plan->numExperts + e;
    const unsigned char *tokens =
        keysOf(all, s) + pairsOf(step, all, s) * pairBytes(step);
    memcpy(all->tokens + numPairs,
           tokens + all->movables[cell] * (int64_t)sizeof(int32_t),
           (size_t)step->demand[cell] * sizeof(int32_t));
    numPairs += step->demand[cell];
  }
  moves.tokens = all->tokens;
  return lrmoeSelectTake(step, &moves);
}

static lrmoeResult_t selectExperts(struct lrmoeStep *step,
                                   const struct gathered *all) {
  int32_t numExperts = step->plan->numExperts;
  for (int32_t e = 0; e < numExperts; e++) {
    int64_t numPairs = 0;
    for (int32_t s = 0; s < step->plan->numRanks; s++) {
      int64_t cell = (int64_t)s * numExperts + e;
      memcpy(all->keys + numPairs,
             keysOf(all, s) + all->firsts[cell] * (int64_t)sizeof(uint32_t),
             (size_t)step->demand[cell] * sizeof(uint32_t));
      numPairs += step->demand[cell];
    }
    lrmoeSelectExpert(step, e, all->keys, all->flags);
    LRMOE_CHECK(takeFlags(step, all, e, all->flags));
  }
  return lrmoeSuccess;
}

/* Lists one source's keys in ascending pair id: order[n] = place in sorted
 * order.  slots is room for its [T, k] slots. */
static int64_t listByPair(const unsigned char *ids, int64_t numPairs,
                          int64_t numSlots, int64_t *slots, int64_t *order) {
  for (int64_t i = 0; i < numSlots; i++)
    slots[i] = -1;
  for (int64_t i = 0; i < numPairs; i++) {
    int64_t id;
    memcpy(&id, ids + i * (int64_t)sizeof id, sizeof id);
    if (id >= 0 && id < numSlots) slots[id] = i;
  }
  int64_t numListed = 0;
  for (int64_t i = 0; i < numSlots; i++)
    if (slots[i] >= 0) order[numListed++] = slots[i];
  return numListed;
}

/* All keys in ascending pair id into all->keys; order[n] = place of the n-th
 * in (source, sorted) order.  slots is room for one source's [T, k]. */
static lrmoeResult_t listKeys(const struct lrmoeStep *step,
                              const struct gathered *all, int64_t numSlots,
                              int64_t *slots, int64_t *order) {
  int64_t first = 0;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    const unsigned char *keys = keysOf(all, s);
    int64_t numPairs = pairsOf(step, all, s);
    int64_t numListed = listByPair(keys + numPairs * (int64_t)sizeof(uint32_t),
                                   numPairs, numSlots, slots, order + first);
    if (numListed != numPairs)
      return LRMOE_FAIL(lrmoeInternalError, "rank %d repeats a pair id", s);
    for (int64_t i = first; i < first + numPairs; i++) {
      memcpy(&all->keys[i], keys + order[i] * (int64_t)sizeof(uint32_t),
             sizeof(uint32_t));
      order[i] += first;
    }
    first += numPairs;
  }
  return lrmoeSuccess;
}

/* From flags in (source, sorted) order to those of each expert, in `flags`. */
static lrmoeResult_t spreadFlags(struct lrmoeStep *step,
                                 const struct gathered *all,
                                 const uint8_t *sorted, uint8_t *flags) {
  int32_t numExperts = step->plan->numExperts;
  for (int32_t e = 0; e < numExperts; e++) {
    int64_t count = 0;
    int64_t base = 0;
    for (int32_t s = 0; s < step->plan->numRanks; s++) {
      int64_t cell = (int64_t)s * numExperts + e;
      memcpy(flags + count, sorted + base + all->firsts[cell],
             (size_t)step->demand[cell]);
      count += step->demand[cell];
      base += pairsOf(step, all, s);
    }
    LRMOE_CHECK(takeFlags(step, all, e, flags));
  }
  return lrmoeSuccess;
}

/* One selection over the layer: in pair order for the ties, then back into
 * (expert, source, ordinal) order. */
static lrmoeResult_t selectLayer(struct lrmoeStep *step,
                                 const struct gathered *all) {
  int64_t numSlots = step->layer->maxTokens * step->layer->topk;
  int64_t *slots = NULL;  /* [numSlots], then order [numPairs] */
  uint8_t *sorted = NULL; /* [numPairs], then the flags of one expert */
  LRMOE_CHECK(LRMOE_ALLOCATE(numSlots + all->numPairs, &slots));
  int64_t *order = slots + numSlots;
  lrmoeResult_t result = LRMOE_ALLOCATE(2 * all->numPairs, &sorted);
  if (result == lrmoeSuccess)
    result = listKeys(step, all, numSlots, slots, order);
  if (result == lrmoeSuccess) {
    lrmoeSelectTop(all->numPairs, all->keys, step->plan->kept, all->flags);
    for (int64_t i = 0; i < all->numPairs; i++)
      sorted[order[i]] = all->flags[i];
    result = spreadFlags(step, all, sorted, sorted + all->numPairs);
  }
  lrmoeFree(sorted);
  lrmoeFree(slots);
  return result;
}

lrmoeResult_t lrmoeSelectGather(struct lrmoeStep *step) {
  struct gathered all;
  LRMOE_CHECK(layOut(step, &all));
  LRMOE_CHECK(exchangeKeys(step, &all));
  if (step->config.scope == lrmoeScopeLayer) return selectLayer(step, &all);
  return selectExperts(step, &all);
}
