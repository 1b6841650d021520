/* GEMM modules against a product in double; the loader. */
#include "kernels/gemm.h"
#include "naive.h"
#include "support/suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const moduleNames[] = {"reference", "openblas", "onednn"};
enum {
  numModules = 3,
  numShapes = 60
};

/* NULL if this build has no such module; it must say what to install. */
static const struct lrmoeGemmModule *loadModule(const char *name) {
  const struct lrmoeGemmModule *module = NULL;
  lrmoeResult_t result = lrmoeGemmLoad(name, &module);
  if (result == lrmoeNotInstalled) {
    ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "install lib"));
    return NULL;
  }
  ck_assert_msg(result == lrmoeSuccess, "%s", lrmoeGetLastError());
  ck_assert_str_eq(module->name, name);
  ck_assert_uint_gt(strlen(module->describe()), 0);
  return module;
}

static double naiveElement(const struct lrmoeGemm *gemm, int64_t i, int64_t j,
                           double *magnitude) {
  double sum = 0;
  for (int64_t p = 0; p < gemm->k; p++) {
    int64_t a = gemm->transA ? p * gemm->lda + i : i * gemm->lda + p;
    int64_t b = gemm->transB ? j * gemm->ldb + p : p * gemm->ldb + j;
    double product = naiveGet(gemm->operand, gemm->a, a) *
                     naiveGet(gemm->operand, gemm->b, b);
    sum += product;
    *magnitude += fabs(product);
  }
  return sum;
}

/* Multiplies and compares; what lies beside C in its rows must stay. */
static void checkProduct(const struct lrmoeGemmModule *module,
                         struct lrmoeGemm *gemm, struct naiveRandom *random) {
  int64_t count = gemm->m * gemm->ldc;
  float *before = naiveRandomArray(random, lrmoeFloat32, count, 1);
  gemm->c = malloc((size_t)count * sizeof(float) + 1);
  ck_assert_ptr_nonnull(gemm->c);
  memcpy(gemm->c, before, (size_t)count * sizeof(float));
  ck_assert_int_eq(module->multiply(gemm), lrmoeSuccess);
  for (int64_t i = 0; i < gemm->m; i++)
    for (int64_t j = 0; j < gemm->ldc; j++) {
      float start = before[i * gemm->ldc + j];
      double got = gemm->c[i * gemm->ldc + j];
      double magnitude = 1;
      double expected = start;
      if (j < gemm->n)
        expected = (gemm->accumulate ? start : 0) +
                   naiveElement(gemm, i, j, &magnitude);
      ck_assert_msg(fabs(got - expected) <= 1e-6 * magnitude,
                    "%s: C[%lld, %lld] = %g, expected %g", module->name,
                    (long long)i, (long long)j, got, expected);
    }
  free(before);
  free(gemm->c);
}

/* A sometimes zero, small, or larger than a tile. */
static int64_t randomSize(struct naiveRandom *random) {
  switch (naiveRandomBelow(random, 8)) {
  case 0:
    return 0;
  case 1:
    return 1;
  case 2:
    return 8 * (1 + naiveRandomBelow(random, 20));
  default:
    return 1 + naiveRandomBelow(random, 90);
  }
}

static void checkRandomProduct(const struct lrmoeGemmModule *module,
                               struct naiveRandom *random, int shape) {
  struct lrmoeGemm gemm = {
      .m = randomSize(random),
      .n = randomSize(random),
      .k = randomSize(random),
      .operand = module->operandType(naiveTypes[shape % 3]),
      .transA = shape / 3 % 2,
      .transB = shape / 6 % 2,
      .accumulate = shape / 12 % 2,
  };
  int64_t gap = naiveRandomBelow(random, 2) * naiveRandomBelow(random, 20);
  gemm.lda = (gemm.transA ? gemm.m : gemm.k) + gap + 1;
  gemm.ldb = (gemm.transB ? gemm.k : gemm.n) + gap + 1;
  gemm.ldc = gemm.n + gap + 1;
  int64_t aCount = (gemm.transA ? gemm.k : gemm.m) * gemm.lda;
  int64_t bCount = (gemm.transB ? gemm.n : gemm.k) * gemm.ldb;
  void *a = naiveRandomArray(random, gemm.operand, aCount, 1);
  void *b = naiveRandomArray(random, gemm.operand, bCount, 1);
  gemm.a = a;
  gemm.b = b;
  checkProduct(module, &gemm, random);
  free(a);
  free(b);
}

