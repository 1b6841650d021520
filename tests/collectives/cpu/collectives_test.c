/* Collectives against trivially computed results. */
#include "cpu_ranks.h"
#include "kernels/cpu_convert.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Data that only moves ---- */

static int gather(const struct testRank *self, struct ncclComm *comm,
                  size_t bytes, int isInPlace) {
  int n = self->numRanks;
  char *all = testBuffer(bytes * (size_t)n, isInPlace);
  char *own =
      isInPlace ? all + bytes * (size_t)self->rank : testBuffer(bytes, 0);
  testFill(own, bytes, self->rank, 0, 1);
  RANK_OK(self, CPU->allGather(own, all, bytes, lrmoeUint8, comm, NULL));
  for (int rank = 0; rank < n; rank++)
    RANK_TRUE(self, testMatches(all + bytes * (size_t)rank, bytes, rank, 0, 1));
  if (!isInPlace) testBufferFree(own, 0);
  testBufferFree(all, isInPlace);
  return 0;
}

static int broadcast(const struct testRank *self, struct ncclComm *comm,
                     size_t bytes, int isInPlace) {
  char *from = testBuffer(bytes, isInPlace);
  char *to = isInPlace ? from : testBuffer(bytes, 0);
  for (int root = 0; root < self->numRanks; root++) {
    testFill(from, bytes, self->rank, root, 2);
    RANK_OK(self,
            CPU->broadcast(from, to, bytes, lrmoeUint8, root, comm, NULL));
    RANK_TRUE(self, testMatches(to, bytes, root, root, 2));
  }
  testBufferFree(from, isInPlace);
  if (!isInPlace) testBufferFree(to, 0);
  return 0;
}

static int allToAll(const struct testRank *self, struct ncclComm *comm,
                    size_t bytes, int onHeap) {
  size_t n = (size_t)self->numRanks;
  char *from = testBuffer(bytes * n, onHeap);
  char *to = testBuffer(bytes * n, !onHeap);
  for (size_t peer = 0; peer < n; peer++)
    testFill(from + bytes * peer, bytes, self->rank, (int)peer, 3);
  RANK_OK(self, CPU->allToAll(from, to, bytes, lrmoeUint8, comm, NULL));
  for (size_t peer = 0; peer < n; peer++)
    RANK_TRUE(self,
              testMatches(to + bytes * peer, bytes, (int)peer, self->rank, 3));
  testBufferFree(from, onHeap);
  testBufferFree(to, !onHeap);
  return 0;
}

static int moving(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  static const size_t sizes[] = {0, 1, 13, 4099, 300007};
  RANK_OK(self, testJoin(self, 0, &comm));
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int kind = 0; kind < 2; kind++)
      if (gather(self, comm, sizes[i], kind) ||
          broadcast(self, comm, sizes[i], kind) ||
          allToAll(self, comm, sizes[i], kind))
        return 1;
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(moving_data) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], moving, NULL), 0);
}
END_TEST

/* ---- Reductions ---- */

enum {
  numTypes = 10,
  numOps = 5
};

/* Small whole numbers, so that every type holds every operand. */
static double operandOf(int rank, size_t element, lrmoeRedOp_t op) {
  int value = (int)((element * 5 + (size_t)rank * 3) % 7) + 1;
  if (op == lrmoeProd) value = (int)((element + (size_t)rank) % 2) + 1;
  return value;
}

static void store(void *buffer, size_t i, lrmoeDataType_t type, double value) {
  switch (type) {
  case lrmoeInt8:
    ((int8_t *)buffer)[i] = (int8_t)value;
    break;
  case lrmoeUint8:
    ((uint8_t *)buffer)[i] = (uint8_t)value;
    break;
  case lrmoeInt32:
    ((int32_t *)buffer)[i] = (int32_t)value;
    break;
  case lrmoeUint32:
    ((uint32_t *)buffer)[i] = (uint32_t)value;
    break;
  case lrmoeInt64:
    ((int64_t *)buffer)[i] = (int64_t)value;
    break;
  case lrmoeUint64:
    ((uint64_t *)buffer)[i] = (uint64_t)value;
    break;
  case lrmoeFloat16:
    ((uint16_t *)buffer)[i] = fp16OfFloat((float)value);
    break;
  case lrmoeBfloat16:
    ((uint16_t *)buffer)[i] = bf16OfFloat((float)value);
    break;
  case lrmoeFloat32:
    ((float *)buffer)[i] = (float)value;
    break;
  case lrmoeFloat64:
    ((double *)buffer)[i] = value;
    break;
  }
}

