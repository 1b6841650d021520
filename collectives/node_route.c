/* The route by relays: see node.h.
 *
 * A source knows which of its rows each rank needs, a relay does not.  It is
 * told how many rows come (the union over its node's ranks, by token) and, for
 * each rank, which of them: 4 bytes a row and rank beside the row itself. */
#include "collectives/node.h"

#include <string.h>

/* The way's array, `first` or the one behind it. */
static enum lrmoeStepArray arrayOf(const struct lrmoeWay *way,
                                   enum lrmoeStepArray first) {
  return (enum lrmoeStepArray)((int)first + way->relay);
}

/* ---- Source ---- */

/* Where the next of a notice is written. */
struct pen {
  int64_t *marks; /* [numTokens] */
  int64_t *count;
  int32_t *list;
};

/* The rows that a way sends, by rank. */
struct unions {
  int64_t *offsets; /* [G + 1] */
  int64_t *tokens;
};

/* Rows of the union of what a node's ranks need, and of each its list. */
static int64_t uniteRows(const struct lrmoeStep *step,
                         const struct lrmoeWay *way, int32_t node,
                         struct pen *pen, int64_t *tokens) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  const int32_t *members = nodes->ranks + nodes->firsts[node];
  int32_t numMembers = lrmoeNodeSize(nodes, node);
  int64_t numRows = 0;
  for (int64_t t = 0; t < step->numTokens; t++)
    pen->marks[t] = -1;
  for (int32_t m = 0; m < numMembers; m++)
    for (int64_t i = way->offsets[members[m]]; i < way->offsets[members[m] + 1];
         i++)
      pen->marks[way->tokens[i]] = 0;
  for (int64_t t = 0; t < step->numTokens; t++)
    if (pen->marks[t] == 0) {
      pen->marks[t] = numRows;
      tokens[numRows++] = t;
    }
  *pen->count++ = numRows;
  for (int32_t m = 0; m < numMembers; m++) {
    int64_t first = way->offsets[members[m]];
    int64_t end = way->offsets[members[m] + 1];
    *pen->count++ = end - first;
    for (int64_t i = first; i < end; i++)
      *pen->list++ = (int32_t)pen->marks[way->tokens[i]];
  }
  return numRows;
}

/* What the way sends to rank r. */
static void uniteFor(const struct lrmoeStep *step, const struct lrmoeWay *way,
                     int32_t r, struct pen *pen, const struct unions *unions) {
  int64_t *tokens = unions->tokens + unions->offsets[r];
  int64_t first = way->offsets[r];
  int64_t numRows = 0;
  if (lrmoeNodeIsNear(step, r)) {
    numRows = way->offsets[r + 1] - first;
    if (numRows)
      memcpy(tokens, way->tokens + first, (size_t)numRows * sizeof *tokens);
  } else if (lrmoeNodeIsRelay(step, r)) {
    numRows = uniteRows(step, way, step->layer->nodes->of[r], pen, tokens);
  }
  unions->offsets[r + 1] = unions->offsets[r] + numRows;
}

