/* Dispatch's first message: what the rows are.
 *
 * For each pair in wire order (which both ends know from demand and plan) it
 * has its token and its alpha; rows follow in ascending order of token, so that
 * both ends number them alike.  It also carries the plan's hash, so that ranks
 * with different plans find out before rows move.  A relay is told which rows
 * each rank of its node needs: in room for a row per pair, which it knows from
 * demand and plan too, so that no exchange of counts comes before. */
#include "collectives/dispatch.h"
#include "collectives/route.h"

#include <string.h>

struct dispatchHeader {
  uint64_t planHash;
  int64_t numRows;
};

/* Bytes of one pair in the first message. */
enum {
  pairBytes = sizeof(int32_t) + sizeof(float)
};

static int isRelayed(const struct lrmoeStep *step) {
  return lrmoeNodeIsUsed(step->layer, step->layer->forwardWire);
}

/* ---- What relays are told, behind the pairs ---- */

/* Where the notice to, or from, rank r begins in its message: behind the
 * pairs, up to the next message.  Most have none. */
static int64_t noticeAt(const int64_t *offsets, const int64_t *pairOffsets,
                        int32_t r) {
  return offsets[r] + (int64_t)sizeof(struct dispatchHeader) +
         (pairOffsets[r + 1] - pairOffsets[r]) * pairBytes;
}

/* The counts of a node's ranks, and a row per pair at most. */
static int64_t noticeBytes(const struct lrmoeStep *step, int32_t node,
                           int64_t numPairs) {
  int64_t numCounts = 1 + lrmoeNodeSize(step->layer->nodes, node);
  return numCounts * (int64_t)sizeof(int64_t) +
         numPairs * (int64_t)sizeof(int32_t);
}

static int64_t noticeTo(const struct lrmoeStep *step, int32_t d) {
  const struct lrmoeNodes *nodes = step->layer->nodes;
  int32_t node = nodes->of[d];
  int64_t numPairs = 0;
  if (!isRelayed(step) || !lrmoeNodeIsRelay(step, d)) return 0;
  for (int32_t r = 0; r < step->plan->numRanks; r++)
    if (nodes->of[r] == node)
      numPairs += step->sendOffsets[r + 1] - step->sendOffsets[r];
  return noticeBytes(step, node, numPairs);
}

/* Pairs of source s that ranks of this node execute. */
static int64_t nodePairs(const struct lrmoeStep *step, int32_t s) {
  const struct lrmoePlan *plan = step->plan;
  int64_t numPairs = 0;
  for (int32_t e = 0; e < plan->numExperts; e++)
    for (int32_t i = plan->instanceOffsets[e]; i < plan->instanceOffsets[e + 1];
         i++) {
      if (!lrmoeNodeIsNear(step, plan->instanceRanks[i])) continue;
      struct lrmoeRange range = lrmoeRouteRange(step, s, e, i);
      numPairs += range.high - range.low;
    }
  return numPairs;
}

static int64_t noticeFrom(const struct lrmoeStep *step, int32_t s) {
  int32_t node = step->layer->nodes->of[step->layer->comm->rank];
  if (!isRelayed(step) || !lrmoeNodeIsRelayed(step, s)) return 0;
  return noticeBytes(step, node, nodePairs(step, s));
}

static void writeNotices(const struct lrmoeStep *step,
                         const struct lrmoeNotice *notice,
                         const int64_t *offsets, char *out) {
  for (int32_t d = 0; d < step->plan->numRanks; d++) {
    char *at = out + noticeAt(offsets, step->sendOffsets, d);
    int64_t count = notice->countOffsets[d];
    int64_t list = notice->listOffsets[d];
    size_t countBytes =
        (size_t)(notice->countOffsets[d + 1] - count) * sizeof *notice->counts;
    size_t listBytes =
        (size_t)(notice->listOffsets[d + 1] - list) * sizeof *notice->lists;
    if (!countBytes) continue;
    memset(at, 0, (size_t)(out + offsets[d + 1] - at));
    memcpy(at, notice->counts + count, countBytes);
    if (listBytes) memcpy(at + countBytes, notice->lists + list, listBytes);
  }
}

/* Makes the rows that leave this rank those that relays get, and tells them. */
static lrmoeResult_t tellRelays(struct lrmoeStep *step, const int64_t *offsets,
                                char *out) {
  struct lrmoeWay way = lrmoeDispatchWay(step);
  struct lrmoeNotice notice;
  LRMOE_CHECK(lrmoeNodeUnite(step, &way, 1, &notice));
  step->outTokens = way.tokens;
  writeNotices(step, &notice, offsets, out);
  return lrmoeSuccess;
}

