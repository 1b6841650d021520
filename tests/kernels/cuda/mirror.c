/* Arrays on both sides: see mirror.h. */
#include "mirror.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct mirror *mirrors;

const struct lrmoeBackend *backendOf(enum side side) {
  const struct lrmoeBackend *backend = NULL;
  ASSERT_OK(lrmoeBackendLoad(side == onHost ? "cpu" : "cuda", &backend));
  return backend;
}

void chooseOrder(int order) {
  if (order == 0)
    simtSetOrder(simtOrderFifo, 0);
  else if (order == 1)
    simtSetOrder(simtOrderLifo, 0);
  else
    simtSetOrder(simtOrderRandom, (uint64_t)order);
}

void mirrorPut(const struct mirror *mirror) {
  ASSERT_RUN(onDevice, copy, mirror->at[onDevice], mirror->at[onHost],
             mirror->bytes, lrmoeCopyToDevice, NULL);
  ASSERT_SYNCHRONIZED();
}

struct mirror *mirrorOf(void *array, size_t bytes) {
  struct mirror *made = malloc(sizeof *made);
  ck_assert_ptr_nonnull(made);
  *made = (struct mirror){{array, NULL}, bytes, mirrors};
  ASSERT_RUN(onDevice, memAlloc, bytes, &made->at[onDevice]);
  mirrorPut(made);
  mirrors = made;
  return made;
}

struct mirror *mirrorRoom(size_t bytes) {
  void *array = malloc(bytes + 1);
  ck_assert_ptr_nonnull(array);
  memset(array, 0xcd, bytes);
  return mirrorOf(array, bytes);
}

struct mirror *mirrorIndices(const int64_t *indices, int64_t count) {
  size_t bytes = (size_t)count * sizeof *indices;
  void *array = malloc(bytes + 1);
  ck_assert_ptr_nonnull(array);
  memcpy(array, indices, bytes);
  return mirrorOf(array, bytes);
}

/* Positive bit patterns of a type, and the sign is random. */
static uint32_t specialBits(struct naiveRandom *random, lrmoeDataType_t type) {
  static const uint32_t float32[] = {0x7fc00001, 0x7f800000, 0,
                                     1,          0x007fffff, 0x7f7fffff};
  static const uint32_t bfloat16[] = {0x7fc1, 0x7f80, 0, 1, 0x007f, 0x7f7f};
  static const uint32_t float16[] = {0x7e01, 0x7c00, 0, 1, 0x03ff, 0x7bff};
  uint64_t which = naiveRandomBits(random) % 6;
  uint32_t sign = naiveRandomBits(random) & 1;
  if (type == lrmoeFloat32) return float32[which] | sign << 31;
  return (type == lrmoeBfloat16 ? bfloat16 : float16)[which] | sign << 15;
}

struct mirror *mirrorRows(struct naiveRandom *random, lrmoeDataType_t type,
                          int64_t count, int isSpecial) {
  size_t size = naiveTypeBytes(type);
  char *array = naiveRandomArray(random, type, count, 1);
  for (int64_t i = 0; isSpecial && i < count; i++) {
    uint32_t bits = specialBits(random, type);
    if (naiveRandomBelow(random, 200) == 0)
      memcpy(array + (size_t)i * size, &bits, size);
  }
  return mirrorOf(array, (size_t)count * size);
}

struct mirror *mirrorRandomIndices(struct naiveRandom *random, int64_t count,
                                   int64_t limit, int hasGaps) {
  int64_t *indices = malloc((size_t)count * sizeof *indices + 1);
  ck_assert_ptr_nonnull(indices);
  for (int64_t i = 0; i < count; i++) {
    indices[i] = naiveRandomBelow(random, limit);
    if (hasGaps && naiveRandomBelow(random, 8) == 0) indices[i] = -1;
  }
  return mirrorOf(indices, (size_t)count * sizeof *indices);
}

void *mirrorDevice(const struct mirror *mirror) {
  void *bytes = malloc(mirror->bytes + 1);
  ck_assert_ptr_nonnull(bytes);
  ASSERT_RUN(onDevice, copy, bytes, mirror->at[onDevice], mirror->bytes,
             lrmoeCopyToHost, NULL);
  ASSERT_SYNCHRONIZED();
  return bytes;
}

void assertSameBytes(const struct mirror *mirror, const char *what) {
  unsigned char *device = mirrorDevice(mirror);
  const unsigned char *host = mirror->at[onHost];
  for (size_t i = 0; i < mirror->bytes; i++)
    ck_assert_msg(host[i] == device[i], "%s, byte %zu: %#x, expected %#x", what,
                  i, device[i], host[i]);
  free(device);
}

void assertSameElements(const struct mirror *mirror, lrmoeDataType_t type,
                        const char *what) {
  size_t size = naiveTypeBytes(type);
  int64_t count = (int64_t)(mirror->bytes / size);
  char *device = mirrorDevice(mirror);
  const char *host = mirror->at[onHost];
  for (int64_t i = 0; i < count; i++) {
    size_t at = (size_t)i * size;
    double got = naiveGet(type, device, i);
    double expected = naiveGet(type, host, i);
    int isSame = !memcmp(host + at, device + at, size);
    ck_assert_msg(isSame || (isnan(got) && isnan(expected)),
                  "%s, %s element %lld: %a, expected %a", what,
                  naiveTypeName(type), (long long)i, got, expected);
  }
  free(device);
}

void assertCloseElements(const struct mirror *mirror, lrmoeDataType_t type,
                         double tolerance, const char *what) {
  int64_t count = (int64_t)(mirror->bytes / naiveTypeBytes(type));
  void *device = mirrorDevice(mirror);
  double largest = 0;
  for (int64_t i = 0; i < count; i++)
    largest = fmax(largest, fabs(naiveGet(type, mirror->at[onHost], i)));
  for (int64_t i = 0; i < count; i++) {
    double got = naiveGet(type, device, i);
    double expected = naiveGet(type, mirror->at[onHost], i);
    int isClose = fabs(got - expected) <= tolerance * largest;
    ck_assert_msg(isClose || (isnan(got) && isnan(expected)),
                  "%s, %s element %lld: %g, expected %g (largest %g)", what,
                  naiveTypeName(type), (long long)i, got, expected, largest);
  }
  free(device);
}

void mirrorFreeAll(void) {
  while (mirrors) {
    struct mirror *last = mirrors;
    mirrors = last->next;
    ASSERT_RUN(onDevice, memFree, last->at[onDevice]);
    free(last->at[onHost]);
    free(last);
  }
  ck_assert_int_eq(simtGetBytesInUse(), 0);
}
