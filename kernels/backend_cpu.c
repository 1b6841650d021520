/* The CPU backend: the host's memory, and calls that finish before they
 * return (see backend.h). */
#include "base/alloc.h"
#include "base/copy.h"
#include "base/hash.h"
#include "kernels/backend.h"
#include "kernels/cpu_convert.h"
#include "kernels/expert_cpu.h"
#include "kernels/select.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Failures of this backend are recorded where they are found. */
static const char *lastError(void) {
  return NULL;
}

/* ---- Memory ---- */

static lrmoeResult_t memAlloc(size_t bytes, void **pointer) {
  struct lrmoeBuffer buffer = {0};
  LRMOE_CHECK(lrmoeBufferReserve(&buffer, bytes ? bytes : 1));
  *pointer = buffer.data;
  return lrmoeSuccess;
}

static lrmoeResult_t memFree(void *pointer) {
  struct lrmoeBuffer buffer = {.data = pointer};
  lrmoeBufferFree(&buffer);
  return lrmoeSuccess;
}

static lrmoeResult_t copy(void *to, const void *from, size_t bytes,
                          enum lrmoeCopyKind kind, lrmoeStream_t stream) {
  (void)kind, (void)stream;
  if (bytes && to != from) lrmoeCopyBytes(to, from, bytes);
  return lrmoeSuccess;
}

static lrmoeResult_t clear(void *to, size_t bytes, lrmoeStream_t stream) {
  (void)stream;
  if (bytes) memset(to, 0, bytes);
  return lrmoeSuccess;
}

/* ---- Streams: all is done already ---- */

static lrmoeResult_t synchronize(lrmoeStream_t stream) {
  (void)stream;
  return lrmoeSuccess;
}

static lrmoeResult_t eventCreate(void **event) {
  *event = NULL;
  return lrmoeSuccess;
}

static lrmoeResult_t eventRecord(void *event, lrmoeStream_t stream) {
  (void)event, (void)stream;
  return lrmoeSuccess;
}

static lrmoeResult_t eventDone(void *event) {
  (void)event;
  return lrmoeSuccess;
}

static lrmoeResult_t streamWait(lrmoeStream_t stream, void *event) {
  (void)stream, (void)event;
  return lrmoeSuccess;
}

static lrmoeResult_t eventQuery(void *event, int *isDone) {
  (void)event;
  *isDone = 1;
  return lrmoeSuccess;
}

/* ---- Rows ---- */

/* All levels give the same bits, so the first choice stands. */
static lrmoeResult_t getKernels(const struct lrmoeRowKernels **kernels) {
  static _Atomic(const struct lrmoeRowKernels *) chosen;
  *kernels = atomic_load_explicit(&chosen, memory_order_relaxed);
  if (*kernels) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeRowKernelsGet(kernels));
  atomic_store_explicit(&chosen, *kernels, memory_order_relaxed);
  return lrmoeSuccess;
}

static lrmoeResult_t norms(const struct lrmoeNorms *args,
                           lrmoeStream_t stream) {
  (void)stream;
  const struct lrmoeRowKernels *kernels = NULL;
  LRMOE_CHECK(getKernels(&kernels));
  if (args->isAbs) {
    kernels->sumAbs(&args->rows, args->numRows, args->out);
    return lrmoeSuccess;
  }
  kernels->sumSquares(&args->rows, args->numRows, args->out);
  for (int64_t i = 0; i < args->numRows; i++)
    args->out[i] = sqrtf(args->out[i]);
  return lrmoeSuccess;
}

static lrmoeResult_t gather(const struct lrmoeGather *args,
                            lrmoeStream_t stream) {
  (void)stream;
  const struct lrmoeRowKernels *kernels = NULL;
  LRMOE_CHECK(getKernels(&kernels));
  kernels->gather(&args->rows, args->numRows, args->outType, args->out);
  return lrmoeSuccess;
}

static lrmoeResult_t spread(const struct lrmoeSpread *args,
                            lrmoeStream_t stream) {
  (void)stream;
  size_t rowBytes = (size_t)(args->rows.width * elementBytes(args->rows.type));
  for (int64_t t = 0; t < args->numRows; t++)
    for (int64_t j = args->offsets[t]; j < args->offsets[t + 1]; j++)
      lrmoeCopyBytes((char *)args->out + (size_t)args->list[j] * rowBytes,
                     (const char *)args->rows.data + (size_t)t * rowBytes,
                     rowBytes);
  return lrmoeSuccess;
}

static lrmoeResult_t gatherSum(const struct lrmoeGatherSum *args,
                               lrmoeStream_t stream) {
  (void)stream;
  const struct lrmoeRowKernels *kernels = NULL;
  LRMOE_CHECK(getKernels(&kernels));
  kernels->gatherSum(&args->rows, args->numOut, args->offsets, args->list,
                     args->weights, args->out);
  return lrmoeSuccess;
}

