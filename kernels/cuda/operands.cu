/* Operands and GEMMs of a batch: see run.h. */
#include "kernels/cuda/error.h"
#include "kernels/cuda/run.h"

lrmoeResult_t lrmoeCheckRows(const struct lrmoeExpertContext *context,
                             const struct lrmoeRows *rows, int64_t width) {
  LRMOE_CUDA_REQUIRE(
      rows->type == context->shape.type && rows->width == width,
      "rows of type %d and %lld elements for experts of type %d "
      "and %lld",
      static_cast<int>(rows->type), static_cast<long long>(rows->width),
      static_cast<int>(context->shape.type), static_cast<long long>(width));
  return lrmoeSuccess;
}

const char *lrmoeOperandRows(const struct lrmoeRun *run,
                             const struct lrmoeCudaTile *tile,
                             const struct lrmoeRows *rows, char *to,
                             struct lrmoeGatherTiles *gather) {
  int64_t rowBytes = rows->width * run->context->elementBytes;
  const char *data = static_cast<const char *>(rows->data);
  if (!rows->index) return data + tile->first * rowBytes;
  char *out = to + tile->row * rowBytes;
  gather->rowBytes = rowBytes;
  gather->tiles[gather->numTiles++] = {data, rows->index + tile->first,
                                       gather->numRows, out};
  gather->numRows += tile->numRows;
  return out;
}

static const char *after(const void *matrix, int64_t numElements,
                         int64_t elementBytes) {
  return static_cast<const char *>(matrix) + numElements * elementBytes;
}

/* `next` continues `last` downwards: more rows of A and C. */
static int isMoreRows(const struct lrmoeCudaGemm *last,
                      const struct lrmoeCudaGemm *next, int64_t elementBytes) {
  return last->b == next->b &&
         after(last->a, last->m * last->k, elementBytes) == next->a &&
         after(last->c, last->m * last->n, elementBytes) == next->c;
}

/* `next` continues `last` inwards: more terms of the same sums. */
static int isMoreTerms(const struct lrmoeCudaGemm *last,
                       const struct lrmoeCudaGemm *next, int64_t elementBytes) {
  return last->c == next->c &&
         after(last->a, last->k * last->m, elementBytes) == next->a &&
         after(last->b, last->k * last->n, elementBytes) == next->b;
}

/* All GEMMs of a list are of one kind. */
static void add(struct lrmoeGemmList *list, const struct lrmoeCudaGemm *gemm) {
  int64_t bytes = list->run->context->elementBytes;
  struct lrmoeCudaGemm *last =
      list->numGemms ? &list->gemms[list->numGemms - 1] : NULL;
  if (last && gemm->isMainGrad && isMoreTerms(last, gemm, bytes))
    last->k += gemm->k;
  else if (last && !gemm->isMainGrad && isMoreRows(last, gemm, bytes))
    last->m += gemm->m;
  else
    list->gemms[list->numGemms++] = *gemm;
}

void lrmoeGemmListAddRows(struct lrmoeGemmList *list,
                          const struct lrmoeLinear *linear, int64_t numRows,
                          const void *a, const void *w, void *c) {
  const struct lrmoeCudaGemm gemm = {
      numRows, linear->out, linear->in, a, w, c, 0, linear->isTransposed, 0};
  add(list, &gemm);
}

void lrmoeGemmListAddGradient(struct lrmoeGemmList *list, int64_t left,
                              int64_t right, int64_t numRows, const void *a,
                              const void *b, float *dw) {
  const struct lrmoeCudaGemm gemm = {left, right, numRows, a, b, dw, 1, 0, 1};
  add(list, &gemm);
}

lrmoeResult_t lrmoeGemmListRun(struct lrmoeGemmList *list) {
  const struct lrmoeExpertContext *context = list->run->context;
  if (list->numGemms == 0) return lrmoeSuccess;
  return context->gemm->multiply(list->run->slot->gemm, context->shape.type,
                                 list->numGemms, list->gemms);
}