START_TEST(productsAreRight) {
  const struct lrmoeGemmModule *module = loadModule(moduleNames[_i]);
  if (!module) return;
  struct naiveRandom random = {(uint64_t)_i};
  for (int shape = 0; shape < numShapes; shape++)
    checkRandomProduct(module, &random, shape);
}
END_TEST

/* Operands may be wider than the rows, never narrower. */
START_TEST(operandTypesHoldTheRows) {
  const struct lrmoeGemmModule *module = loadModule(moduleNames[_i]);
  if (!module) return;
  ck_assert_int_eq(module->operandType(lrmoeFloat32), lrmoeFloat32);
  for (int t = 0; t < 3; t++) {
    lrmoeDataType_t operand = module->operandType(naiveTypes[t]);
    ck_assert(operand == lrmoeFloat32 || operand == naiveTypes[t]);
  }
}
END_TEST

/* NaN in A or B reaches its row or column of C. */
START_TEST(notANumberPropagates) {
  const struct lrmoeGemmModule *module = loadModule(moduleNames[_i]);
  if (!module) return;
  enum {
    edge = 40
  };
  float a[edge * edge] = {0}, b[edge * edge] = {0}, c[edge * edge];
  a[3 * edge + 5] = NAN;
  b[7 * edge + 11] = INFINITY; /* 0 * Inf */
  const struct lrmoeGemm gemm = {edge, edge, edge,         a, b, c, edge,
                                 edge, edge, lrmoeFloat32, 0, 0, 0};
  ck_assert_int_eq(module->multiply(&gemm), lrmoeSuccess);
  for (int i = 0; i < edge; i++)
    for (int j = 0; j < edge; j++)
      ck_assert_int_eq(isnan(c[i * edge + j]) != 0, i == 3 || j == 11);
}
END_TEST

enum {
  loadingEdge = 64,
  numLoadings = 30
};

struct loading {
  pthread_t thread;
  const char *name;
  float value; /* of every element of A */
  lrmoeResult_t result;
  const struct lrmoeGemmModule *module;
  int numWrong;
};

/* Loads, and multiplies a few times at once with the other threads; no
 * assertions here, Check's belong to the main thread. */
static void *loadAndMultiply(void *argument) {
  enum {
    count = loadingEdge * loadingEdge
  };
  struct loading *loading = argument;
  float a[count], b[count], c[count];
  for (int i = 0; i < count; i++) {
    a[i] = loading->value;
    b[i] = 2;
  }
  loading->result = lrmoeGemmLoad(loading->name, &loading->module);
  for (int turn = 0; turn < numLoadings; turn++) {
    if (loading->result != lrmoeSuccess) return NULL;
    int64_t m = 1 + turn * 2; /* also sizes that no one has asked for yet */
    const struct lrmoeGemm gemm = {
        m,           loadingEdge, loadingEdge,  a, b, c, loadingEdge,
        loadingEdge, loadingEdge, lrmoeFloat32, 0, 1, 0};
    loading->result = loading->module->multiply(&gemm);
    for (int64_t i = 0; i < m * loadingEdge; i++)
      loading->numWrong += c[i] != 2 * loading->value * loadingEdge;
  }
  return NULL;
}

