/* Dispatch (round F1): every routed pair to its executor, a row per (token,
 * rank).
 *
 * Two messages per pair of ranks.  The first has, for each pair in wire order
 * (which both ends know from demand and plan), its token and its alpha; rows
 * follow in ascending order of token, so that both ends number them alike.
 * The second is the rows.  It also carries the plan's hash, so
 * that ranks with different plans find out before rows move. */
#include "collectives/replica.h"
#include "collectives/route.h"
#include "collectives/span.h"

#include <string.h>

struct dispatchHeader {
  uint64_t planHash;
  int64_t numRows;
};

/* Bytes of one pair in the first message. */
enum {
  pairBytes = sizeof(int32_t) + sizeof(float)
};

/* Byte offsets of the first message to, or from, each rank. */
static void layMetaOut(const int64_t *pairOffsets, int numRanks,
                       int64_t *offsets) {
  for (int r = 0; r <= numRanks; r++)
    offsets[r] =
        pairOffsets[r] * pairBytes + r * (int64_t)sizeof(struct dispatchHeader);
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

static lrmoeResult_t exchangeMeta(struct lrmoeStep *step) {
  struct lrmoeComm *comm = step->layer->comm;
  int64_t numRanks = comm->numRanks;
  const struct lrmoeRowRoute route = {step->dest, step->layer->topk,
                                      step->rowOffsets, step->rowTokens};
  LRMOE_CHECK(lrmoeRouteRows(step, &route));

  int64_t sendBytes = step->sendOffsets[numRanks] * pairBytes +
                      numRanks * (int64_t)sizeof(struct dispatchHeader);
  int64_t recvBytes = step->recvOffsets[numRanks] * pairBytes +
                      numRanks * (int64_t)sizeof(struct dispatchHeader);
  int64_t *sendOffsets = NULL;
  int64_t words = 2 * (numRanks + 1);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch,
                            words + (sendBytes + recvBytes) / 8 + 1,
                            &sendOffsets));
  int64_t *recvOffsets = sendOffsets + numRanks + 1;
  char *send = (char *)(sendOffsets + words);
  char *recv = send + sendBytes;
  layMetaOut(step->sendOffsets, comm->numRanks, sendOffsets);
  layMetaOut(step->recvOffsets, comm->numRanks, recvOffsets);
  writeMeta(step, sendOffsets, send);
  const struct lrmoeExchange exchange = {send,        sendOffsets, recv,
                                         recvOffsets, 1,           0};
  LRMOE_CHECK(lrmoeExchangeHost(comm, &exchange, step->stream, NULL));
  LRMOE_CHECK(readHeaders(step, recvOffsets, recv));
  int64_t *rowOf = NULL;
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayScratch2, step->layer->maxTokens, &rowOf));
  for (int s = 0; s < comm->numRanks; s++) {
    LRMOE_CHECK(readPairs(step, s, recv + recvOffsets[s]));
    LRMOE_CHECK(numberRows(step, s, rowOf));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t reserveExecutor(struct lrmoeStep *step) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayXRow, numLocal, &step->xRow));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayPairToken, numLocal, &step->pairToken));
  return LRMOE_RESERVE(step, lrmoeArrayAlpha, numLocal, &step->alpha);
}

/* Where the rows of x lie until backward, or until combine. */
static lrmoeResult_t openRows(struct lrmoeStep *step, int64_t numRows) {
  struct lrmoeLayer *layer = step->layer;
  struct lrmoeBlock *kept = layer->savedState == lrmoeSavedNone
                                ? &layer->forwardRows
                                : &step->blocks[lrmoeBlockXRows];
  LRMOE_CHECK(lrmoeBlockReserve(
      layer->backend, (size_t)(numRows * layer->rowBytes), step->stream, kept));
  step->xRows = kept->data;
  return lrmoeSuccess;
}

static lrmoeResult_t exchangeRows(struct lrmoeStep *step, const void *x) {
  struct lrmoeLayer *layer = step->layer;
  int64_t numRows = step->rowOffsets[layer->comm->numRanks];
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayRowTokens, numRows, step->rowTokens,
                           &step->device.rowTokens));
  const struct lrmoeGather pack = {
      {x, step->device.rowTokens, layer->type, layer->hidden},
      numRows,
      layer->type,
      layer->send.data};
  LRMOE_RUN(layer->backend, gather, &pack, step->stream);
  const struct lrmoeExchange exchange = {layer->send.data, step->rowOffsets,
                                         step->xRows,      step->recvRowOffsets,
                                         layer->rowBytes,  0};
  return lrmoeExchangeRun(layer->comm, &exchange, 1, step->stream, NULL);
}

static lrmoeResult_t dispatch(struct lrmoeStep *step, const void *x) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(lrmoeReplicasAcquire(step)); /* when forward runs again */
  LRMOE_CHECK(reserveExecutor(step));
  LRMOE_CHECK(exchangeMeta(step));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayXRow, numLocal, step->xRow,
                           &step->device.xRow));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayPairToken, numLocal, step->pairToken,
                           &step->device.pairToken));
  LRMOE_CHECK(LRMOE_UPLOAD(step, lrmoeArrayAlpha, numLocal, step->alpha,
                           &step->device.alpha));
  LRMOE_CHECK(openRows(step, step->recvRowOffsets[step->plan->numRanks]));
  return exchangeRows(step, x);
}

lrmoeResult_t lrmoeDispatch(lrmoeStep_t step, const void *x,
                            lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeDispatch", lrmoeStepPrepared,
                              lrmoeStepCombined, stream));
  LRMOE_SPAN_ON(step->layer->comm, "lrmoeDispatch", stream);
  if (step->state != lrmoeStepPrepared && step->state != lrmoeStepCombined)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeDispatch: the step's forward has begun");
  LRMOE_REQUIRE(x || !step->numTokens, "x is NULL");
  if (step->layer->active)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeDispatch: another step of the layer uses its "
                      "buffers");
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, dispatch(step, x)));
  /* With saved state none the rows lie in a buffer of the layer. */
  if (step->layer->savedState == lrmoeSavedNone) step->layer->active = step;
  step->state = lrmoeStepDispatched;
  return lrmoeSuccess;
}
