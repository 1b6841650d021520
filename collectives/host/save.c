/* The state of a host optimizer as bytes, to go on with it later.
 *
 * A header, the tensors' sizes, and weights, first and second moments, in the
 * byte order of the machine (on another one the magic does not match).  Load
 * takes them into an optimizer that exists and whose shapes they must have, so
 * nothing in the data can make it allocate; and it writes only after all of
 * it is checked.  A check sum stops accidents only, so the numbers are checked
 * too: one infinite moment or a negative second one would spoil every later
 * step. */
#include "base/hash.h"
#include "collectives/host/optimizer.h"

#include <string.h>

/* "LRMoAdam" on a little-endian machine. */
#define SAVED_MAGIC 0x6d6164416f4d524cu

/* Far more steps than can be made; counts below it are exact in double. */
#define MAX_STEPS ((int64_t)1 << 53)

enum {
  savedVersion = 1,
  savedArrays = 3,
  infinityBits = 0x7f800000
};

struct savedHeader {
  uint64_t magic;
  uint64_t checkSum; /* of all that follows this field */
  uint64_t bytes;    /* of all */
  int64_t numSteps;
  uint32_t version;
  int32_t numExperts;
  int32_t numTensors;
  uint32_t reserved;
};

enum {
  summedOffset = offsetof(struct savedHeader, bytes)
};

static size_t arrayBytes(const struct lrmoeHostOptimizer *optimizer) {
  return (size_t)optimizer->state.numElements * sizeof(float);
}

static size_t savedBytes(const struct lrmoeHostOptimizer *optimizer) {
  return sizeof(struct savedHeader) +
         (size_t)optimizer->numTensors * sizeof(int64_t) +
         savedArrays * arrayBytes(optimizer);
}

static uint64_t checkSum(const char *saved, size_t bytes) {
  return lrmoeHash(SAVED_MAGIC, saved + summedOffset, bytes - summedOffset);
}

/* ---- Save ------------------------------------------------------------- */

static void writeState(const struct lrmoeHostOptimizer *optimizer,
                       char *saved) {
  struct savedHeader header = {
      .magic = SAVED_MAGIC,
      .bytes = savedBytes(optimizer),
      .numSteps = optimizer->numSteps,
      .version = savedVersion,
      .numExperts = optimizer->numExperts,
      .numTensors = optimizer->numTensors,
  };
  const struct lrmoeHostState *state = &optimizer->state;
  const float *const arrays[savedArrays] = {state->weights, state->first,
                                            state->second};
  char *to = saved + sizeof header;
  for (int32_t i = 0; i < optimizer->numTensors; i++) {
    int64_t elements = lrmoeHostTensorElements(optimizer, i);
    memcpy(to, &elements, sizeof elements);
    to += sizeof elements;
  }
  for (int i = 0; i < savedArrays; i++) {
    memcpy(to, arrays[i], arrayBytes(optimizer));
    to += arrayBytes(optimizer);
  }
  memcpy(saved, &header, sizeof header);
  header.checkSum = checkSum(saved, (size_t)header.bytes);
  memcpy(saved, &header, sizeof header);
}

lrmoeResult_t lrmoeHostOptimizerSave(lrmoeHostOptimizer_t optimizer,
                                     void *buffer, size_t *bytes) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  LRMOE_REQUIRE(bytes, "bytes is NULL");
  if (optimizer->hasGradients)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "gradients were pushed since the last step: step or "
                      "discard before saving");
  size_t needed = savedBytes(optimizer);
  if (buffer) {
    LRMOE_REQUIRE(*bytes >= needed,
                  "the state takes %zu B and the buffer has %zu", needed,
                  *bytes);
    writeState(optimizer, buffer);
  }
  *bytes = needed;
  return lrmoeSuccess;
}

/* ---- Load ------------------------------------------------------------- */

static lrmoeResult_t checkHeader(const struct savedHeader *header,
                                 const char *saved, size_t bytes) {
  if (header->magic != SAVED_MAGIC)
    return LRMOE_FAIL(lrmoeCorrupt, "not a saved optimizer: magic %016llx",
                      (unsigned long long)header->magic);
  if (header->version != savedVersion)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "saved optimizer of format %u; this library reads %d",
                      header->version, savedVersion);
  if (header->bytes != bytes)
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved optimizer is %zu B long and should be %llu", bytes,
                      (unsigned long long)header->bytes);
  if (header->checkSum != checkSum(saved, bytes))
    return LRMOE_FAIL(lrmoeCorrupt, "saved optimizer has a wrong check sum");
  if (header->numSteps < 0 || header->numSteps > MAX_STEPS || header->reserved)
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved optimizer has made %lld steps, reserved %u",
                      (long long)header->numSteps, header->reserved);
  return lrmoeSuccess;
}