START_TEST(threadsLoadOneModule) {
  enum {
    numThreads = 6
  };
  struct loading loading[numThreads];
  for (int i = 0; i < numThreads; i++) {
    loading[i] =
        (struct loading){.name = moduleNames[_i], .value = (float)(i + 1)};
    ck_assert_int_eq(
        pthread_create(&loading[i].thread, NULL, loadAndMultiply, &loading[i]),
        0);
  }
  for (int i = 0; i < numThreads; i++)
    pthread_join(loading[i].thread, NULL);
  ck_assert(loading[0].result == lrmoeSuccess ||
            loading[0].result == lrmoeNotInstalled);
  for (int i = 0; i < numThreads; i++) {
    ck_assert_int_eq(loading[i].result, loading[0].result);
    ck_assert_ptr_eq(loading[i].module, loading[0].module);
    ck_assert_int_eq(loading[i].numWrong, 0);
  }
}
END_TEST

START_TEST(wrongModulesAreRefused) {
  static const struct {
    const char *name;
    lrmoeResult_t result;
    const char *message;
  } wrong[] = {
      {"absent", lrmoeNotInstalled, "no GEMM module \"absent\""},
      {"wrongabi", lrmoeNotInstalled, "ABI 99"},
      {"wrongname", lrmoeNotInstalled, "calls itself \"other\""},
      {"noentry", lrmoeNotInstalled, "no lrmoeGemmModuleGet"},
      {"nostart", lrmoeSystemError, "did not start"},
      {"", lrmoeInvalidArgument, "name"},
      {"../openblas", lrmoeInvalidArgument, "../openblas"},
  };
  const struct lrmoeGemmModule *module = NULL;
  unsetenv("LRMOE_MODULE_PATH"); /* they lie beside this program */
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ASSERT_RESULT(lrmoeGemmLoad(wrong[i].name, &module), wrong[i].result);
    ck_assert_msg(strstr(lrmoeGetLastError(), wrong[i].message) != NULL, "%s",
                  lrmoeGetLastError());
    ck_assert_ptr_null(module);
  }
}
END_TEST

/* A child of fork() must not hang in a thread pool of its parent. */
START_TEST(forkedChildMultiplies) {
  const struct lrmoeGemmModule *module = loadModule(moduleNames[_i]);
  if (!module) return;
  enum {
    edge = 256
  };
  float *matrix = calloc((size_t)edge * edge, sizeof *matrix);
  float *product = calloc((size_t)edge * edge, sizeof *product);
  const struct lrmoeGemm gemm = {edge,    edge, edge, matrix, matrix,
                                 product, edge, edge, edge,   lrmoeFloat32,
                                 0,       0,    0};
  ck_assert_int_eq(module->multiply(&gemm), lrmoeSuccess);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    alarm(20);
    _exit(module->multiply(&gemm) == lrmoeSuccess ? 0 : 1);
  }
  int status = 0;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  free(matrix);
  free(product);
}
END_TEST

/* Nothing where LRMOE_MODULE_PATH points: the message says what to do. */
START_TEST(missingModuleSaysWhatToInstall) {
  const struct lrmoeGemmModule *module = NULL;
  setenv("LRMOE_MODULE_PATH", "/nonexistent", 1);
  ASSERT_RESULT(lrmoeGemmLoad("openblas", &module), lrmoeNotInstalled);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "libopenblas-dev"));
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "LRMOE_MODULE_PATH"));
  ASSERT_RESULT(lrmoeGemmLoad("onednn", &module), lrmoeNotInstalled);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "libdnnl-dev"));
  ASSERT_OK(lrmoeGemmLoad("reference", &module));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("GEMM");
  TCase *tests = tcase_create("gemm");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, productsAreRight, 0, numModules);
  tcase_add_loop_test(tests, operandTypesHoldTheRows, 0, numModules);
  tcase_add_loop_test(tests, notANumberPropagates, 0, numModules);
  tcase_add_loop_test(tests, threadsLoadOneModule, 0, numModules);
  tcase_add_loop_test(tests, forkedChildMultiplies, 0, numModules);
  tcase_add_test(tests, wrongModulesAreRefused);
  tcase_add_test(tests, missingModuleSaysWhatToInstall);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