static int isFloat(lrmoeDataType_t type) {
  return type >= lrmoeFloat16;
}

/* The exact result; every partial result is exact in 32-bit floats, so it has
 * to be met to the bit. */
static double expected(int numRanks, size_t element, lrmoeDataType_t type,
                       lrmoeRedOp_t op) {
  double result = operandOf(0, element, op);
  for (int rank = 1; rank < numRanks; rank++) {
    double value = operandOf(rank, element, op);
    if (op == lrmoeSum || op == lrmoeAvg) result += value;
    if (op == lrmoeProd) result *= value;
    if (op == lrmoeMax) result = fmax(result, value);
    if (op == lrmoeMin) result = fmin(result, value);
  }
  if (op != lrmoeAvg) return result;
  if (type == lrmoeFloat64) return result / numRanks;
  return isFloat(type) ? (float)result / (float)numRanks
                       : floor(result / numRanks);
}

struct reduction {
  size_t count; /* per rank for a reduce-scatter */
  lrmoeDataType_t type;
  lrmoeRedOp_t op;
  int isInPlace;
};

static int allReduce(const struct testRank *self, struct ncclComm *comm,
                     struct reduction r) {
  size_t bytes = r.count * lrmoeTypeBytes(r.type);
  char *from = testBuffer(bytes, r.isInPlace), *want = testBuffer(bytes, 0);
  char *to = r.isInPlace ? from : testBuffer(bytes, 0);
  for (size_t i = 0; i < r.count; i++) {
    store(from, i, r.type, operandOf(self->rank, i, r.op));
    store(want, i, r.type, expected(self->numRanks, i, r.type, r.op));
  }
  RANK_OK(self, CPU->allReduce(from, to, r.count, r.type, r.op, comm, NULL));
  RANK_TRUE(self, !memcmp(to, want, bytes));
  testBufferFree(want, 0);
  testBufferFree(from, r.isInPlace);
  if (!r.isInPlace) testBufferFree(to, 0);
  return 0;
}

static int reduceScatter(const struct testRank *self, struct ncclComm *comm,
                         struct reduction r) {
  size_t bytes = r.count * lrmoeTypeBytes(r.type);
  size_t n = (size_t)self->numRanks, first = r.count * (size_t)self->rank;
  char *from = testBuffer(bytes * n, r.isInPlace), *want = testBuffer(bytes, 0);
  char *to =
      r.isInPlace ? from + bytes * (size_t)self->rank : testBuffer(bytes, 0);
  for (size_t i = 0; i < r.count * n; i++)
    store(from, i, r.type, operandOf(self->rank, i, r.op));
  for (size_t i = 0; i < r.count; i++)
    store(want, i, r.type, expected(self->numRanks, first + i, r.type, r.op));
  RANK_OK(self,
          CPU->reduceScatter(from, to, r.count, r.type, r.op, comm, NULL));
  RANK_TRUE(self, !memcmp(to, want, bytes));
  testBufferFree(want, 0);
  if (!r.isInPlace) testBufferFree(to, 0);
  testBufferFree(from, r.isInPlace);
  return 0;
}

static int reducing(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  static const size_t counts[] = {0, 1, 3, 1000, 5003};
  RANK_OK(self, testJoin(self, 0, &comm));
  for (int type = 0; type < numTypes; type++)
    for (int op = 0; op < numOps; op++)
      for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct reduction r = {counts[i], (lrmoeDataType_t)type,
                              (lrmoeRedOp_t)op, (int)((i + (size_t)op) % 2)};
        if (allReduce(self, comm, r) || reduceScatter(self, comm, r)) return 1;
      }
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(reductions_of_every_type) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], reducing, NULL), 0);
}
END_TEST

/* More than one piece, with a last one that is not full. */
static int reducingMuch(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, 0, &comm));
  for (int isInPlace = 0; isInPlace < 2; isInPlace++) {
    struct reduction all = {2500007, lrmoeFloat32, lrmoeSum, isInPlace};
    struct reduction scatter = {700001, lrmoeBfloat16, lrmoeMax, isInPlace};
    if (allReduce(self, comm, all) || reduceScatter(self, comm, scatter))
      return 1;
  }
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(reductions_in_pieces) {
  ck_assert_int_eq(testRanksRun(3, reducingMuch, NULL), 0);
}
END_TEST

/* Sums whose bits depend on the order of addition: in rank order, on all
 * ranks, for the one-round and the two-round way. */
