/* The backend seam: memory, and everything that reads or writes rows.
 *
 * The code above it is the same for all backends.  "cpu" is part of
 * liblrmoe.so (backend_cpu.c); "cuda" is the module liblrmoe_cuda.so, which is
 * loaded when a communicator needs it and needs nothing from liblrmoe.so.
 *
 * Rules of every call:
 *   Memory   Pointers are to the backend's memory, but for those marked
 *            [host]; indices are in the same memory as what they index.
 *            Rows begin at 16-byte boundaries and are multiples of 8 wide.
 *   Streams  Work is ordered by `stream`.  A device backend returns once it is
 *            enqueued; the CPU has done it.  Argument structs are read during
 *            the call, arrays that they point to when the work runs.
 *   Errors   A result that is not lrmoeSuccess comes with a text in
 *            lastError(); LRMOE_RUN passes both on.
 *   Counts   0 rows, words or instances are legal and do nothing.
 *   Threads  As the handles of lrmoe.h: one thread at a time a stream.
 *
 * Sums are fp32.  Where the contract says "reproducible" every backend gives
 * the same bits, by the order of rows.h. */
#ifndef LRMOE_KERNELS_BACKEND_H
#define LRMOE_KERNELS_BACKEND_H

#include "kernels/expert.h"
#include "kernels/fused.h"
#include "kernels/gin.h"
#include "kernels/labels.h"
#include "kernels/lists.h"
#include "kernels/rows.h"

#define LRMOE_BACKEND_ABI 9

enum lrmoeCopyKind {
  lrmoeCopyToDevice, /* from the host, page-locked for it to be asynchronous */
  lrmoeCopyToHost,
  lrmoeCopyWithin
};

struct lrmoeNorms {
  struct lrmoeRows rows;
  int64_t numRows;
  int isAbs;  /* 0: L2 norm, the root of the reproducible sum of squares */
  float *out; /* [numRows] reproducible */
};

struct lrmoeGather {
  struct lrmoeRows rows;
  int64_t numRows;
  lrmoeDataType_t outType;
  void *out; /* [numRows, width]: row i, converted, to nearest even */
};

/* Row t to out rows list[offsets[t] .. offsets[t + 1]), none of them twice: a
 * gather in which each row is read once. */
struct lrmoeSpread {
  struct lrmoeRows rows; /* index is not used */
  int64_t numRows;
  const int64_t *offsets; /* [numRows + 1] */
  const int64_t *list;
  void *out; /* in rows' type */
};

/* out row t = sum, in list order, of weights[j] * row j for j in
 * list[offsets[t] .. offsets[t + 1]), rounded once to rows' type; without
 * entries zero, with one unweighted entry its very bits. */
struct lrmoeGatherSum {
  struct lrmoeRows rows; /* index is not used */
  int64_t numOut;
  const int64_t *offsets; /* [numOut + 1] */
  const int64_t *list;
  const float *weights; /* by row; NULL: 1 */
  void *out;
};

/* out[i] = <a row i, b row i>, reproducible, divided by divisors[i] (0 where
 * that is 0) unless divisors is NULL. */
struct lrmoeDotRows {
  struct lrmoeRows a;
  struct lrmoeRows b;
  int64_t numRows;
  const float *divisors;
  float *out;
};

/* Pieces of 4-byte words: piece i goes from `from` + source[i] to `to` +
 * target[i], and has counts[i] words. */
struct lrmoePieces {
  int64_t numPieces;
  int64_t maxWords; /* of a piece */
  const int64_t *source;
  const int64_t *target;
  const int64_t *counts;
  const void *from;
  void *to;
};

/* Keys (select.h) of pairs from the norms of their tokens' rows of g. */
struct lrmoeScores {
  lrmoeMetric_t metric; /* not lrmoeMetricAll */
  int64_t numPairs;
  const float *weights;  /* lrm: alpha; NULL: 1 */
  const float *phiNorms; /* lrm */
  const int64_t *tokens;
  const float *gNorms;  /* [T] */
  const int64_t *pairs; /* random: ids, and what they are mixed with; a pair
                           whose g is not finite still goes first */
  uint64_t salt;
  uint32_t *keys; /* out, reproducible */
};

/* flags[i] = 1 for the quotas[s] largest keys of each segment s, ties to the
 * lower i, else 0.  Quotas are between 0 and the segment's length. */
struct lrmoeSelection {
  int64_t numSegments;
  int64_t maxPairs;       /* of a segment */
  const int64_t *offsets; /* [numSegments + 1] */
  const int64_t *quotas;  /* [numSegments] */
  const uint32_t *keys;   /* not read where all or none is wanted */
  uint8_t *flags;
  uint32_t *work; /* room: lrmoeSelectionWords */
};

/* Several blocks of a device share a segment that is longer. */
enum {
  lrmoeLongSegment = 16384,
  lrmoeLongWords = 3 * 2048 + 64 + 4 * 4
};

