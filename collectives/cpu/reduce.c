/* Reductions: see reduce.h.
 *
 * Blocks of elements are widened, combined in rank order and narrowed once:
 * 16-bit floats accumulate in fp32, integers in 64 bits (so that an average
 * is that of the true sum; a sum wraps as in its own type).  The order does
 * not depend on timing, so every rank and every run gets the same bits.  A NaN
 * of any rank is the result of every operator: it must reach the loss scaler.
 */
#include "collectives/cpu/reduce.h"

#include "kernels/cpu_convert.h"

enum {
  reduceBlock = 256
};

#define COMBINE(expression)        \
  for (size_t i = 0; i < n; i++) { \
    sum[i] = (expression);         \
  }                                \
  break

/* The first operand if it is NaN; a false comparison takes the second. */
#define LARGER(a, b)  ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define DEFINE_REDUCE(name, element, wide, load, store)                     \
  static void name##Combine(wide *restrict sum, const element *restrict in, \
                            size_t n, lrmoeRedOp_t op) {                    \
    switch (op) {                                                           \
    case lrmoeProd:                                                         \
      COMBINE(sum[i] * load(in[i]));                                        \
    case lrmoeMax:                                                          \
      COMBINE(LARGER(sum[i], load(in[i])));                                 \
    case lrmoeMin:                                                          \
      COMBINE(SMALLER(sum[i], load(in[i])));                                \
    default:                                                                \
      COMBINE(sum[i] + load(in[i]));                                        \
    }                                                                       \
  }                                                                         \
  static void name(const struct lrmoeReduceArgs *args) {                    \
    wide sum[reduceBlock];                                                  \
    for (size_t first = 0; first < args->count; first += reduceBlock) {     \
      size_t n = args->count - first;                                       \
      if (n > reduceBlock) n = reduceBlock;                                 \
      const element *in = (const element *)operand(args, 0) + first;        \
      for (size_t i = 0; i < n; i++)                                        \
        sum[i] = load(in[i]);                                               \
      for (int rank = 1; rank < args->numRanks; rank++) {                   \
        in = (const element *)operand(args, rank) + first;                  \
        name##Combine(sum, in, n, args->op);                                \
      }                                                                     \
      if (args->op == lrmoeAvg)                                             \
        for (size_t i = 0; i < n; i++)                                      \
          sum[i] /= (wide)args->numRanks;                                   \
      element *out = (element *)args->to + first;                           \
      for (size_t i = 0; i < n; i++)                                        \
        out[i] = store(sum[i]);                                             \
    }                                                                       \
  }

static const void *operand(const struct lrmoeReduceArgs *args, int rank) {
  if (rank == args->ownRank) return args->own;
  return args->others + (size_t)rank * args->strideBytes;
}

#define SIGNED(value)   ((int64_t)(value))
#define UNSIGNED(value) ((uint64_t)(value))
#define SAME(value)     (value)

/* Signed sums and products wrap, which is defined for unsigned words only:
 * min, max and average need the sign, so these take their own path. */
DEFINE_REDUCE(reduceUint8, uint8_t, uint64_t, UNSIGNED, (uint8_t))
DEFINE_REDUCE(reduceUint32, uint32_t, uint64_t, UNSIGNED, (uint32_t))
DEFINE_REDUCE(reduceUint64, uint64_t, uint64_t, UNSIGNED, (uint64_t))
DEFINE_REDUCE(reduceInt8, int8_t, int64_t, SIGNED, (int8_t))
DEFINE_REDUCE(reduceInt32, int32_t, int64_t, SIGNED, (int32_t))
DEFINE_REDUCE(reduceInt64, int64_t, int64_t, SIGNED, (int64_t))
DEFINE_REDUCE(reduceFp16, uint16_t, float, floatOfFp16, fp16OfFloat)
DEFINE_REDUCE(reduceBf16, uint16_t, float, floatOfBf16, bf16OfFloat)
DEFINE_REDUCE(reduceFp32, float, float, SAME, SAME)
DEFINE_REDUCE(reduceFp64, double, double, SAME, SAME)

/* Two's complement: the wrapped bits of + and * do not depend on the sign. */
static int wrapsFreely(lrmoeRedOp_t op) {
  return op == lrmoeSum || op == lrmoeProd;
}

void lrmoeReduce(const struct lrmoeReduceArgs *args) {
  switch (args->type) {
  case lrmoeUint8:
    reduceUint8(args);
    break;
  case lrmoeInt8:
    wrapsFreely(args->op) ? reduceUint8(args) : reduceInt8(args);
    break;
  case lrmoeUint32:
    reduceUint32(args);
    break;
  case lrmoeInt32:
    wrapsFreely(args->op) ? reduceUint32(args) : reduceInt32(args);
    break;
  case lrmoeUint64:
    reduceUint64(args);
    break;
  case lrmoeInt64:
    wrapsFreely(args->op) ? reduceUint64(args) : reduceInt64(args);
    break;
  case lrmoeFloat16:
    reduceFp16(args);
    break;
  case lrmoeBfloat16:
    reduceBf16(args);
    break;
  case lrmoeFloat32:
    reduceFp32(args);
    break;
  case lrmoeFloat64:
    reduceFp64(args);
    break;
  }
}