/* Whether the data, whose header is checked, is of the optimizer's shapes. */
static lrmoeResult_t checkShapes(const struct lrmoeHostOptimizer *optimizer,
                                 const struct savedHeader *header,
                                 const char *saved, size_t bytes) {
  LRMOE_REQUIRE(header->numExperts == optimizer->numExperts &&
                    header->numTensors == optimizer->numTensors,
                "saved are %d experts of %d tensors; the optimizer has %d of "
                "%d",
                header->numExperts, header->numTensors, optimizer->numExperts,
                optimizer->numTensors);
  size_t sizesBytes = (size_t)header->numTensors * sizeof(int64_t);
  if (bytes < sizeof *header + sizesBytes)
    return LRMOE_FAIL(lrmoeCorrupt, "saved optimizer has no room for %d sizes",
                      header->numTensors);
  for (int32_t i = 0; i < header->numTensors; i++) {
    int64_t elements;
    memcpy(&elements, saved + sizeof *header + (size_t)i * sizeof elements,
           sizeof elements);
    LRMOE_REQUIRE(elements == lrmoeHostTensorElements(optimizer, i),
                  "saved is tensor %d with %lld elements; the optimizer's has "
                  "%lld",
                  i, (long long)elements,
                  (long long)lrmoeHostTensorElements(optimizer, i));
  }
  if (bytes != savedBytes(optimizer))
    return LRMOE_FAIL(lrmoeCorrupt,
                      "saved optimizer is %zu B long and should be %zu", bytes,
                      savedBytes(optimizer));
  return lrmoeSuccess;
}

/* The first number that is not finite, or is below zero where it must not be;
 * count if there is none.  The data may be unaligned. */
static int64_t findBad(const char *numbers, int64_t count, int isSquare) {
  uint32_t forbidden = isSquare ? 0x80000000u : 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, numbers + (size_t)i * sizeof bits, sizeof bits);
    if ((bits & 0x7fffffff) >= infinityBits || (bits & forbidden)) return i;
  }
  return count;
}

static lrmoeResult_t checkNumbers(const struct lrmoeHostOptimizer *optimizer,
                                  const char *arrays) {
  static const char *const names[savedArrays] = {"weight", "first moment",
                                                 "second moment"};
  int64_t count = optimizer->state.numElements;
  for (int i = 0; i < savedArrays; i++) {
    const char *numbers = arrays + (size_t)i * arrayBytes(optimizer);
    int64_t bad = findBad(numbers, count, i == 2);
    if (bad < count)
      return LRMOE_FAIL(lrmoeCorrupt,
                        "saved %s %lld is not finite, or is below zero",
                        names[i], (long long)bad);
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHostOptimizerLoad(lrmoeHostOptimizer_t optimizer,
                                     const void *buffer, size_t bytes) {
  LRMOE_CHECK(lrmoeHostCheck(optimizer));
  LRMOE_REQUIRE(buffer, "buffer is NULL");
  const char *saved = buffer;
  struct savedHeader header;
  if (bytes < sizeof header)
    return LRMOE_FAIL(lrmoeCorrupt, "saved optimizer is cut off after %zu B",
                      bytes);
  memcpy(&header, saved, sizeof header);
  LRMOE_CHECK(checkHeader(&header, saved, bytes));
  LRMOE_CHECK(checkShapes(optimizer, &header, saved, bytes));
  const char *arrays = saved + bytes - savedArrays * arrayBytes(optimizer);
  LRMOE_CHECK(checkNumbers(optimizer, arrays));

  LRMOE_CHECK(lrmoeHostOptimizerDiscard(optimizer));
  const struct lrmoeHostState *state = &optimizer->state;
  float *const to[savedArrays] = {state->weights, state->first, state->second};
  for (int i = 0; i < savedArrays; i++)
    memcpy(to[i], arrays + (size_t)i * arrayBytes(optimizer),
           arrayBytes(optimizer));
  optimizer->numSteps = header.numSteps;
  return lrmoeSuccess;
}