static inline int64_t lrmoeSelectionWords(int64_t numSegments,
                                          int64_t maxPairs) {
  return maxPairs > lrmoeLongSegment ? numSegments * lrmoeLongWords : 0;
}

struct lrmoeBackend {
  int abi;
  const char *name;
  int isHost; /* its memory is the host's and its calls are synchronous */
  const char *(*lastError)(void);

  /* Device memory, at least 256-byte aligned (64 on the host), and page-locked
   * host memory.  Neither is ordered by a stream: free only what no work
   * uses. */
  lrmoeResult_t (*memAlloc)(size_t bytes, void **pointer);
  lrmoeResult_t (*memFree)(void *pointer);
  lrmoeResult_t (*hostAlloc)(size_t bytes, void **pointer);
  lrmoeResult_t (*hostFree)(void *pointer);
  lrmoeResult_t (*copy)(void *to, const void *from, size_t bytes,
                        enum lrmoeCopyKind kind, lrmoeStream_t stream);
  lrmoeResult_t (*clear)(void *to, size_t bytes, lrmoeStream_t stream);

  /* The host waits for a stream, or for the work before an event in it; a
   * stream waits for that work.  Both know an event by its last record, and
   * one without has nothing to be waited for. */
  lrmoeResult_t (*synchronize)(lrmoeStream_t stream);
  lrmoeResult_t (*eventCreate)(void **event);
  lrmoeResult_t (*eventRecord)(void *event, lrmoeStream_t stream);
  lrmoeResult_t (*eventWait)(void *event);
  lrmoeResult_t (*streamWait)(lrmoeStream_t stream, void *event);
  /* Whether that work is done, without a wait. */
  lrmoeResult_t (*eventQuery)(void *event, int *isDone);
  lrmoeResult_t (*eventDestroy)(void *event);

  lrmoeResult_t (*norms)(const struct lrmoeNorms *args, lrmoeStream_t stream);
  lrmoeResult_t (*gather)(const struct lrmoeGather *args, lrmoeStream_t stream);
  lrmoeResult_t (*spread)(const struct lrmoeSpread *args, lrmoeStream_t stream);
  lrmoeResult_t (*gatherSum)(const struct lrmoeGatherSum *args,
                             lrmoeStream_t stream);
  lrmoeResult_t (*dotRows)(const struct lrmoeDotRows *args,
                           lrmoeStream_t stream);
  /* to[i] += from[i] */
  lrmoeResult_t (*addFloats)(int64_t count, const float *from, float *to,
                             lrmoeStream_t stream);
  /* Sets all bits of rows[index[i]]: a NaN in every type. */
  lrmoeResult_t (*spoilRows)(int64_t count, const int64_t *index,
                             int64_t rowBytes, void *rows,
                             lrmoeStream_t stream);
  /* marks[i] = 1 if a bit of row i is set, else 0: of the bits, so that -0.0 is
   * something.  rowBytes is a multiple of 16. */
  lrmoeResult_t (*markRows)(int64_t count, int64_t rowBytes, const void *rows,
                            uint8_t *marks, lrmoeStream_t stream);
  /* to[i] = from[index[i]], words of 4 bytes. */
  lrmoeResult_t (*gatherWords)(int64_t count, const int64_t *index,
                               const void *from, void *to,
                               lrmoeStream_t stream);
  /* The same of indices; `index` and `to` may be one array. */
  lrmoeResult_t (*gatherIndices)(int64_t count, const int64_t *index,
                                 const int64_t *from, int64_t *to,
                                 lrmoeStream_t stream);
  /* to[index[i]] = from[i]; an index of -1 is left out, none comes twice. */
  lrmoeResult_t (*scatterWords)(int64_t count, const int64_t *index,
                                const void *from, void *to,
                                lrmoeStream_t stream);
  lrmoeResult_t (*copyPieces)(const struct lrmoePieces *args,
                              lrmoeStream_t stream);
  lrmoeResult_t (*scores)(const struct lrmoeScores *args, lrmoeStream_t stream);
  lrmoeResult_t (*selectTop)(const struct lrmoeSelection *args,
                             lrmoeStream_t stream);

  /* Routes (lists.h, labels.h). */
  lrmoeResult_t (*countFlagged)(const struct lrmoeFlagCount *args,
                                lrmoeStream_t stream);
  lrmoeResult_t (*listFlagged)(const struct lrmoeFlagged *args,
                               lrmoeStream_t stream);
  /* numbers[i] = sum of the marks (0 or 1) before i; numbers[count] of all. */
  lrmoeResult_t (*numberMarks)(int64_t count, const uint8_t *marks,
                               int64_t *numbers, lrmoeStream_t stream);
  lrmoeResult_t (*listColumns)(const struct lrmoeColumns *args,
                               lrmoeStream_t stream);
  lrmoeResult_t (*invert)(const struct lrmoeInversion *args,
                          lrmoeStream_t stream);
  lrmoeResult_t (*shiftLists)(const struct lrmoeShifts *args,
                              lrmoeStream_t stream);
  lrmoeResult_t (*spoilDropped)(const struct lrmoeSpoils *args,
                                lrmoeStream_t stream);
  lrmoeResult_t (*listHandoff)(const struct lrmoeHandoffLists *args,
                               lrmoeStream_t stream);
  lrmoeResult_t (*labelPairs)(const struct lrmoeLabels *args,
                              lrmoeStream_t stream);
  lrmoeResult_t (*packBits)(const struct lrmoeBits *args, lrmoeStream_t stream);
  lrmoeResult_t (*unpackBits)(const struct lrmoeBits *args,
                              lrmoeStream_t stream);

