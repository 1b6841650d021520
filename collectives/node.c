/* The route by relays: see node.h.
 *
 * A source knows which of its rows each rank needs, a relay does not.  It is
 * told how many rows come (the union over its node's ranks, by token) and, for
 * each rank, which of them: 4 bytes a row and rank beside the row itself. */
#include "collectives/node.h"

#include <string.h>

/* ---- Use ---- */

int lrmoeWireIsDedup(const struct lrmoeStep *step) {
  return step->config.wire == lrmoeWireDedup ||
         step->config.wire == lrmoeWireNode;
}

lrmoeResult_t lrmoeNodeCheck(const struct lrmoeLayer *layer, lrmoeWire_t wire) {
  const lrmoePlannerConfig_t *planner = &layer->planner->config;
  if (wire != lrmoeWireNode || layer->nodes->numNodes == 1) return lrmoeSuccess;
  LRMOE_REQUIRE(!planner->memoryBytes || planner->chargesRelays,
                "wire node under the planner's memoryBytes, which leaves out "
                "what relays hold: set its chargesRelays");
  return lrmoeSuccess;
}

int lrmoeNodeIsUsed(const struct lrmoeStep *step) {
  return step->config.wire == lrmoeWireNode && step->layer->nodes->numNodes > 1;
}

int64_t lrmoeNodeBytes(const struct lrmoeStep *step) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t node = nodes->of[step->layer->comm->rank];
  int64_t numRows = 0;
  for (int32_t d = 0; d < step->plan->numRanks; d++)
    if (nodes->of[d] != node)
      numRows += step->backOffsets[d + 1] - step->backOffsets[d];
  return numRows * step->layer->rowBytes;
}

/* ---- Source ---- */

/* What a source tells relays, by relay: of each its counts (of the union, then
 * of each of its node's ranks) and the lists. */
struct notice {
  int64_t *countOffsets; /* [G + 1] into counts */
  int64_t *listOffsets;  /* [G + 1] into lists */
  int64_t *counts;
  int32_t *lists;
};

/* Rows of the union of what a node's ranks need, and of each its list. */
static void uniteRows(const struct lrmoeStep *step, int32_t node,
                      int64_t *marks, int64_t *tokens,
                      const struct notice *notice) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  const int32_t *members = nodes->ranks + nodes->firsts[node];
  int32_t numMembers = lrmoeNodeSize(nodes, node);
  int64_t numRows = 0;
  int32_t *list = notice->lists;
  for (int64_t t = 0; t < step->numTokens; t++)
    marks[t] = -1;
  for (int32_t m = 0; m < numMembers; m++)
    for (int64_t i = step->backOffsets[members[m]];
         i < step->backOffsets[members[m] + 1]; i++)
      marks[step->backTokens[i]] = 0;
  for (int64_t t = 0; t < step->numTokens; t++)
    if (marks[t] == 0) {
      marks[t] = numRows;
      tokens[numRows++] = t;
    }
  notice->counts[0] = numRows;
  for (int32_t m = 0; m < numMembers; m++) {
    int64_t first = step->backOffsets[members[m]];
    int64_t end = step->backOffsets[members[m] + 1];
    notice->counts[1 + m] = end - first;
    for (int64_t i = first; i < end; i++)
      *list++ = (int32_t)marks[step->backTokens[i]];
  }
}

/* Rows by the rank that they are sent to: `offsets` [G + 1] and `tokens`. */
static void uniteAll(const struct lrmoeStep *step, int64_t *marks,
                     const struct notice *notice, int64_t *offsets,
                     int64_t *tokens) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t self = step->layer->comm->rank;
  struct notice at = *notice;
  offsets[0] = at.countOffsets[0] = at.listOffsets[0] = 0;
  for (int32_t r = 0; r < step->plan->numRanks; r++) {
    int64_t *to = tokens + offsets[r];
    int64_t numRows = 0, numCounts = 0, numListed = 0;
    int32_t node = nodes->of[r];
    if (node == nodes->of[self]) {
      numRows = step->backOffsets[r + 1] - step->backOffsets[r];
      if (numRows)
        memcpy(to, step->backTokens + step->backOffsets[r],
               (size_t)numRows * sizeof *to);
    } else if (r == lrmoeNodeRelay(nodes, self, node)) {
      uniteRows(step, node, marks, to, &at);
      numRows = at.counts[0];
      numCounts = 1 + lrmoeNodeSize(nodes, node);
      for (int64_t m = 1; m < numCounts; m++)
        numListed += at.counts[m];
    }
    offsets[r + 1] = offsets[r] + numRows;
    at.countOffsets[r + 1] = at.countOffsets[r] + numCounts;
    at.listOffsets[r + 1] = at.listOffsets[r] + numListed;
    at.counts += numCounts;
    at.lists += numListed;
  }
}

/* Works the notice out and makes the rows that leave the step's. */
static lrmoeResult_t routeUnions(struct lrmoeStep *step,
                                 struct notice *notice) {
  int64_t numRanks = step->plan->numRanks;
  int64_t most = step->backOffsets[numRanks];
  int64_t *block = NULL;
  int64_t *tokens = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayNodeNotice,
                            3 * (numRanks + 1) + 2 * numRanks + step->numTokens,
                            &block));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayNodeLists, most, &notice->lists));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayNodeTokens, most, &tokens));
  int64_t *offsets = block;
  notice->countOffsets = offsets + numRanks + 1;
  notice->listOffsets = notice->countOffsets + numRanks + 1;
  notice->counts = notice->listOffsets + numRanks + 1;
  uniteAll(step, notice->counts + 2 * numRanks, notice, offsets, tokens);
  memcpy(step->backOffsets, offsets,
         (size_t)(numRanks + 1) * sizeof *step->backOffsets);
  step->backTokens = tokens;
  step->packTokens = tokens;
  lrmoeMeterAdd(&step->meter,
                most * (int64_t)(sizeof *tokens + sizeof *notice->lists));
  return lrmoeSuccess;
}