static int bits(const struct testRank *self) {
  enum {
    most = 40000
  };
  struct ncclComm *comm = NULL;
  static const size_t counts[] = {500, most};
  float *from = malloc(sizeof(float) * most);
  float *to = malloc(sizeof(float) * most);
  RANK_OK(self, testJoin(self, 0, &comm));
  for (int c = 0; c < 2; c++) {
    for (size_t i = 0; i < counts[c]; i++)
      from[i] = ldexpf(1.0f + (float)i / most, self->rank * 5 % 23);
    RANK_OK(self, CPU->allReduce(from, to, counts[c], lrmoeFloat32, lrmoeSum,
                                 comm, NULL));
    for (size_t i = 0; i < counts[c]; i++) {
      float sum = 1.0f + (float)i / most;
      for (int rank = 1; rank < self->numRanks; rank++)
        sum += ldexpf(1.0f + (float)i / most, rank * 5 % 23);
      RANK_TRUE(self, sum == to[i]);
    }
  }
  free(from);
  free(to);
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(sums_in_rank_order) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], bits, NULL), 0);
}
END_TEST

/* A NaN of any rank comes out of every operator; integers wrap. */
static int corners(const struct testRank *self) {
  struct ncclComm *comm = NULL;
  RANK_OK(self, testJoin(self, 0, &comm));
  for (int holder = 0; holder < self->numRanks; holder++)
    for (int op = 0; op < numOps; op++) {
      float value = self->rank == holder ? NAN : 1.0f;
      RANK_OK(self, CPU->allReduce(&value, &value, 1, lrmoeFloat32,
                                   (lrmoeRedOp_t)op, comm, NULL));
      RANK_TRUE(self, isnan(value));
    }
  int8_t small = 100;
  RANK_OK(self,
          CPU->allReduce(&small, &small, 1, lrmoeInt8, lrmoeSum, comm, NULL));
  RANK_TRUE(self, small == (int8_t)(uint8_t)(100u * (unsigned)self->numRanks));
  int8_t average = -100;
  RANK_OK(self, CPU->allReduce(&average, &average, 1, lrmoeInt8, lrmoeAvg, comm,
                               NULL));
  RANK_TRUE(self, average == -100);
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(nan_and_wrapping) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], corners, NULL), 0);
}
END_TEST

/* ---- Split ---- */

static int split(const struct testRank *self) {
  struct ncclComm *comm = NULL, *part = NULL;
  int n = self->numRanks, me = self->rank, count = 0, rank = -1;
  RANK_OK(self, testJoin(self, 0, &comm));
  /* The last rank takes no part; the others by parity, backwards. */
  int color = me == n - 1 && n > 1 ? -5 : me % 2;
  RANK_OK(self, CPU->commSplit(comm, color, -me, &part));
  RANK_TRUE(self, (part == NULL) == (color < 0));
  if (part) {
    int last = n > 1 ? n - 2 : 0, numPart = 0;
    int32_t all[16] = {0}, own = me;
    for (int i = 0; i <= last; i++)
      numPart += i % 2 == color;
    RANK_OK(self, CPU->commCount(part, &count));
    RANK_OK(self, CPU->commUserRank(part, &rank));
    RANK_TRUE(self, count == numPart);
    RANK_OK(self, CPU->allGather(&own, all, 1, lrmoeInt32, part, NULL));
    RANK_TRUE(self, all[rank] == me);
    for (int i = 1; i < count; i++)
      RANK_TRUE(self, all[i] == all[i - 1] - 2);
    RANK_OK(self, CPU->commDestroy(part));
  }
  RANK_OK(self, testExchange(self, comm));
  RANK_OK(self, CPU->commDestroy(comm));
  return 0;
}

START_TEST(splitting) {
  ck_assert_int_eq(testRanksRun(rankCounts[_i], split, NULL), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cpu_collectives");
  TCase *tests = tcase_create("collectives");
  tcase_set_timeout(tests, 300);
  tcase_add_loop_test(tests, moving_data, 0, numRankCounts);
  tcase_add_loop_test(tests, reductions_of_every_type, 0, numRankCounts);
  tcase_add_test(tests, reductions_in_pieces);
  tcase_add_loop_test(tests, sums_in_rank_order, 0, numRankCounts);
  tcase_add_loop_test(tests, nan_and_wrapping, 0, numRankCounts);
  tcase_add_loop_test(tests, splitting, 0, numRankCounts);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