static lrmoeResult_t dotRows(const struct lrmoeDotRows *args,
                             lrmoeStream_t stream) {
  (void)stream;
  const struct lrmoeRowKernels *kernels = NULL;
  LRMOE_CHECK(getKernels(&kernels));
  kernels->sumProducts(&args->a, &args->b, args->numRows, args->out);
  for (int64_t i = 0; i < args->numRows && args->divisors; i++)
    args->out[i] =
        args->divisors[i] == 0 ? 0 : args->out[i] / args->divisors[i];
  return lrmoeSuccess;
}

static lrmoeResult_t addFloats(int64_t count, const float *from, float *to,
                               lrmoeStream_t stream) {
  (void)stream;
  for (int64_t i = 0; i < count; i++)
    to[i] += from[i];
  return lrmoeSuccess;
}

static lrmoeResult_t spoilRows(int64_t count, const int64_t *index,
                               int64_t rowBytes, void *rows,
                               lrmoeStream_t stream) {
  (void)stream;
  for (int64_t i = 0; i < count; i++)
    memset((char *)rows + index[i] * rowBytes, 0xff, (size_t)rowBytes);
  return lrmoeSuccess;
}

static int hasBit(const char *row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 16) {
    uint64_t words[2];
    memcpy(words, row + at, sizeof words);
    if (words[0] | words[1]) return 1;
  }
  return 0;
}

static lrmoeResult_t markRows(int64_t count, int64_t rowBytes, const void *rows,
                              uint8_t *marks, lrmoeStream_t stream) {
  (void)stream;
  for (int64_t i = 0; i < count; i++)
    marks[i] = (uint8_t)hasBit((const char *)rows + i * rowBytes, rowBytes);
  return lrmoeSuccess;
}

/* ---- Words ---- */

static lrmoeResult_t gatherWords(int64_t count, const int64_t *index,
                                 const void *from, void *to,
                                 lrmoeStream_t stream) {
  (void)stream;
  const uint32_t *source = from;
  uint32_t *target = to;
  for (int64_t i = 0; i < count; i++)
    target[i] = source[index[i]];
  return lrmoeSuccess;
}

static lrmoeResult_t gatherIndices(int64_t count, const int64_t *index,
                                   const int64_t *from, int64_t *to,
                                   lrmoeStream_t stream) {
  (void)stream;
  for (int64_t i = 0; i < count; i++)
    to[i] = from[index[i]];
  return lrmoeSuccess;
}

static lrmoeResult_t scatterWords(int64_t count, const int64_t *index,
                                  const void *from, void *to,
                                  lrmoeStream_t stream) {
  (void)stream;
  const uint32_t *source = from;
  uint32_t *target = to;
  for (int64_t i = 0; i < count; i++)
    if (index[i] >= 0) target[index[i]] = source[i];
  return lrmoeSuccess;
}

static lrmoeResult_t copyPieces(const struct lrmoePieces *args,
                                lrmoeStream_t stream) {
  (void)stream;
  for (int64_t i = 0; i < args->numPieces; i++)
    if (args->counts[i])
      memcpy((uint32_t *)args->to + args->target[i],
             (const uint32_t *)args->from + args->source[i],
             (size_t)args->counts[i] * sizeof(uint32_t));
  return lrmoeSuccess;
}

/* ---- Selection ---- */

static uint32_t randomKey(const struct lrmoeScores *args, int64_t i) {
  if (!isfinite(args->gNorms[args->tokens[i]])) return LRMOE_KEY_NON_FINITE;
  return (uint32_t)(lrmoeMix(args->salt ^ (uint64_t)args->pairs[i]) >> 33);
}