/* ---- Relay ---- */

int lrmoeNodeIsRelayed(const struct lrmoeStep *step, int32_t source) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t self = step->layer->comm->rank;
  int32_t node = nodes->of[self];
  return nodes->of[source] != node &&
         lrmoeNodeRelay(nodes, source, node) == self;
}

/* Tells relays how many rows come.  *received: by source, the union's, then
 * those of each rank of this node. */
static lrmoeResult_t exchangeCounts(struct lrmoeStep *step,
                                    const struct notice *notice,
                                    int64_t **received) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int64_t numRanks = step->plan->numRanks;
  int32_t node = nodes->of[step->layer->comm->rank];
  int64_t each = 1 + lrmoeNodeSize(nodes, node);
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

/* Where rows lie that come from sources, and that go on to ranks. */
static lrmoeResult_t layOutRelay(struct lrmoeStep *step, const int64_t *counts,
                                 int64_t *listOffsets) {
  struct lrmoeRelay *relay = &step->relay;
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int64_t numRanks = step->plan->numRanks;
  int32_t numMembers = lrmoeNodeSize(nodes, nodes->of[step->layer->comm->rank]);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRelay,
                            numRanks + 2 + numMembers * numRanks,
                            &relay->rowOffsets));
  relay->outOffsets = relay->rowOffsets + numRanks + 1;
  memset(relay->outOffsets, 0,
         (size_t)(numMembers * numRanks + 1) * sizeof *relay->outOffsets);
  relay->rowOffsets[0] = listOffsets[0] = 0;
  for (int32_t s = 0; s < numRanks; s++) {
    int isRelayed = lrmoeNodeIsRelayed(step, s);
    relay->rowOffsets[s + 1] =
        relay->rowOffsets[s] + (isRelayed ? *counts++ : 0);
    listOffsets[s + 1] = listOffsets[s];
    for (int32_t m = 0; m < numMembers && isRelayed; m++) {
      listOffsets[s + 1] += *counts;
      relay->outOffsets[m * numRanks + s + 1] = *counts++;
    }
  }
  for (int64_t i = 0; i < numMembers * numRanks; i++)
    relay->outOffsets[i + 1] += relay->outOffsets[i];
  return lrmoeSuccess;
}

/* From lists, by source, to the relay's row of every row that goes on, by
 * rank; both of a (rank, source) in the order of tokens. */
static lrmoeResult_t placeLists(const struct lrmoeStep *step,
                                const int32_t *lists, int64_t *rowOf) {
  const struct lrmoeRelay *relay = &step->relay;
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int64_t numRanks = step->plan->numRanks;
  int32_t numMembers = lrmoeNodeSize(nodes, nodes->of[step->layer->comm->rank]);
  for (int64_t s = 0; s < numRanks; s++)
    for (int64_t m = 0; m < numMembers; m++) {
      int64_t first = relay->rowOffsets[s];
      const int64_t *out = relay->outOffsets + m * numRanks + s;
      for (int64_t i = out[0]; i < out[1]; i++, lists++) {
        if (*lists < 0 || *lists >= relay->rowOffsets[s + 1] - first)
          return LRMOE_FAIL(
              lrmoeInternalError, "rank %d lists row %d of %lld for its relay",
              (int)s, *lists, (long long)(relay->rowOffsets[s + 1] - first));
        rowOf[i] = first + *lists;
      }
    }
  return lrmoeSuccess;
}

static lrmoeResult_t receiveLists(struct lrmoeStep *step,
                                  const struct notice *notice,
                                  const int64_t *listOffsets) {
  struct lrmoeRelay *relay = &step->relay;
  int64_t numRows = listOffsets[step->plan->numRanks];
  int32_t *lists = NULL;
  int64_t *rowOf = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2, numRows, &lists));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayRelayRows, numRows, &rowOf));
  const struct lrmoeExchange exchange = {
      notice->lists, notice->listOffsets,    lists,
      listOffsets,   (int64_t)sizeof *lists, 0};
  LRMOE_CHECK(lrmoeExchangeHost(step->layer->comm, &exchange, step->stream,
                                &step->stats.rowBytes));
  LRMOE_CHECK(placeLists(step, lists, rowOf));
  relay->numOut = numRows;
  return LRMOE_UPLOAD(step, lrmoeArrayRelayRows, numRows, rowOf, &relay->rowOf);
}

lrmoeResult_t lrmoeNodeRoute(struct lrmoeStep *step) {
  struct notice notice;
  int64_t *counts = NULL;
  int64_t *listOffsets = NULL;
  LRMOE_CHECK(routeUnions(step, &notice));
  LRMOE_CHECK(exchangeCounts(step, &notice, &counts));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch, step->plan->numRanks + 1,
                            &listOffsets));
  LRMOE_CHECK(layOutRelay(step, counts, listOffsets));
  return receiveLists(step, &notice, listOffsets);
}
