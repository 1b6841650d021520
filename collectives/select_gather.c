/* Selection on every rank, from all keys (one round).
 *
 * A rank sends its keys in sorted order, whose number follows from the demand,
 * and a head: the tag; with scope `layer` the pair ids, because ties then fall
 * across experts by (source, token, slot).  Where pairs may move, the tokens of
 * those that may (of experts with replicas) come beside them, because an
 * executor has to know which rows it will get.  The backend puts the keys into
 * (expert, source, ordinal) order and selects; then the host waits for a
 * device, at most once in a backward: for counts where the route is worked out
 * on the device (device_route.h) and cannot go on without, else for the
 * flags. */
#include "collectives/device_route.h"
#include "collectives/reroute.h"
#include "collectives/select.h"

#include <string.h>

struct gathered {
  int64_t numPairs;           /* of all ranks */
  int64_t maxPairs;           /* of one expert */
  int64_t *headOffsets;       /* [G + 1] bytes of each rank's head */
  int64_t *tokenOffsets;      /* [G + 1] its pairs that may move */
  int64_t *keyOffsets;        /* [G + 1] pairs of each rank */
  int64_t *firsts;            /* [G, E] place of (source, expert) in the keys */
  int64_t *movables;          /* [G, E] and in the tokens */
  int32_t *tokens;            /* [maxPairs] */
  int32_t *work;              /* [maxPairs] */
  uint32_t *deviceKeys;       /* device, as they came */
  unsigned char *deviceHeads; /* device */
  unsigned char *heads;
  int32_t *tokenRoom;    /* device: of local pairs, then those that come */
  int32_t *deviceTokens; /* device: of all ranks, as they came */
  int32_t *allTokens;    /* the same on the host */
};

static int64_t idBytes(const struct lrmoeStep *step) {
  return step->config.scope == lrmoeScopeLayer ? (int64_t)sizeof(int64_t) : 0;
}

/* Places of every (source, expert) in the messages, and their lengths. */
static void layOutMessages(const struct lrmoeStep *step, struct gathered *all) {
  int64_t numExperts = step->plan->numExperts;
  all->headOffsets[0] = 0;
  all->tokenOffsets[0] = 0;
  all->keyOffsets[0] = 0;
  for (int64_t s = 0; s < step->plan->numRanks; s++) {
    int64_t numPairs = 0;
    int64_t numMovable = all->tokenOffsets[s];
    for (int32_t e = 0; e < numExperts; e++) {
      int64_t cell = s * numExperts + e;
      all->firsts[cell] = all->keyOffsets[s] + numPairs;
      all->movables[cell] = numMovable;
      numPairs += step->demand[cell];
      if (lrmoeSelectMayMove(step, e)) numMovable += step->demand[cell];
    }
    all->keyOffsets[s + 1] = all->keyOffsets[s] + numPairs;
    all->headOffsets[s + 1] = all->headOffsets[s] + (int64_t)sizeof(uint64_t) +
                              numPairs * idBytes(step);
    all->tokenOffsets[s + 1] = numMovable;
  }
}

/* What the host needs in one scratch block, and the backend's blocks. */
static lrmoeResult_t layOut(struct lrmoeStep *step, struct gathered *all) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numCells = numRanks * step->plan->numExperts;
  all->numPairs = step->plan->pairs;
  all->maxPairs = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++)
    if (lrmoeSelectNumPairs(step, e) > all->maxPairs)
      all->maxPairs = lrmoeSelectNumPairs(step, e);
  int64_t bytes =
      (3 * (numRanks + 1) + 2 * numCells) * (int64_t)sizeof(int64_t) +
      2 * all->maxPairs * (int64_t)sizeof(int32_t);
  LRMOE_CHECK(
      lrmoeStepReserve(step, lrmoeArrayScratch, bytes, 1, &all->headOffsets));
  all->tokenOffsets = all->headOffsets + numRanks + 1;
  all->keyOffsets = all->tokenOffsets + numRanks + 1;
  all->firsts = all->keyOffsets + numRanks + 1;
  all->movables = all->firsts + numCells;
  all->tokens = (int32_t *)(all->movables + numCells);
  all->work = all->tokens + all->maxPairs;
  layOutMessages(step, all);
  int64_t keyBytes = all->numPairs * (int64_t)sizeof(uint32_t);
  /* As they came, then by expert. */
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockAllKeys, 2 * keyBytes,
                                    &all->deviceKeys));
  LRMOE_CHECK(lrmoeStepReserveBlock(
      step, lrmoeBlockHeads, all->headOffsets[numRanks], &all->deviceHeads));
  int64_t numLocal = lrmoeDeviceRouteIsPossible(step)
                         ? step->instanceOffsets[step->numInstances]
                         : 0;
  int64_t tokenBytes = (numLocal + all->tokenOffsets[numRanks]) *
                       (int64_t)sizeof *all->tokenRoom;
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockTokens, tokenBytes,
                                    &all->tokenRoom));
  all->deviceTokens = all->tokenRoom + numLocal;
  lrmoeMeterAdd(&step->meter,
                bytes + 2 * keyBytes + tokenBytes + all->headOffsets[numRanks]);
  return lrmoeSuccess;
}