  /* Windows of other ranks (fused.h).  A meeting may not be captured. */
  lrmoeResult_t (*putRows)(const struct lrmoePut *args, lrmoeStream_t stream);
  lrmoeResult_t (*putSums)(const struct lrmoePutSums *args,
                           lrmoeStream_t stream);
  lrmoeResult_t (*enter)(const struct lrmoeMeet *args, lrmoeStream_t stream);
  lrmoeResult_t (*meet)(const struct lrmoeMeet *args, lrmoeStream_t stream);
  /* Bytes of the backend's memory to the host, now; lrmoeUnsupported where
   * `from` is not such memory. */
  lrmoeResult_t (*peek)(const void *from, size_t bytes, void *to);

  /* Experts of one shape: scratch, GEMM handles, side streams.  `gemm` names a
   * GEMM of the backend, NULL its usual one. */
  lrmoeResult_t (*expertOpen)(const struct lrmoeExpertShape *shape,
                              const char *gemm,
                              struct lrmoeExpertContext **context);
  void (*expertClose)(struct lrmoeExpertContext *context);
  int64_t (*expertScratchBytes)(const struct lrmoeExpertContext *context);
  /* The instances of this rank in one call, each args struct [host]. */
  lrmoeResult_t (*expertForward)(struct lrmoeExpertContext *context,
                                 int32_t numInstances,
                                 const struct lrmoeExpertForward *args,
                                 lrmoeStream_t stream);
  lrmoeResult_t (*expertBackward)(struct lrmoeExpertContext *context,
                                  int32_t numInstances,
                                  const struct lrmoeExpertBackward *args,
                                  lrmoeStream_t stream);
  /* The same in two phases: `stream` goes on once dx and dAlpha are there, and
   * dw1 and dw2 are added to after `event`, until when what args points to is
   * read.  In between alpha phi and the gradient of FC1's output of all rows
   * are kept in scratch.  After a failure `stream` waits for all that was
   * enqueued, and the event is of no use. */
  lrmoeResult_t (*expertBackwardSplit)(struct lrmoeExpertContext *context,
                                       int32_t numInstances,
                                       const struct lrmoeExpertBackward *args,
                                       void *event, lrmoeStream_t stream);
  lrmoeResult_t (*expertAlpha)(struct lrmoeExpertContext *context,
                               int32_t numInstances,
                               const struct lrmoeExpertAlpha *args,
                               lrmoeStream_t stream);

  /* Names what the calling thread does from here on, for the profiler of the
   * device (NVTX); ranges nest.  Both NULL: there is none. */
  void (*rangeBegin)(const char *name);
  void (*rangeEnd)(void);

  /* Events that eventRecord gives a time; read once both were waited for.
   * Destroyed with eventDestroy.  Both NULL: streams have no times. */
  lrmoeResult_t (*timerCreate)(void **event);
  lrmoeResult_t (*timerRead)(void *from, void *to, int64_t *ns);

  /* PCI address of the device, as text in room of 20 bytes.  NULL: no PCI
   * device. */
  lrmoeResult_t (*busAddress)(char *text);

  /* Rows that a device hands to the NIC (gin.h); NULL: it cannot. */
  const struct lrmoeGinBackend *gin;
};

extern const struct lrmoeBackend lrmoeCpuBackend;

/* Every module exports this function. */
#define LRMOE_BACKEND_ENTRY "lrmoeBackendModuleGet"
typedef lrmoeResult_t (*lrmoeBackendEntry)(const struct lrmoeBackend **backend);

/* Loads a backend by name ("cpu", "cuda"), once per process; it is never
 * unloaded.  lrmoeNotInstalled says what is missing. */
lrmoeResult_t lrmoeBackendLoad(const char *name,
                               const struct lrmoeBackend **backend);

/* Records a backend's failure as this thread's last error. */
lrmoeResult_t lrmoeBackendSettle(const struct lrmoeBackend *backend,
                                 const char *what, lrmoeResult_t result);

/* Calls backend->op(...) and returns from the caller if it fails. */
#define LRMOE_RUN(backend, op, ...) \
  LRMOE_CHECK(lrmoeBackendSettle((backend), #op, (backend)->op(__VA_ARGS__)))

#endif
