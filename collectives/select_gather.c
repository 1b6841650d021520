/* Selection on every rank, from all keys (one round).
 *
 * A message is the tag and the sender's keys in sorted order, whose lengths
 * follow from the demand.  With scope `layer` the pair ids follow the keys,
 * because ties then fall across experts by (source, token, slot). */
#include "collectives/select.h"

#include <string.h>

struct gathered {
  int64_t numPairs;     /* of all ranks */
  int64_t maxPairs;     /* of one expert, or of the layer */
  int64_t *offsets;     /* [G + 1] bytes of each rank's message */
  int64_t *firsts;      /* [G, E] place of (source, expert) in its keys */
  unsigned char *bytes; /* all messages */
  uint32_t *keys;       /* [maxPairs] of one selection */
  uint8_t *flags;       /* [maxPairs] */
};

static int64_t pairBytes(const struct lrmoeStep *step) {
  return (int64_t)sizeof(uint32_t) +
         (step->config.scope == lrmoeScopeLayer ? (int64_t)sizeof(int64_t) : 0);
}

/* Sizes of the messages; all in one scratch block. */
static lrmoeResult_t layOut(struct lrmoeStep *step, struct gathered *all) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numExperts = step->plan->numExperts;
  int64_t numCells = numRanks * numExperts;
  all->numPairs = step->plan->pairs;
  all->maxPairs = step->config.scope == lrmoeScopeLayer ? all->numPairs : 0;
  for (int64_t e = 0; e < numExperts; e++) {
    int64_t last = numCells - numExperts + e;
    int64_t count = step->sourceBase[last] + step->demand[last];
    if (count > all->maxPairs) all->maxPairs = count;
  }
  int64_t messageBytes =
      numRanks * (int64_t)sizeof(uint64_t) + all->numPairs * pairBytes(step);
  int64_t bytes = (numRanks + 1 + numCells) * (int64_t)sizeof(int64_t) +
                  messageBytes + all->maxPairs * 5 + 8;
  LRMOE_CHECK(
      lrmoeStepReserve(step, lrmoeArrayScratch, bytes, 1, &all->offsets));
  lrmoeMeterAdd(&step->meter, bytes);
  all->firsts = all->offsets + numRanks + 1;
  all->keys = (uint32_t *)(all->firsts + numCells);
  all->bytes = (unsigned char *)(all->keys + all->maxPairs);
  all->flags = all->bytes + messageBytes;
  all->offsets[0] = 0;
  for (int64_t s = 0; s < numRanks; s++) {
    int64_t numPairs = 0;
    for (int64_t e = 0; e < numExperts; e++) {
      all->firsts[s * numExperts + e] = numPairs;
      numPairs += step->demand[s * numExperts + e];
    }
    all->offsets[s + 1] = all->offsets[s] + (int64_t)sizeof(uint64_t) +
                          numPairs * pairBytes(step);
  }
  return lrmoeSuccess;
}

/* Rank s's keys and, with scope `layer`, pair ids; unaligned. */
static const unsigned char *keysOf(const struct gathered *all, int32_t s) {
  return all->bytes + all->offsets[s] + sizeof(uint64_t);
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

/* Flags of one expert, in (source, ordinal) order, to source and executor. */
static void takeFlags(struct lrmoeStep *step, int32_t e, const uint8_t *flags) {
  int32_t numExperts = step->plan->numExperts;
  int64_t mine = (int64_t)step->layer->comm->rank * numExperts + e;
  const uint8_t *own = flags + step->sourceBase[mine];
  const int64_t *sorted = step->sorted + step->expertOffsets[e];
  for (int64_t o = 0; o < step->demand[mine]; o++)
    step->kept[sorted[o]] = own[o];
  for (int32_t j = 0; j < step->numInstances; j++) {
    if (lrmoeStepExpert(step, j) != e) continue;
    int64_t first = 0;
    for (int32_t i = step->plan->instanceOffsets[e]; i < step->instances[j];
         i++)
      first += step->plan->forwardPairs[i];
    int64_t local = step->instanceOffsets[j];
    int64_t count = step->instanceOffsets[j + 1] - local;
    if (count) memcpy(step->keptLocal + local, flags + first, (size_t)count);
  }
}

static void selectExperts(struct lrmoeStep *step, const struct gathered *all) {
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
    lrmoeSelectTop(numPairs, all->keys, step->plan->quotas[e], all->flags);
    takeFlags(step, e, all->flags);
  }
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

static int64_t pairsOf(const struct lrmoeStep *step, const struct gathered *all,
                       int32_t s) {
  return (all->offsets[s + 1] - all->offsets[s] - (int64_t)sizeof(uint64_t)) /
         pairBytes(step);
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
static void spreadFlags(struct lrmoeStep *step, const struct gathered *all,
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
    takeFlags(step, e, flags);
  }
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
    spreadFlags(step, all, sorted, sorted + all->numPairs);
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
  selectExperts(step, &all);
  return lrmoeSuccess;
}