static lrmoeResult_t reserveUnions(struct lrmoeStep *step,
                                   const struct lrmoeWay *ways, int numWays,
                                   struct unions *unions,
                                   struct lrmoeNotice *notice) {
  int64_t numRanks = step->plan->numRanks;
  int64_t length = numRanks + 1;
  int64_t numCounts = (int64_t)numWays * 2 * numRanks; /* at most */
  int64_t most = 0;
  int64_t *block = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(
      step, lrmoeArrayNodeNotice,
      (numWays + 2) * length + numCounts + step->numTokens, &block));
  for (int w = 0; w < numWays; w++, block += length) {
    int64_t numRows = ways[w].offsets[numRanks];
    unions[w].offsets = block;
    unions[w].offsets[0] = 0;
    LRMOE_CHECK(LRMOE_RESERVE(step, arrayOf(&ways[w], lrmoeArrayNodeTokens),
                              numRows, &unions[w].tokens));
    most += numRows;
  }
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayNodeLists, most, &notice->lists));
  notice->countOffsets = block;
  notice->listOffsets = block + length;
  notice->counts = block + 2 * length;
  notice->marks = notice->counts + numCounts;
  lrmoeMeterAdd(&step->meter,
                most * (int64_t)(sizeof(int64_t) + sizeof(int32_t)));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeUnite(struct lrmoeStep *step, struct lrmoeWay *ways,
                             int numWays, struct lrmoeNotice *notice) {
  int32_t numRanks = step->plan->numRanks;
  struct unions unions[lrmoeNumRelays];
  LRMOE_CHECK(reserveUnions(step, ways, numWays, unions, notice));
  struct pen pen = {notice->marks, notice->counts, notice->lists};
  notice->countOffsets[0] = notice->listOffsets[0] = 0;
  for (int32_t r = 0; r < numRanks; r++) {
    for (int w = 0; w < numWays; w++)
      uniteFor(step, &ways[w], r, &pen, &unions[w]);
    notice->countOffsets[r + 1] = pen.count - notice->counts;
    notice->listOffsets[r + 1] = pen.list - notice->lists;
  }
  for (int w = 0; w < numWays; w++) {
    memcpy(ways[w].offsets, unions[w].offsets,
           (size_t)(numRanks + 1) * sizeof *ways[w].offsets);
    ways[w].tokens = unions[w].tokens;
  }
  return lrmoeSuccess;
}

/* ---- Relay ---- */

static int64_t numMembers(const struct lrmoeStep *step) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  return lrmoeNodeSize(nodes, nodes->of[step->layer->comm->rank]);
}

/* Tells relays how many rows come.  *received: by source and way, the union's,
 * then those of each rank of this node. */
static lrmoeResult_t exchangeCounts(struct lrmoeStep *step,
                                    const struct lrmoeNotice *notice,
                                    int numWays, int64_t **received) {
  int64_t numRanks = step->plan->numRanks;
  int64_t each = numWays * (1 + numMembers(step));
  int64_t *block = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayNodeCounts,
                            numRanks + 1 + numRanks * each, &block));
  block[0] = 0;
  for (int32_t s = 0; s < numRanks; s++)
    block[s + 1] = block[s] + (lrmoeNodeIsRelayed(step, s) ? each : 0);
  const struct lrmoeExchange exchange = {
      notice->counts, notice->countOffsets,       block + numRanks + 1,
      block,          (int64_t)sizeof **received, 0};
  *received = block + numRanks + 1;
  return lrmoeExchangeHost(step->layer->comm, &exchange, step->stream,
                           &step->stats.rowBytes);
}

static lrmoeResult_t reserveRelay(struct lrmoeStep *step,
                                  const struct lrmoeWay *way) {
  struct lrmoeRelay *relay = &step->relays[way->relay];
  int64_t numRanks = step->plan->numRanks;
  int64_t length = numRanks + 2 + numMembers(step) * numRanks;
  LRMOE_CHECK(LRMOE_RESERVE(step, arrayOf(way, lrmoeArrayRelay), length,
                            &relay->rowOffsets));
  relay->outOffsets = relay->rowOffsets + numRanks + 1;
  memset(relay->rowOffsets, 0, (size_t)length * sizeof *relay->rowOffsets);
  return lrmoeSuccess;
}

/* Where rows of source s lie, and of how many go on to each rank: *numListed
 * in all.  Gives the counts behind those that it read. */
static const int64_t *layOutSource(const struct lrmoeStep *step,
                                   struct lrmoeRelay *relay, int32_t s,
                                   const int64_t *counts, int64_t *numListed) {
  int64_t numRanks = step->plan->numRanks;
  int isRelayed = lrmoeNodeIsRelayed(step, s);
  relay->rowOffsets[s + 1] = relay->rowOffsets[s] + (isRelayed ? *counts++ : 0);
  for (int64_t m = 0; m < numMembers(step) && isRelayed; m++) {
    *numListed += *counts;
    relay->outOffsets[m * numRanks + s + 1] = *counts++;
  }
  return counts;
}

