/* Dispatch (round F1): every routed pair to its executor, a row per (token,
 * rank).
 *
 * Two messages per pair of ranks.  The first says how many rows follow and, for
 * each pair in wire order (which both ends know from demand and plan), its row
 * and its alpha.  The second is the rows.  It also carries the plan's hash, so
 * that ranks with different plans find out before rows move. */
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

/* Byte offsets of the first message to, or from, each rank. */
static void layMetaOut(const int64_t *pairOffsets, int numRanks,
                       int64_t *offsets) {
  for (int r = 0; r <= numRanks; r++)
    offsets[r] =
        pairOffsets[r] * pairBytes + r * (int64_t)sizeof(struct dispatchHeader);
}

static void writeMeta(const struct lrmoeStep *step, const int32_t *rowOf,
                      const int64_t *offsets, char *out) {
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
      memcpy(at + i * (int64_t)sizeof(int32_t), &rowOf[step->sorted[sorted]],
             sizeof(int32_t));
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

/* Row and alpha of the pairs of one (source, instance).  rows and weights are
 * the source's, unaligned. */
static lrmoeResult_t readSegment(struct lrmoeStep *step, int s,
                                 const struct lrmoeSegment *segment,
                                 const char *rows, const char *weights) {
  int64_t base = step->recvRowOffsets[s];
  int64_t numRows = step->recvRowOffsets[s + 1] - base;
  int64_t first = segment->wire - step->recvOffsets[s];
  memcpy(step->alpha + segment->local, weights + first * (int64_t)sizeof(float),
         (size_t)segment->count * sizeof(float));
  for (int64_t i = 0; i < segment->count; i++) {
    int32_t row;
    memcpy(&row, rows + (first + i) * (int64_t)sizeof row, sizeof row);
    if (row < 0 || row >= numRows)
      return LRMOE_FAIL(lrmoeInternalError, "rank %d names row %d of %lld", s,
                        row, (long long)numRows);
    step->xRow[segment->local + i] = base + row;
  }
  return lrmoeSuccess;
}

/* From wire order into local order. */
static lrmoeResult_t readPairs(struct lrmoeStep *step, const int64_t *offsets,
                               const char *in) {
  for (int s = 0; s < step->layer->comm->numRanks; s++) {
    int64_t numPairs = step->recvOffsets[s + 1] - step->recvOffsets[s];
    const char *rows = in + offsets[s] + sizeof(struct dispatchHeader);
    const char *weights = rows + numPairs * (int64_t)sizeof(int32_t);
    const struct lrmoeSegment *segments =
        step->segments + (int64_t)s * step->numInstances;
    for (int32_t j = 0; j < step->numInstances; j++)
      LRMOE_CHECK(readSegment(step, s, &segments[j], rows, weights));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t exchangeMeta(struct lrmoeStep *step) {
  struct lrmoeComm *comm = step->layer->comm;
  int64_t numRanks = comm->numRanks;
  int32_t *rowOf = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2,
                            step->numTokens * step->layer->topk, &rowOf));
  const struct lrmoeRowRoute route = {NULL, step->rowOffsets, step->rowTokens,
                                      rowOf};
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
  writeMeta(step, rowOf, sendOffsets, send);
  const struct lrmoeExchange exchange = {send,        sendOffsets, recv,
                                         recvOffsets, 1,           0};
  LRMOE_CHECK(lrmoeExchangeRun(comm, &exchange, 1, NULL));
  LRMOE_CHECK(readHeaders(step, recvOffsets, recv));
  return readPairs(step, recvOffsets, recv);
}

static lrmoeResult_t reserveExecutor(struct lrmoeStep *step) {
  int64_t numLocal = step->instanceOffsets[step->numInstances];
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayXRow, numLocal, &step->xRow));
  return LRMOE_RESERVE(step, lrmoeArrayAlpha, numLocal, &step->alpha);
}

static lrmoeResult_t dispatch(struct lrmoeStep *step, const void *x) {
  struct lrmoeLayer *layer = step->layer;
  LRMOE_CHECK(reserveExecutor(step));
  LRMOE_CHECK(exchangeMeta(step));
  int64_t numRecv = step->recvRowOffsets[layer->comm->numRanks];
  LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArrayXRows, numRecv,
                               (size_t)layer->rowBytes, &step->xRows));
  const struct lrmoeRows rows = {x, step->rowTokens, layer->type,
                                 layer->hidden};
  layer->experts.kernels->gather(&rows, step->rowOffsets[layer->comm->numRanks],
                                 layer->type, layer->send.data);
  const struct lrmoeExchange exchange = {layer->send.data, step->rowOffsets,
                                         step->xRows,      step->recvRowOffsets,
                                         layer->rowBytes,  0};
  return lrmoeExchangeRun(layer->comm, &exchange, 1, NULL);
}

lrmoeResult_t lrmoeDispatch(lrmoeStep_t step, const void *x,
                            lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeStepExpect(step, "lrmoeDispatch", lrmoeStepPrepared,
                              lrmoeStepPrepared, stream));
  LRMOE_REQUIRE(x || !step->numTokens, "x is NULL");
  LRMOE_CHECK(lrmoeCommSettle(step->layer->comm, dispatch(step, x)));
  step->state = lrmoeStepDispatched;
  return lrmoeSuccess;
}