/* This rank's head. */
static lrmoeResult_t writeHead(struct lrmoeStep *step, int64_t bytes,
                               unsigned char **device) {
  unsigned char *head = NULL;
  LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArrayHeads, bytes, 1, &head));
  uint64_t tag = lrmoeSelectTag(step);
  size_t ids = (size_t)(step->numPairs * idBytes(step));
  memcpy(head, &tag, sizeof tag);
  if (ids) memcpy(head + sizeof tag, step->sorted, ids);
  return lrmoeStepUpload(step, lrmoeArrayHeads, head, bytes, device);
}

static lrmoeResult_t exchangeKeys(struct lrmoeStep *step,
                                  const struct gathered *all) {
  struct lrmoeComm *comm = step->layer->comm;
  int64_t bytes =
      all->headOffsets[comm->rank + 1] - all->headOffsets[comm->rank];
  unsigned char *head = NULL;
  int32_t *tokens = NULL;
  int64_t numTokens = 0;
  LRMOE_CHECK(writeHead(step, bytes, &head));
  LRMOE_CHECK(lrmoeSelectPackTokens(step, &tokens, &numTokens));
  const struct lrmoeExchange exchanges[] = {
      {head, NULL, all->deviceHeads, all->headOffsets, 1, bytes},
      {step->deviceKeys, NULL, all->deviceKeys, all->keyOffsets,
       sizeof(uint32_t), step->numPairs},
      {tokens, NULL, all->deviceTokens, all->tokenOffsets, sizeof *tokens,
       numTokens}};
  return lrmoeExchangeRun(comm, exchanges,
                          all->tokenOffsets[comm->numRanks] ? 3 : 2,
                          step->stream, &step->stats.selectBytes);
}

/* ---- Experts, or their instances ---- */

/* What is selected from, as the backend sees it. */
struct selection {
  struct lrmoePieces pieces;
  struct lrmoeSelection args;
};

/* Segments of one expert; returns the next segment. */
static int64_t addSegments(const struct lrmoeStep *step, int32_t e, int64_t at,
                           int64_t *offsets, int64_t *quotas) {
  for (int32_t i = 0; i < lrmoeSelectNumStretches(step, e); i++, at++) {
    struct lrmoeStretch stretch = lrmoeSelectStretch(step, e, i);
    offsets[at + 1] = offsets[at] + stretch.numPairs;
    quotas[at] = stretch.quota;
  }
  return at;
}

/* Tables of the pieces and the segments, uploaded in one. */
static lrmoeResult_t layOutSelection(struct lrmoeStep *step,
                                     const struct gathered *all,
                                     struct selection *selection) {
  const struct lrmoePlan *plan = step->plan;
  int64_t numCells = (int64_t)plan->numRanks * plan->numExperts;
  int64_t length = 3 * numCells + 2 * (int64_t)plan->numInstances + 1;
  int64_t *source = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArraySelection, length, &source));
  int64_t *target = source + numCells;
  int64_t *counts = target + numCells;
  int64_t *offsets = counts + numCells;
  int64_t *quotas = offsets + plan->numInstances + 1;
  int64_t place = 0;
  int64_t piece = 0;
  int64_t numSegments = 0;
  offsets[0] = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    for (int64_t s = 0; s < plan->numRanks; s++, piece++) {
      int64_t cell = s * plan->numExperts + e;
      source[piece] = all->firsts[cell];
      target[piece] = place;
      counts[piece] = step->demand[cell];
      place += counts[piece];
      if (counts[piece] > selection->pieces.maxWords)
        selection->pieces.maxWords = counts[piece];
    }
    numSegments = addSegments(step, e, numSegments, offsets, quotas);
  }
  int64_t *device = NULL;
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArraySelection, length, source, &device));
  selection->pieces.numPieces = numCells;
  selection->pieces.source = device;
  selection->pieces.target = device + numCells;
  selection->pieces.counts = device + 2 * numCells;
  selection->args.numSegments = numSegments;
  selection->args.maxPairs = all->maxPairs;
  selection->args.offsets = device + 3 * numCells;
  selection->args.quotas = device + (quotas - source);
  return lrmoeSuccess;
}

