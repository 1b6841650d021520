/* Results, the last error, the log, allocation. */
#include "base/alloc.h"
#include "base/capture.h"
#include "base/log.h"
#include "base/result.h"
#include "support/suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char text[4000];

/* ---- Results ------------------------------------------------------------ */

START_TEST(everyResultHasItsName) {
  static const lrmoeResult_t results[] = {
      lrmoeSuccess,       lrmoeUnhandledCudaError, lrmoeSystemError,
      lrmoeInternalError, lrmoeInvalidArgument,    lrmoeInvalidUsage,
      lrmoeRemoteError,   lrmoeInProgress,         lrmoeOutOfMemory,
      lrmoeUnsupported,   lrmoeInfeasible,         lrmoeNotInstalled,
      lrmoeCorrupt};
  size_t count = sizeof results / sizeof *results;
  for (size_t i = 0; i < count; i++) {
    const char *name = lrmoeGetErrorString(results[i]);
    ck_assert_str_ne(name, "unknown result");
    for (size_t j = 0; j < i; j++)
      ck_assert_str_ne(name, lrmoeGetErrorString(results[j]));
  }
  ck_assert_str_eq(lrmoeGetErrorString((lrmoeResult_t)63), "unknown result");
  ck_assert_str_eq(lrmoeGetErrorString((lrmoeResult_t)-1), "unknown result");
}
END_TEST

START_TEST(versionIsTheHeaders) {
  int version = 0;
  ASSERT_OK(lrmoeGetVersion(&version));
  ck_assert_int_eq(version, LRMOE_VERSION);
  ASSERT_RESULT(lrmoeGetVersion(NULL), lrmoeInvalidArgument);
}
END_TEST

static lrmoeResult_t passOn(int *reached) {
  LRMOE_CHECK(LRMOE_FAIL(lrmoeCorrupt, "row %d of %d", 3, 9));
  *reached = 1;
  return lrmoeSuccess;
}

static lrmoeResult_t jump(int *cleaned) {
  lrmoeResult_t result;
  LRMOE_CHECK_GOTO(lrmoeSuccess, result, fail);
  LRMOE_CHECK_GOTO(LRMOE_FAIL(lrmoeSystemError, "disk"), result, fail);
  return lrmoeSuccess;

fail:
  *cleaned = 1;
  return result;
}

START_TEST(macrosPassErrorsOn) {
  int reached = 0, cleaned = 0;
  ck_assert_str_eq(lrmoeGetLastError(), "no error");
  ASSERT_RESULT(passOn(&reached), lrmoeCorrupt);
  ck_assert_int_eq(reached, 0);
  ck_assert_str_eq(lrmoeGetLastError(), "row 3 of 9");
  ASSERT_RESULT(jump(&cleaned), lrmoeSystemError);
  ck_assert_int_eq(cleaned, 1);
  int version;
  ASSERT_OK(lrmoeGetVersion(&version)); /* success changes nothing */
  ck_assert_str_eq(lrmoeGetLastError(), "disk");
}
END_TEST

START_TEST(longMessagesAreCut) {
  memset(text, 'x', 3000);
  text[3000] = 0;
  ck_assert_int_eq(LRMOE_FAIL(lrmoeCorrupt, "%s", text), lrmoeCorrupt);
  ck_assert_uint_eq(strlen(lrmoeGetLastError()), 511);
}
END_TEST

static void *failInThread(void *number) {
  char expected[40];
  snprintf(expected, sizeof expected, "thread %d", *(int *)number);
  for (int i = 0; i < 1000; i++) {
    if (LRMOE_FAIL(lrmoeCorrupt, "thread %d", *(int *)number) != lrmoeCorrupt)
      return number;
    if (strcmp(lrmoeGetLastError(), expected) != 0) return number;
  }
  return NULL;
}

START_TEST(lastErrorIsPerThread) {
  pthread_t threads[4];
  int numbers[4] = {0, 1, 2, 3};
  ck_assert_int_eq(LRMOE_FAIL(lrmoeCorrupt, "main"), lrmoeCorrupt);
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(
        pthread_create(&threads[i], NULL, failInThread, &numbers[i]), 0);
  for (int i = 0; i < 4; i++) {
    void *failed = NULL;
    pthread_join(threads[i], &failed);
    ck_assert_ptr_null(failed);
  }
  ck_assert_str_eq(lrmoeGetLastError(), "main");
}
END_TEST

/* ---- Log ---------------------------------------------------------------- */

/* What three lines of rising detail print at a level. */
static int numLogged(const char *level) {
  setenv("LRMOE_DEBUG", level, 1);
  struct capture capture = captureBegin();
  lrmoeLog(lrmoeLogWarn, "a warning");
  lrmoeLog(lrmoeLogInfo, "a choice");
  lrmoeLog(lrmoeLogTrace, "a trace");
  captureEnd(&capture, text, sizeof text);
  return countLines(text);
}

START_TEST(logLevels) {
  ck_assert_int_eq(numLogged("0"), 0);
  ck_assert_int_eq(numLogged("1"), 1);
  ck_assert_int_eq(numLogged("2"), 2);
  ck_assert_int_eq(numLogged("3"), 3);
  char prefix[60];
  snprintf(prefix, sizeof prefix, "lrmoe %d: a warning\n", (int)getpid());
  ck_assert_msg(strncmp(text, prefix, strlen(prefix)) == 0, "%s", text);
}
END_TEST

