/* The calls of struct lrmoeBackend, by the file that has them. */
#ifndef LRMOE_KERNELS_CUDA_CALLS_H
#define LRMOE_KERNELS_CUDA_CALLS_H

#include "kernels/backend.h"

/* memory.cu */
lrmoeResult_t lrmoeCudaMemAlloc(size_t bytes, void **pointer);
lrmoeResult_t lrmoeCudaMemFree(void *pointer);
lrmoeResult_t lrmoeCudaHostAlloc(size_t bytes, void **pointer);
lrmoeResult_t lrmoeCudaHostFree(void *pointer);
lrmoeResult_t lrmoeCudaCopy(void *to, const void *from, size_t bytes,
                            enum lrmoeCopyKind kind, lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaClear(void *to, size_t bytes, lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaSynchronize(lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaEventCreate(void **event);
lrmoeResult_t lrmoeCudaTimerCreate(void **event);
lrmoeResult_t lrmoeCudaTimerRead(void *from, void *to, int64_t *ns);
lrmoeResult_t lrmoeCudaEventRecord(void *event, lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaEventWait(void *event);
lrmoeResult_t lrmoeCudaStreamWait(lrmoeStream_t stream, void *event);
lrmoeResult_t lrmoeCudaEventQuery(void *event, int *isDone);
lrmoeResult_t lrmoeCudaEventDestroy(void *event);
lrmoeResult_t lrmoeCudaBusAddress(char *text);

/* sums.cu */
lrmoeResult_t lrmoeCudaNorms(const struct lrmoeNorms *args,
                             lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaDotRows(const struct lrmoeDotRows *args,
                               lrmoeStream_t stream);

/* gather.cu */
lrmoeResult_t lrmoeCudaGather(const struct lrmoeGather *args,
                              lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaSpread(const struct lrmoeSpread *args,
                              lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaSpoilRows(int64_t count, const int64_t *index,
                                 int64_t rowBytes, void *rows,
                                 lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaSpoilDropped(const struct lrmoeSpoils *args,
                                    lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaMarkRows(int64_t count, int64_t rowBytes,
                                const void *rows, uint8_t *marks,
                                lrmoeStream_t stream);

/* gather_sum.cu */
lrmoeResult_t lrmoeCudaGatherSum(const struct lrmoeGatherSum *args,
                                 lrmoeStream_t stream);

/* words.cu */
lrmoeResult_t lrmoeCudaAddFloats(int64_t count, const float *from, float *to,
                                 lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaGatherWords(int64_t count, const int64_t *index,
                                   const void *from, void *to,
                                   lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaGatherIndices(int64_t count, const int64_t *index,
                                     const int64_t *from, int64_t *to,
                                     lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaScatterWords(int64_t count, const int64_t *index,
                                    const void *from, void *to,
                                    lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaCopyPieces(const struct lrmoePieces *args,
                                  lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaPackBits(const struct lrmoeBits *args,
                                lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaUnpackBits(const struct lrmoeBits *args,
                                  lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaScores(const struct lrmoeScores *args,
                              lrmoeStream_t stream);

/* select.cu; select_long.cu: segments of any length, by several blocks each */
lrmoeResult_t lrmoeCudaSelectTop(const struct lrmoeSelection *args,
                                 lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaSelectLong(const struct lrmoeSelection *args,
                                  lrmoeStream_t stream);

/* lists.cu */
lrmoeResult_t lrmoeCudaCountFlagged(const struct lrmoeFlagCount *args,
                                    lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaListFlagged(const struct lrmoeFlagged *args,
                                   lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaListColumns(const struct lrmoeColumns *args,
                                   lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaShiftLists(const struct lrmoeShifts *args,
                                  lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaListHandoff(const struct lrmoeHandoffLists *args,
                                   lrmoeStream_t stream);

/* labels.cu */
lrmoeResult_t lrmoeCudaLabelPairs(const struct lrmoeLabels *args,
                                  lrmoeStream_t stream);
/* fused.cu */
lrmoeResult_t lrmoeCudaPutRows(const struct lrmoePut *args,
                               lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaPutSums(const struct lrmoePutSums *args,
                               lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaEnter(const struct lrmoeMeet *args,
                             lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaMeet(const struct lrmoeMeet *args, lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaPeek(const void *from, size_t bytes, void *to);

/* gin.cu */
extern const struct lrmoeGinBackend lrmoeCudaGin;

/* numbers.cu */
lrmoeResult_t lrmoeCudaNumberMarks(int64_t count, const uint8_t *marks,
                                   int64_t *numbers, lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaInvert(const struct lrmoeInversion *args,
                              lrmoeStream_t stream);

/* expert.cu */
lrmoeResult_t lrmoeCudaExpertOpen(const struct lrmoeExpertShape *shape,
                                  const char *gemm,
                                  struct lrmoeExpertContext **context);
void lrmoeCudaExpertClose(struct lrmoeExpertContext *context);
int64_t lrmoeCudaExpertScratchBytes(const struct lrmoeExpertContext *context);

/* expert_forward.cu, expert_backward.cu */
lrmoeResult_t lrmoeCudaExpertForward(struct lrmoeExpertContext *context,
                                     int32_t numInstances,
                                     const struct lrmoeExpertForward *args,
                                     lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaExpertBackward(struct lrmoeExpertContext *context,
                                      int32_t numInstances,
                                      const struct lrmoeExpertBackward *args,
                                      lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaExpertBackwardSplit(
    struct lrmoeExpertContext *context, int32_t numInstances,
    const struct lrmoeExpertBackward *args, void *event, lrmoeStream_t stream);
lrmoeResult_t lrmoeCudaExpertAlpha(struct lrmoeExpertContext *context,
                                   int32_t numInstances,
                                   const struct lrmoeExpertAlpha *args,
                                   lrmoeStream_t stream);

/* range.cu; the first when the module is loaded */
void lrmoeCudaRangeStart(void);
void lrmoeCudaRangeBegin(const char *name);
void lrmoeCudaRangeEnd(void);

#endif