/* Counts of one source, [1 + the node's ranks]: of no more rows than pairs. */
static lrmoeResult_t checkNotice(int32_t s, const int64_t *counts,
                                 int64_t numCounts, int64_t numPairs,
                                 int64_t *numListed) {
  int isRight = counts[0] >= 0;
  *numListed = 0;
  for (int64_t i = 1; i < numCounts && isRight; i++) {
    isRight = counts[i] >= 0 && counts[i] <= counts[0] &&
              counts[i] <= numPairs - *numListed;
    if (isRight) *numListed += counts[i];
  }
  if (isRight && counts[0] <= *numListed) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeInternalError,
                    "rank %d lists rows of more than its %lld pairs for its "
                    "relay",
                    s, (long long)numPairs);
}

static lrmoeResult_t readNotices(struct lrmoeStep *step, const int64_t *offsets,
                                 const char *in) {
  int64_t numRanks = step->plan->numRanks;
  int32_t node = step->layer->nodes->of[step->layer->comm->rank];
  int64_t each = 1 + lrmoeNodeSize(step->layer->nodes, node);
  size_t countBytes = (size_t)each * sizeof(int64_t);
  int64_t *listOffsets = NULL; /* then counts */
  int32_t *lists = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayNodeCounts,
                            numRanks + 1 + numRanks * each, &listOffsets));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2,
                            offsets[numRanks] / (int64_t)sizeof *lists,
                            &lists));
  int64_t *counts = listOffsets + numRanks + 1;
  int64_t numListed = 0;
  int64_t *count = counts;
  int32_t *list = lists;
  for (int32_t s = 0; s < numRanks; s++) {
    const char *at = in + noticeAt(offsets, step->recvOffsets, s);
    const char *end = in + offsets[s + 1];
    if (at == end) continue;
    memcpy(count, at, countBytes);
    int64_t numPairs = (end - at - (int64_t)countBytes) / (int64_t)sizeof *list;
    LRMOE_CHECK(checkNotice(s, count, each, numPairs, &numListed));
    if (numListed)
      memcpy(list, at + countBytes, (size_t)numListed * sizeof *list);
    count += each;
    list += numListed;
  }
  struct lrmoeWay way = lrmoeDispatchWay(step);
  LRMOE_CHECK(lrmoeNodeLayOut(step, &way, 1, counts, listOffsets));
  return lrmoeNodeTake(step, &way, 1, lists);
}

/* ---- The message ---- */

/* Byte offsets of the message to, or from, each rank. */
static void layMetaOut(const struct lrmoeStep *step, const int64_t *pairOffsets,
                       int64_t (*notice)(const struct lrmoeStep *step,
                                         int32_t rank),
                       int64_t *offsets) {
  offsets[0] = 0;
  for (int32_t r = 0; r < step->plan->numRanks; r++)
    offsets[r + 1] = noticeAt(offsets, pairOffsets, r) + notice(step, r);
}

static void writeMeta(const struct lrmoeStep *step, const int64_t *offsets,
                      char *out) {
  int numRanks = step->layer->comm->numRanks;
  for (int d = 0; d < numRanks; d++) {
    struct dispatchHeader header = {step->plan->hash, step->rowOffsets[d + 1] -
                                                          step->rowOffsets[d]};
    char *at = out + offsets[d];
    memcpy(at, &header, sizeof header);
    at += sizeof header;
    int64_t first = step->sendOffsets[d];
    int64_t count = step->sendOffsets[d + 1] - first;
    char *weights = at + count * (int64_t)sizeof(int32_t);
    for (int64_t i = 0; i < count; i++) {
      int64_t sorted = step->wire[first + i];
      int32_t token = (int32_t)step->sortedTokens[sorted];
      memcpy(at + i * (int64_t)sizeof token, &token, sizeof token);
      memcpy(weights + i * (int64_t)sizeof(float), &step->sortedWeights[sorted],
             sizeof(float));
    }
  }
}

static lrmoeResult_t readHeaders(struct lrmoeStep *step, const int64_t *offsets,
                                 const char *in) {
  int numRanks = step->layer->comm->numRanks;
  step->recvRowOffsets[0] = 0;
  for (int s = 0; s < numRanks; s++) {
    struct dispatchHeader header;
    memcpy(&header, in + offsets[s], sizeof header);
    if (header.planHash != step->plan->hash)
      return LRMOE_FAIL(lrmoeInvalidUsage, "rank %d has another plan", s);
    int64_t numPairs = step->recvOffsets[s + 1] - step->recvOffsets[s];
    if (header.numRows < 0 || header.numRows > numPairs)
      return LRMOE_FAIL(lrmoeInternalError,
                        "rank %d announces %lld rows for %lld pairs", s,
                        (long long)header.numRows, (long long)numPairs);
    step->recvRowOffsets[s + 1] = step->recvRowOffsets[s] + header.numRows;
  }
  return lrmoeSuccess;
}