START_TEST(longLinesEndWithOneNewline) {
  static char message[2000];
  memset(message, 'y', sizeof message - 1);
  setenv("LRMOE_DEBUG", "1", 1);
  for (size_t length = 600; length < 640; length++) {
    message[length] = 0;
    struct capture capture = captureBegin();
    lrmoeLog(lrmoeLogWarn, "%s", message);
    captureEnd(&capture, text, sizeof text);
    ck_assert_int_eq(countLines(text), 1);
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    ck_assert_int_eq(text[strlen(text) - 2], 'y');
    message[length] = 'y';
  }
}
END_TEST

START_TEST(errorsAreLoggedAtLevelTwo) {
  setenv("LRMOE_DEBUG", "2", 1);
  struct capture capture = captureBegin();
  lrmoeResult_t result = LRMOE_FAIL(lrmoeCorrupt, "row 3");
  captureEnd(&capture, text, sizeof text);
  ck_assert_int_eq(result, lrmoeCorrupt);
  ck_assert_ptr_nonnull(strstr(text, ": result_test.c:"));
  ck_assert_ptr_nonnull(strstr(text, "corrupt data: row 3\n"));
}
END_TEST

/* ---- Allocation --------------------------------------------------------- */

/* Sanitizers end the process where malloc returns NULL, unless told here. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) {
  return "allocator_may_return_null=1";
}

START_TEST(blocksAreZeroed) {
  int64_t *block = NULL;
  ASSERT_OK(LRMOE_ALLOCATE(1000, &block));
  for (int i = 0; i < 1000; i++)
    ck_assert_int_eq(block[i], 0);
  lrmoeFree(block);
  block = NULL;
  ASSERT_OK(LRMOE_ALLOCATE(0, &block));
  ck_assert_ptr_nonnull(block);
  lrmoeFree(block);
  lrmoeFree(NULL);
}
END_TEST

START_TEST(hugeSizesAreRefused) {
  int64_t mark = 0, *block = &mark;
  ASSERT_RESULT(lrmoeAllocate(SIZE_MAX, 8, (void **)&block), lrmoeOutOfMemory);
  ASSERT_RESULT(lrmoeAllocate(SIZE_MAX / 2, 4, (void **)&block),
                lrmoeOutOfMemory);
  ck_assert_ptr_eq(block, &mark);
  struct lrmoeBuffer buffer = {0};
  ASSERT_RESULT(lrmoeBufferReserve(&buffer, SIZE_MAX), lrmoeOutOfMemory);
  ASSERT_RESULT(lrmoeBufferReserve(&buffer, SIZE_MAX - 4096), lrmoeOutOfMemory);
  ck_assert_ptr_null(buffer.data);
}
END_TEST

START_TEST(faultsComeWhereAsked) {
  int64_t *block = NULL;
  lrmoeAllocFailAt(3);
  for (int i = 1; i <= 5; i++) {
    lrmoeResult_t result = LRMOE_ALLOCATE(1, &block);
    ck_assert_int_eq(result, i == 3 ? lrmoeOutOfMemory : lrmoeSuccess);
    if (result == lrmoeSuccess) lrmoeFree(block);
  }
  ck_assert_int_eq(lrmoeAllocFailAt(0), 5);
  ASSERT_OK(LRMOE_ALLOCATE(1, &block));
  lrmoeFree(block);
  ck_assert_int_eq(lrmoeAllocFailAt(0), 1);
}
END_TEST

START_TEST(buffersOnlyGrow) {
  struct lrmoeBuffer buffer = {0};
  static const size_t sizes[] = {1, 63, 64, 1000, 3 << 20, 100, 5 << 20};
  size_t room = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void *before = buffer.data;
    ASSERT_OK(lrmoeBufferReserve(&buffer, sizes[i]));
    ck_assert_uint_ge(buffer.bytes, sizes[i]);
    ck_assert_uint_ge(buffer.bytes, room);
    if (sizes[i] <= room) ck_assert_ptr_eq(buffer.data, before);
    ck_assert_uint_eq((uintptr_t)buffer.data % 64, 0);
    memset(buffer.data, 1, buffer.bytes); /* all of it is there */
    room = buffer.bytes;
  }
  lrmoeAllocFailAt(1);
  void *before = buffer.data;
  ASSERT_RESULT(lrmoeBufferReserve(&buffer, room + 1), lrmoeOutOfMemory);
  lrmoeAllocFailAt(0);
  ck_assert_ptr_eq(buffer.data, before); /* the old one stays good */
  ck_assert_uint_eq(buffer.bytes, room);
  lrmoeBufferFree(&buffer);
  ck_assert_ptr_null(buffer.data);
  ck_assert_uint_eq(buffer.bytes, 0);
  lrmoeBufferFree(&buffer);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("result");
  TCase *tcase = tcase_create("result");
  tcase_add_test(tcase, everyResultHasItsName);
  tcase_add_test(tcase, versionIsTheHeaders);
  tcase_add_test(tcase, macrosPassErrorsOn);
  tcase_add_test(tcase, longMessagesAreCut);
  tcase_add_test(tcase, lastErrorIsPerThread);
  tcase_add_test(tcase, logLevels);
  tcase_add_test(tcase, longLinesEndWithOneNewline);
  tcase_add_test(tcase, errorsAreLoggedAtLevelTwo);
  tcase_add_test(tcase, blocksAreZeroed);
  tcase_add_test(tcase, hugeSizesAreRefused);
  tcase_add_test(tcase, faultsComeWhereAsked);
  tcase_add_test(tcase, buffersOnlyGrow);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
