/* Reductions: see reduce.h.
 *
 * Blocks of elements are widened, combined in rank order and narrowed once:
 * 16-bit floats accumulate in fp32, integers in 64 bits (so that an average
 * is that of the true sum; a sum wraps as in its own type).  The order does
 * not depend on timing, so every rank and every run gets the same bits.  A NaN
 * of any rank is the result of every operator: it must reach the loss scaler.
 */
#include "collectives/cpu/reduce.h"

#include "collectives/transport.h"
#include "kernels/cpu_convert.h"

enum {
  reduceBlock = 256
};

/* Elements of one of the wide types. */
struct block {
  union {
    float f32[reduceBlock];
    double f64[reduceBlock];
    int64_t i64[reduceBlock];
    uint64_t u64[reduceBlock];
  };
};

/* ---- Widening and narrowing ---- */

#define LOAD(field, element, convert)                      \
  for (size_t i = 0; i < n; i++)                           \
    block->field[i] = convert(((const element *)from)[i]); \
  break

#define STORE(field, element, convert)                      \
  for (size_t i = 0; i < n; i++)                            \
    ((element *)to)[i] = (element)convert(block->field[i]); \
  break

static void loadInteger(struct block *block, const void *from, size_t n,
                        lrmoeDataType_t type) {
  switch (type) {
  case lrmoeInt8:
    LOAD(i64, int8_t, (int64_t));
  case lrmoeUint8:
    LOAD(u64, uint8_t, );
  case lrmoeInt32:
    LOAD(i64, int32_t, );
  case lrmoeUint32:
    LOAD(u64, uint32_t, );
  case lrmoeInt64:
    LOAD(i64, int64_t, );
  default:
    LOAD(u64, uint64_t, );
  }
}

static void loadFloat(struct block *block, const void *from, size_t n,
                      lrmoeDataType_t type) {
  switch (type) {
  case lrmoeFloat16:
    LOAD(f32, uint16_t, floatOfFp16);
  case lrmoeBfloat16:
    LOAD(f32, uint16_t, floatOfBf16);
  case lrmoeFloat32:
    LOAD(f32, float, );
  default:
    LOAD(f64, double, );
  }
}

static void storeInteger(const struct block *block, void *to, size_t n,
                         lrmoeDataType_t type) {
  switch (type) {
  case lrmoeInt8:
    STORE(i64, int8_t, );
  case lrmoeUint8:
    STORE(u64, uint8_t, );
  case lrmoeInt32:
    STORE(i64, int32_t, );
  case lrmoeUint32:
    STORE(u64, uint32_t, );
  case lrmoeInt64:
    STORE(i64, int64_t, );
  default:
    STORE(u64, uint64_t, );
  }
}

static void storeFloat(const struct block *block, void *to, size_t n,
                       lrmoeDataType_t type) {
  switch (type) {
  case lrmoeFloat16:
    STORE(f32, uint16_t, fp16OfFloat);
  case lrmoeBfloat16:
    STORE(f32, uint16_t, bf16OfFloat);
  case lrmoeFloat32:
    STORE(f32, float, );
  default:
    STORE(f64, double, );
  }
}

static int isFloat(lrmoeDataType_t type) {
  return type == lrmoeFloat16 || type == lrmoeBfloat16 ||
         type == lrmoeFloat32 || type == lrmoeFloat64;
}

static void load(struct block *block, const void *from, size_t n,
                 lrmoeDataType_t type) {
  if (isFloat(type))
    loadFloat(block, from, n, type);
  else
    loadInteger(block, from, n, type);
}

/* ---- Combining ---- */

#define COMBINE(expression)      \
  for (size_t i = 0; i < n; i++) \
    (expression);                \
  break

/* The first operand if it is NaN; a comparison with NaN takes the second. */
#define LARGER(a, b)  ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

#define DEFINE_COMBINE(name, field)                                     \
  static void name(struct block *sum, const struct block *in, size_t n, \
                   lrmoeRedOp_t op) {                                   \
    switch (op) {                                                       \
    case lrmoeProd:                                                     \
      COMBINE(sum->field[i] *= in->field[i]);                           \
    case lrmoeMax:                                                      \
      COMBINE(sum->field[i] = LARGER(sum->field[i], in->field[i]));     \
    case lrmoeMin:                                                      \
      COMBINE(sum->field[i] = SMALLER(sum->field[i], in->field[i]));    \
    default:                                                            \
      COMBINE(sum->field[i] += in->field[i]);                           \
    }                                                                   \
  }

DEFINE_COMBINE(combineF32, f32)
DEFINE_COMBINE(combineF64, f64)
DEFINE_COMBINE(combineI64, i64)
DEFINE_COMBINE(combineU64, u64)

static int isSigned(lrmoeDataType_t type) {
  return type == lrmoeInt8 || type == lrmoeInt32 || type == lrmoeInt64;
}

/* Signed sums and products are taken as unsigned ones: the bits are those of
 * two's complement, and nothing overflows. */
static void combine(struct block *sum, const struct block *in, size_t n,
                    const struct lrmoeReduceArgs *args) {
  int isOrdered = args->op == lrmoeMax || args->op == lrmoeMin;
  if (args->type == lrmoeFloat64)
    combineF64(sum, in, n, args->op);
  else if (isSigned(args->type) && isOrdered)
    combineI64(sum, in, n, args->op);
  else if (isFloat(args->type))
    combineF32(sum, in, n, args->op);
  else
    combineU64(sum, in, n, args->op);
}

static void divide(struct block *sum, size_t n,
                   const struct lrmoeReduceArgs *args) {
  for (size_t i = 0; i < n; i++) {
    if (args->type == lrmoeFloat64)
      sum->f64[i] /= args->numRanks;
    else if (isSigned(args->type))
      sum->i64[i] /= args->numRanks;
    else if (isFloat(args->type))
      sum->f32[i] /= (float)args->numRanks;
    else
      sum->u64[i] /= (uint64_t)args->numRanks;
  }
}

static const char *operand(const struct lrmoeReduceArgs *args, int rank) {
  if (rank == args->ownRank) return args->own;
  return args->others + (size_t)rank * args->strideBytes;
}

void lrmoeReduce(const struct lrmoeReduceArgs *args) {
  size_t elementBytes = lrmoeTypeBytes(args->type);
  for (size_t first = 0; first < args->count; first += reduceBlock) {
    struct block sum, in;
    size_t n = args->count - first, at = first * elementBytes;
    if (n > reduceBlock) n = reduceBlock;
    load(&sum, operand(args, 0) + at, n, args->type);
    for (int rank = 1; rank < args->numRanks; rank++) {
      load(&in, operand(args, rank) + at, n, args->type);
      combine(&sum, &in, n, args);
    }
    if (args->op == lrmoeAvg) divide(&sum, n, args);
    if (isFloat(args->type))
      storeFloat(&sum, (char *)args->to + at, n, args->type);
    else
      storeInteger(&sum, (char *)args->to + at, n, args->type);
  }
}