/* Tokens and alphas of one source, from wire into local order. */
static lrmoeResult_t readPairs(struct lrmoeStep *step, int s, const char *in) {
  int64_t maxTokens = step->layer->maxTokens;
  int64_t numPairs = step->recvOffsets[s + 1] - step->recvOffsets[s];
  const char *tokens = in + sizeof(struct dispatchHeader);
  const char *weights = tokens + numPairs * (int64_t)sizeof(int32_t);
  for (int32_t j = 0; j < step->numInstances; j++) {
    const struct lrmoeSegment *segment =
        &step->segments[(int64_t)s * step->numInstances + j];
    int64_t first = segment->wire - step->recvOffsets[s];
    memcpy(step->alpha + segment->local,
           weights + first * (int64_t)sizeof(float),
           (size_t)segment->count * sizeof(float));
    memcpy(step->pairToken + segment->local,
           tokens + first * (int64_t)sizeof(int32_t),
           (size_t)segment->count * sizeof(int32_t));
  }
  for (int64_t i = 0; i < numPairs; i++) {
    int32_t token;
    memcpy(&token, tokens + i * (int64_t)sizeof token, sizeof token);
    if (token < 0 || token >= maxTokens)
      return LRMOE_FAIL(lrmoeInternalError, "rank %d names token %d", s, token);
  }
  return lrmoeSuccess;
}

/* Numbers the rows of one source: the distinct tokens of its pairs, ascending.
 * rowOf [maxTokens] is room. */
static lrmoeResult_t numberRows(struct lrmoeStep *step, int s, int64_t *rowOf) {
  int64_t row = step->recvRowOffsets[s];
  for (int64_t t = 0; t < step->layer->maxTokens; t++)
    rowOf[t] = -1;
  const struct lrmoeSegment *segments =
      step->segments + (int64_t)s * step->numInstances;
  for (int32_t j = 0; j < step->numInstances; j++)
    for (int64_t i = 0; i < segments[j].count; i++)
      rowOf[step->pairToken[segments[j].local + i]] = 0;
  for (int64_t t = 0; t < step->layer->maxTokens; t++)
    if (rowOf[t] == 0) rowOf[t] = row++;
  for (int32_t j = 0; j < step->numInstances; j++)
    for (int64_t i = segments[j].local;
         i < segments[j].local + segments[j].count; i++)
      step->xRow[i] = rowOf[step->pairToken[i]];
  if (row == step->recvRowOffsets[s + 1]) return lrmoeSuccess;
  return LRMOE_FAIL(
      lrmoeInternalError, "rank %d announces %lld rows, its pairs need %lld", s,
      (long long)(step->recvRowOffsets[s + 1] - step->recvRowOffsets[s]),
      (long long)(row - step->recvRowOffsets[s]));
}

static lrmoeResult_t readMeta(struct lrmoeStep *step, const int64_t *offsets,
                              const char *in) {
  int64_t *rowOf = NULL;
  LRMOE_CHECK(readHeaders(step, offsets, in));
  if (isRelayed(step)) LRMOE_CHECK(readNotices(step, offsets, in));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, step->layer->maxTokens, &rowOf));
  for (int s = 0; s < step->plan->numRanks; s++) {
    LRMOE_CHECK(readPairs(step, s, in + offsets[s]));
    LRMOE_CHECK(numberRows(step, s, rowOf));
  }
  return lrmoeSuccess;
}

/* A row per (token, executor). */
static lrmoeResult_t routeRows(struct lrmoeStep *step) {
  const struct lrmoeRowRoute route = {step->dest, step->layer->topk,
                                      step->rowOffsets, step->rowTokens};
  LRMOE_CHECK(lrmoeRouteRows(step, &route));
  memcpy(step->outOffsets, step->rowOffsets,
         (size_t)(step->plan->numRanks + 1) * sizeof *step->outOffsets);
  step->outTokens = step->rowTokens;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDispatchMeta(struct lrmoeStep *step) {
  struct lrmoeComm *comm = step->layer->comm;
  int64_t numRanks = comm->numRanks;
  int64_t *sendOffsets = NULL;
  char *send = NULL;
  LRMOE_CHECK(routeRows(step));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayMetaOffsets, 2 * (numRanks + 1),
                            &sendOffsets));
  int64_t *recvOffsets = sendOffsets + numRanks + 1;
  layMetaOut(step, step->sendOffsets, noticeTo, sendOffsets);
  layMetaOut(step, step->recvOffsets, noticeFrom, recvOffsets);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch,
                            sendOffsets[numRanks] + recvOffsets[numRanks],
                            &send));
  char *recv = send + sendOffsets[numRanks];
  writeMeta(step, sendOffsets, send);
  if (isRelayed(step)) LRMOE_CHECK(tellRelays(step, sendOffsets, send));
  const struct lrmoeExchange exchange = {send,        sendOffsets, recv,
                                         recvOffsets, 1,           0};
  LRMOE_CHECK(lrmoeExchangeHost(comm, &exchange, step->stream, NULL));
  return readMeta(step, recvOffsets, recv);
}