static lrmoeResult_t scores(const struct lrmoeScores *args,
                            lrmoeStream_t stream) {
  (void)stream;
  switch (args->metric) {
  case lrmoeMetricLrm:
    lrmoeScoreLrm(args->numPairs, args->weights, args->tokens, args->gNorms,
                  args->phiNorms, args->keys);
    break;
  case lrmoeMetricRandom:
    for (int64_t i = 0; i < args->numPairs; i++)
      args->keys[i] = randomKey(args, i);
    break;
  default: /* grad1, grad2 */
    for (int64_t i = 0; i < args->numPairs; i++)
      args->keys[i] = lrmoeScoreKey(args->gNorms[args->tokens[i]]);
    break;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t selectTop(const struct lrmoeSelection *args,
                               lrmoeStream_t stream) {
  (void)stream;
  for (int64_t s = 0; s < args->numSegments; s++) {
    int64_t first = args->offsets[s];
    const uint32_t *keys = args->keys ? args->keys + first : NULL;
    lrmoeSelectTop(args->offsets[s + 1] - first, keys, args->quotas[s],
                   args->flags + first);
  }
  return lrmoeSuccess;
}

/* ---- Routes ---- */

/* An operation that a function of the contract's headers does at once. */
#define LRMOE_AT_ONCE(name, type, work)                                      \
  static lrmoeResult_t name(const struct type *args, lrmoeStream_t stream) { \
    (void)stream;                                                            \
    work(args);                                                              \
    return lrmoeSuccess;                                                     \
  }

LRMOE_AT_ONCE(countFlagged, lrmoeFlagCount, lrmoeCountFlagged)
LRMOE_AT_ONCE(listFlagged, lrmoeFlagged, lrmoeListFlagged)

static lrmoeResult_t numberMarks(int64_t count, const uint8_t *marks,
                                 int64_t *numbers, lrmoeStream_t stream) {
  (void)stream;
  lrmoeNumberMarks(count, marks, numbers);
  return lrmoeSuccess;
}

LRMOE_AT_ONCE(listColumns, lrmoeColumns, lrmoeListColumns)
LRMOE_AT_ONCE(invert, lrmoeInversion, lrmoeInvert)
LRMOE_AT_ONCE(shiftLists, lrmoeShifts, lrmoeShiftLists)
LRMOE_AT_ONCE(spoilDropped, lrmoeSpoils, lrmoeSpoilDropped)
LRMOE_AT_ONCE(listHandoff, lrmoeHandoffLists, lrmoeListHandoff)
LRMOE_AT_ONCE(labelPairs, lrmoeLabels, lrmoeLabelPairs)
LRMOE_AT_ONCE(packBits, lrmoeBits, lrmoePackBits)
LRMOE_AT_ONCE(unpackBits, lrmoeBits, lrmoeUnpackBits)

/* ---- Windows of other ranks ---- */

LRMOE_AT_ONCE(putRows, lrmoePut, lrmoePutRows)

static lrmoeResult_t putSums(const struct lrmoePutSums *args,
                             lrmoeStream_t stream) {
  const struct lrmoeRowKernels *kernels = NULL;
  (void)stream;
  LRMOE_CHECK(getKernels(&kernels));
  for (int32_t i = 0; i < args->numRanks && *args->gate; i++) {
    int32_t rank = (args->first + i) % args->numRanks;
    int64_t begin = args->bounds[rank];
    kernels->gatherSum(&args->rows, args->bounds[rank + 1] - begin,
                       args->offsets + begin, args->list, NULL,
                       args->targets[rank]);
  }
  return lrmoeSuccess;
}

LRMOE_AT_ONCE(enter, lrmoeMeet, lrmoeEnter)
LRMOE_AT_ONCE(meet, lrmoeMeet, lrmoeMeetPeers)

static lrmoeResult_t peek(const void *from, size_t bytes, void *to) {
  memcpy(to, from, bytes);
  return lrmoeSuccess;
}

/* ---- Experts ---- */

/* All is done at once: there is nothing to hide behind. */
static lrmoeResult_t expertBackwardSplit(struct lrmoeExpertContext *context,
                                         int32_t numInstances,
                                         const struct lrmoeExpertBackward *args,
                                         void *event, lrmoeStream_t stream) {
  (void)event;
  return lrmoeExpertCpuBackward(context, numInstances, args, stream);
}

const struct lrmoeBackend lrmoeCpuBackend = {
    .abi = LRMOE_BACKEND_ABI,
    .name = "cpu",
    .isHost = 1,
    .lastError = lastError,
    .memAlloc = memAlloc,
    .memFree = memFree,
    .hostAlloc = memAlloc,
    .hostFree = memFree,
    .copy = copy,
    .clear = clear,
    .synchronize = synchronize,
    .eventCreate = eventCreate,
    .eventRecord = eventRecord,
    .eventWait = eventDone,
    .streamWait = streamWait,
    .eventQuery = eventQuery,
    .eventDestroy = eventDone,
    .norms = norms,
    .gather = gather,
    .spread = spread,
    .gatherSum = gatherSum,
    .dotRows = dotRows,
    .addFloats = addFloats,
    .spoilRows = spoilRows,
    .markRows = markRows,
    .gatherWords = gatherWords,
    .gatherIndices = gatherIndices,
    .scatterWords = scatterWords,
    .copyPieces = copyPieces,
    .scores = scores,
    .selectTop = selectTop,
    .countFlagged = countFlagged,
    .listFlagged = listFlagged,
    .numberMarks = numberMarks,
    .listColumns = listColumns,
    .invert = invert,
    .shiftLists = shiftLists,
    .spoilDropped = spoilDropped,
    .listHandoff = listHandoff,
    .labelPairs = labelPairs,
    .packBits = packBits,
    .unpackBits = unpackBits,
    .putRows = putRows,
    .putSums = putSums,
    .enter = enter,
    .meet = meet,
    .peek = peek,
    .expertOpen = lrmoeExpertCpuOpen,
    .expertClose = lrmoeExpertCpuClose,
    .expertScratchBytes = lrmoeExpertCpuScratchBytes,
    .expertForward = lrmoeExpertCpuForward,
    .expertBackward = lrmoeExpertCpuBackward,
    .expertBackwardSplit = expertBackwardSplit,
    .expertAlpha = lrmoeExpertCpuAlpha,
};