/* Flags of all pairs by (expert, source, ordinal), device. */
static lrmoeResult_t selectOnDevice(struct lrmoeStep *step,
                                    const struct gathered *all,
                                    uint8_t **flags) {
  const struct lrmoeBackend *backend = step->layer->backend;
  struct selection selection = {{0}, {0}};
  uint8_t *deviceFlags = NULL;
  LRMOE_CHECK(layOutSelection(step, all, &selection));
  LRMOE_CHECK(lrmoeStepReserveBlock(step, lrmoeBlockFlags, all->numPairs,
                                    &deviceFlags));
  lrmoeMeterAdd(&step->meter, all->numPairs);
  uint32_t *byExpert = all->deviceKeys + all->numPairs;
  selection.pieces.from = all->deviceKeys;
  selection.pieces.to = byExpert;
  selection.args.keys = byExpert;
  selection.args.flags = deviceFlags;
  LRMOE_CHECK(lrmoeSelectReserveWork(step, &selection.args));
  LRMOE_RUN(backend, copyPieces, &selection.pieces, step->stream);
  LRMOE_RUN(backend, selectTop, &selection.args, step->stream);
  *flags = deviceFlags;
  return lrmoeSuccess;
}

/* Flags of one expert, in (source, ordinal) order, to source and executor, with
 * the tokens of its pairs if they may move. */
static lrmoeResult_t takeFlags(struct lrmoeStep *step,
                               const struct gathered *all, int32_t e,
                               const uint8_t *flags) {
  struct lrmoeMoves moves = {e, flags, NULL, all->work};
  if (!lrmoeSelectMayMove(step, e)) return lrmoeSelectTake(step, &moves);
  int64_t numPairs = 0;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    int64_t cell = (int64_t)s * step->plan->numExperts + e;
    memcpy(all->tokens + numPairs, all->allTokens + all->movables[cell],
           (size_t)step->demand[cell] * sizeof(int32_t));
    numPairs += step->demand[cell];
  }
  moves.tokens = all->tokens;
  return lrmoeSelectTake(step, &moves);
}

static lrmoeResult_t takeExperts(struct lrmoeStep *step,
                                 const struct gathered *all,
                                 const uint8_t *flags) {
  int64_t first = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++) {
    LRMOE_CHECK(takeFlags(step, all, e, flags + first));
    first += lrmoeSelectNumPairs(step, e);
  }
  return lrmoeSuccess;
}

/* ---- The layer as a whole ---- */

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

/* All keys in ascending pair id into listed; order[n] = place of the n-th in
 * (source, sorted) order.  slots is room for one source's [T, k]. */
static lrmoeResult_t listKeys(const struct lrmoeStep *step,
                              const struct gathered *all, const uint32_t *keys,
                              int64_t *slots, int64_t *order,
                              uint32_t *listed) {
  int64_t numSlots = step->layer->maxTokens * step->layer->topk;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    const unsigned char *ids =
        all->heads + all->headOffsets[s] + sizeof(uint64_t);
    int64_t first = all->keyOffsets[s];
    int64_t numPairs = all->keyOffsets[s + 1] - first;
    int64_t numListed =
        listByPair(ids, numPairs, numSlots, slots, order + first);
    if (numListed != numPairs)
      return LRMOE_FAIL(lrmoeInternalError, "rank %d repeats a pair id", s);
    for (int64_t i = first; i < first + numPairs; i++) {
      order[i] += first;
      listed[i] = keys[order[i]];
    }
  }
  return lrmoeSuccess;
}

/* From flags in (source, sorted) order to (expert, source, ordinal) order. */
static void spreadFlags(const struct lrmoeStep *step,
                        const struct gathered *all, const uint8_t *sorted,
                        uint8_t *flags) {
  int32_t numExperts = step->plan->numExperts;
  for (int32_t e = 0; e < numExperts; e++)
    for (int32_t s = 0; s < step->plan->numRanks; s++) {
      int64_t cell = (int64_t)s * numExperts + e;
      memcpy(flags, sorted + all->firsts[cell], (size_t)step->demand[cell]);
      flags += step->demand[cell];
    }
}