lrmoeResult_t lrmoeNodeLayOut(struct lrmoeStep *step,
                              const struct lrmoeWay *ways, int numWays,
                              const int64_t *counts, int64_t *listOffsets) {
  int64_t numRanks = step->plan->numRanks;
  int64_t numLists = numMembers(step) * numRanks;
  for (int w = 0; w < numWays; w++)
    LRMOE_CHECK(reserveRelay(step, &ways[w]));
  listOffsets[0] = 0;
  for (int32_t s = 0; s < numRanks; s++) {
    listOffsets[s + 1] = listOffsets[s];
    for (int w = 0; w < numWays; w++)
      counts = layOutSource(step, &step->relays[ways[w].relay], s, counts,
                            &listOffsets[s + 1]);
  }
  for (int w = 0; w < numWays; w++) {
    struct lrmoeRelay *relay = &step->relays[ways[w].relay];
    for (int64_t i = 0; i < numLists; i++)
      relay->outOffsets[i + 1] += relay->outOffsets[i];
    relay->numOut = relay->outOffsets[numLists];
  }
  return lrmoeSuccess;
}

/* From the lists of source s to the relay's row of every row that goes on, by
 * rank; both of a (rank, source) in the order of tokens.  *lists moves on. */
static lrmoeResult_t placeLists(const struct lrmoeStep *step,
                                const struct lrmoeRelay *relay, int32_t s,
                                const int32_t **lists, int64_t *rowOf) {
  int64_t numRanks = step->plan->numRanks;
  int64_t first = relay->rowOffsets[s];
  int64_t numRows = relay->rowOffsets[s + 1] - first;
  for (int64_t m = 0; m < numMembers(step); m++) {
    const int64_t *out = relay->outOffsets + m * numRanks + s;
    for (int64_t i = out[0]; i < out[1]; i++) {
      int32_t row = *(*lists)++;
      if (row < 0 || row >= numRows)
        return LRMOE_FAIL(lrmoeInternalError,
                          "rank %d lists row %d of %lld for its relay", (int)s,
                          row, (long long)numRows);
      rowOf[i] = first + row;
    }
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeTake(struct lrmoeStep *step, const struct lrmoeWay *ways,
                            int numWays, const int32_t *lists) {
  int64_t *rowsOf[lrmoeNumRelays];
  for (int w = 0; w < numWays; w++)
    LRMOE_CHECK(LRMOE_RESERVE(step, arrayOf(&ways[w], lrmoeArrayRelayRows),
                              step->relays[ways[w].relay].numOut, &rowsOf[w]));
  for (int32_t s = 0; s < step->plan->numRanks; s++)
    for (int w = 0; w < numWays; w++)
      LRMOE_CHECK(
          placeLists(step, &step->relays[ways[w].relay], s, &lists, rowsOf[w]));
  for (int w = 0; w < numWays; w++) {
    struct lrmoeRelay *relay = &step->relays[ways[w].relay];
    LRMOE_CHECK(LRMOE_UPLOAD(step, arrayOf(&ways[w], lrmoeArrayRelayRows),
                             relay->numOut, rowsOf[w], &relay->rowOf));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeNodeRoute(struct lrmoeStep *step, struct lrmoeWay *ways,
                             int numWays) {
  int64_t numRanks = step->plan->numRanks;
  struct lrmoeNotice notice;
  int64_t *counts = NULL;
  int64_t *listOffsets = NULL;
  int32_t *lists = NULL;
  LRMOE_CHECK(lrmoeNodeUnite(step, ways, numWays, &notice));
  LRMOE_CHECK(exchangeCounts(step, &notice, numWays, &counts));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch, numRanks + 1, &listOffsets));
  LRMOE_CHECK(lrmoeNodeLayOut(step, ways, numWays, counts, listOffsets));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, listOffsets[numRanks], &lists));
  const struct lrmoeExchange exchange = {
      notice.lists, notice.listOffsets,     lists,
      listOffsets,  (int64_t)sizeof *lists, 0};
  LRMOE_CHECK(lrmoeExchangeHost(step->layer->comm, &exchange, step->stream,
                                &step->stats.rowBytes));
  return lrmoeNodeTake(step, ways, numWays, lists);
}