/* One selection over the layer, on the host: in pair order for the ties, then
 * back into (expert, source, ordinal) order. */
static lrmoeResult_t selectLayer(struct lrmoeStep *step,
                                 const struct gathered *all,
                                 const uint32_t *keys) {
  int64_t numPairs = all->numPairs;
  int64_t numSlots = step->layer->maxTokens * step->layer->topk;
  int64_t *slots = NULL;   /* [numSlots], then order [numPairs] */
  uint32_t *listed = NULL; /* [numPairs], then three times flags [numPairs] */
  LRMOE_CHECK(LRMOE_ALLOCATE(numSlots + numPairs, &slots));
  int64_t *order = slots + numSlots;
  lrmoeResult_t result = LRMOE_ALLOCATE(2 * numPairs, &listed);
  if (result == lrmoeSuccess)
    result = listKeys(step, all, keys, slots, order, listed);
  if (result == lrmoeSuccess) {
    uint8_t *chosen = (uint8_t *)(listed + numPairs);
    uint8_t *sorted = chosen + numPairs;
    uint8_t *flags = sorted + numPairs;
    lrmoeSelectTop(numPairs, listed, step->plan->kept, chosen);
    for (int64_t i = 0; i < numPairs; i++)
      sorted[order[i]] = chosen[i];
    spreadFlags(step, all, sorted, flags);
    result = takeExperts(step, all, flags);
  }
  lrmoeFree(listed);
  lrmoeFree(slots);
  return result;
}

static lrmoeResult_t readKeys(struct lrmoeStep *step) {
  return lrmoeStepDownload(step, lrmoeArrayKeys, step->deviceKeys,
                           step->numPairs * (int64_t)sizeof *step->keys,
                           &step->keys);
}

/* Copies the heads to the host, waits, and checks the tags. */
static lrmoeResult_t readBack(struct lrmoeStep *step, struct gathered *all) {
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayScratch2, all->deviceHeads,
                                all->headOffsets[step->plan->numRanks],
                                &all->heads));
  LRMOE_CHECK(lrmoeStepSynchronize(step));
  return lrmoeSelectCheckTags(step, all->heads, all->headOffsets);
}

static lrmoeResult_t routeOnDevice(struct lrmoeStep *step, struct gathered *all,
                                   uint8_t *flags) {
  int64_t numCells = (int64_t)step->plan->numRanks * step->plan->numExperts;
  int64_t *tokenFirsts = NULL; /* scratch does not last */
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayTokenFirsts, numCells, &tokenFirsts));
  memcpy(tokenFirsts, all->movables, (size_t)numCells * sizeof *tokenFirsts);
  const struct lrmoeDeviceSelected selected = {flags, all->tokenRoom,
                                               tokenFirsts};
  LRMOE_CHECK(lrmoeDeviceRouteCount(step, &selected));
  if (lrmoeDeviceRouteMayDefer(step)) { /* heads are tags alone */
    lrmoeDeviceRouteDefer(step, (const uint64_t *)(void *)all->deviceHeads);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(readBack(step, all));
  return lrmoeDeviceRouteTake(step);
}

lrmoeResult_t lrmoeSelectGather(struct lrmoeStep *step) {
  struct gathered all;
  LRMOE_CHECK(layOut(step, &all));
  LRMOE_CHECK(exchangeKeys(step, &all));
  if (step->config.scope == lrmoeScopeLayer) {
    uint32_t *keys = NULL;
    LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayAllKeys, all.deviceKeys,
                                  all.numPairs * (int64_t)sizeof *keys, &keys));
    LRMOE_CHECK(readKeys(step));
    LRMOE_CHECK(readBack(step, &all));
    return selectLayer(step, &all, keys);
  }
  uint8_t *deviceFlags = NULL;
  uint8_t *flags = NULL;
  LRMOE_CHECK(selectOnDevice(step, &all, &deviceFlags));
  if (lrmoeDeviceRouteIsPossible(step))
    return routeOnDevice(step, &all, deviceFlags);
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayFlags, deviceFlags,
                                all.numPairs, &flags));
  LRMOE_CHECK(lrmoeStepDownload(step, lrmoeArrayTokenFirsts, all.deviceTokens,
                                all.tokenOffsets[step->plan->numRanks] *
                                    (int64_t)sizeof *all.allTokens,
                                &all.allTokens));
  LRMOE_CHECK(readKeys(step));
  LRMOE_CHECK(readBack(step, &all));
  return takeExperts(step, &all, flags);
}
