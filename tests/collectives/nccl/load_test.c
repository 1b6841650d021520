/* Finding NCCL: where, which releases, what may be missing.  Every test is a
 * process of its own, in which nothing is loaded yet. */
#include "base/capture.h"
#include "base/param.h"
#include "collectives/nccl/call.h"
#include "standin_control.h"
#include "support/ranks.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[2000];

static void assertError(const char *part) {
  ck_assert_msg(strstr(lrmoeGetLastError(), part) != NULL,
                "\"%s\" is not in \"%s\"", part, lrmoeGetLastError());
}

/* Loads, with what is written to stderr in text. */
static lrmoeResult_t loadAloud(const struct lrmoeNccl **nccl) {
  setenv("LRMOE_DEBUG", "1", 1);
  struct capture capture = captureBegin();
  lrmoeResult_t result = lrmoeNcclLoad(0, nccl);
  captureEnd(&capture, text, sizeof text);
  return result;
}

/* ---- Releases ---- */

static const struct {
  const char *code;
  const char *name;
} oldReleases[] = {{"2804", "NCCL 2.8.4"},
                   {"21805", "NCCL 2.18.5"},
                   {"22699", "NCCL 2.26.99"}};

START_TEST(old_releases_are_refused_by_name) {
  const struct lrmoeNccl *nccl = NULL;
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  setenv("LRMOE_STANDIN_NCCL_VERSION", oldReleases[_i].code, 1);
  ASSERT_RESULT(lrmoeNcclLoad(0, &nccl), lrmoeUnsupported);
  assertError(oldReleases[_i].name);
  assertError("2.27 or newer");
  assertError(STANDIN_FILE);
  ck_assert_ptr_null(nccl);
  ck_assert_ptr_null(lrmoeNcclLoaded());
  ck_assert_ptr_null(lrmoeNcclTransportLoaded());
  /* A refusal is not for ever. */
  setenv("LRMOE_STANDIN_NCCL_VERSION", "22700", 1);
  ASSERT_OK(lrmoeNcclLoad(0, &nccl));
  ck_assert_int_eq(nccl->version, 22700);
}
END_TEST

START_TEST(known_releases_are_taken_in_silence) {
  static const char *const codes[] = {"22700", "22809", "23007"};
  const struct lrmoeNccl *nccl = NULL;
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  setenv("LRMOE_STANDIN_NCCL_VERSION", codes[_i], 1);
  ASSERT_OK(loadAloud(&nccl));
  ck_assert_str_eq(text, "");
  ck_assert_int_eq(nccl->version, atoi(codes[_i]));
}
END_TEST

START_TEST(newer_releases_are_taken_with_one_warning) {
  const struct lrmoeNccl *nccl = NULL;
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  setenv("LRMOE_STANDIN_NCCL_VERSION", "23102", 1);
  ASSERT_OK(loadAloud(&nccl));
  ck_assert_int_eq(countLines(text), 1);
  ck_assert_msg(strstr(text, "NCCL 2.31.2") != NULL, "%s", text);
  ASSERT_OK(loadAloud(&nccl));
  ck_assert_str_eq(text, "");
}
END_TEST

/* ---- Places ---- */

START_TEST(none_says_what_to_do) {
  lrmoeComm_t comm = NULL;
  lrmoeUniqueId id = {{1}};
  void *block = NULL;
  setenv("LRMOE_BACKEND", "cuda", 1);
  setenv("LRMOE_NCCL_PATH", "/nowhere/libnccl.so.2", 1);
  ASSERT_RESULT(lrmoeGetUniqueId(&id), lrmoeNotInstalled);
  assertError("install NCCL 2.27 or newer");
  assertError("LRMOE_NCCL_PATH");
  assertError("/nowhere/libnccl.so.2");
  ASSERT_RESULT(lrmoeCommInitRank(1, &id, 0, NULL, &comm), lrmoeNotInstalled);
  ASSERT_RESULT(lrmoeMemAlloc(1, &block), lrmoeNotInstalled);
  ck_assert_ptr_null(block);
}
END_TEST

START_TEST(another_library_is_refused) {
  const struct lrmoeNccl *nccl = NULL;
  setenv("LRMOE_NCCL_PATH", "libm.so.6", 1);
  ASSERT_RESULT(lrmoeNcclLoad(0, &nccl), lrmoeNotInstalled);
  assertError("libm.so.6 is not NCCL: it has no ncclGetVersion");
}
END_TEST

START_TEST(other_backends_are_refused_by_name) {
  lrmoeUniqueId id;
  setenv("LRMOE_BACKEND", "rocm", 1);
  ASSERT_RESULT(lrmoeGetUniqueId(&id), lrmoeInvalidArgument);
  assertError("LRMOE_BACKEND=rocm is not cpu or cuda");
  setenv("LRMOE_BACKEND", "cpu", 1);
  ASSERT_OK(lrmoeGetUniqueId(&id));
  ck_assert_ptr_null(lrmoeNcclLoaded()); /* the CPU needs none */
}
END_TEST

/* As a framework has it. */
START_TEST(the_one_of_the_process_is_found) {
  const struct lrmoeNccl *nccl = NULL;
  unsetenv("LRMOE_NCCL_PATH");
  ck_assert_ptr_nonnull(dlopen(STANDIN_FILE, RTLD_NOW | RTLD_LOCAL));
  ASSERT_OK(lrmoeNcclLoad(1, &nccl));
  ck_assert_str_eq(nccl->file, STANDIN_FILE);
  ck_assert_ptr_eq(nccl, lrmoeNcclLoaded());
}
END_TEST

START_TEST(the_one_of_the_process_comes_first) {
  const struct lrmoeNccl *nccl = NULL;
  ck_assert_ptr_nonnull(dlopen(STANDIN_FILE, RTLD_NOW | RTLD_LOCAL));
  setenv("LRMOE_NCCL_PATH", STANDIN_NEW_FILE, 1);
  ASSERT_OK(loadAloud(&nccl));
  ck_assert_str_eq(nccl->file, STANDIN_FILE);
  ck_assert_int_eq(countLines(text), 1);
  ck_assert_msg(strstr(text, STANDIN_NEW_FILE) != NULL, "%s", text);
}
END_TEST

START_TEST(naming_the_one_of_the_process_is_no_news) {
  const struct lrmoeNccl *nccl = NULL;
  ck_assert_ptr_nonnull(dlopen(STANDIN_FILE, RTLD_NOW | RTLD_LOCAL));
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  ASSERT_OK(loadAloud(&nccl));
  ck_assert_str_eq(text, "");
}
END_TEST

/* A communicator cannot be of an NCCL that is not there. */
START_TEST(nothing_to_borrow_from) {
  lrmoeComm_t comm = NULL;
  struct ncclComm *nccl = (struct ncclComm *)(void *)&comm;
  unsetenv("LRMOE_NCCL_PATH");
  ASSERT_RESULT(lrmoeCommInitFromNccl(nccl, NULL, &comm), lrmoeNotInstalled);
  assertError("no libnccl.so.2 is loaded");
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1); /* not loaded either */
  ASSERT_RESULT(lrmoeCommInitFromNccl(nccl, NULL, &comm), lrmoeNotInstalled);
  ASSERT_RESULT(lrmoeCommInitFromNccl(NULL, NULL, &comm), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeCommInitFromNccl(nccl, NULL, NULL), lrmoeInvalidArgument);
}
END_TEST

enum {
  numThreads = 8
};

static void *loadInThread(void *argument) {
  const struct lrmoeNccl **nccl = argument;
  return (void *)(intptr_t)lrmoeNcclLoad(0, nccl);
}

START_TEST(threads_load_once) {
  const struct lrmoeNccl *nccl[numThreads] = {NULL};
  pthread_t threads[numThreads];
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  for (int i = 0; i < numThreads; i++)
    ck_assert(!pthread_create(&threads[i], NULL, loadInThread, &nccl[i]));
  for (int i = 0; i < numThreads; i++) {
    void *result = NULL;
    pthread_join(threads[i], &result);
    ck_assert_ptr_null(result);
    ck_assert(nccl[i] && nccl[i] == nccl[0]);
  }
}
END_TEST

/* ---- What a release lacks ---- */

START_TEST(what_is_missing_is_named) {
  const struct lrmoeTransport *table = NULL;
  struct ncclWindow_vidmem *window = NULL;
  void *block = NULL;
  setenv("LRMOE_BACKEND", "cuda", 1);
  setenv("LRMOE_NCCL_PATH", STANDIN_OLD_FILE, 1);
  ASSERT_OK(lrmoeNcclTransportGet(0, &table));
  ck_assert_ptr_null(table->getPeerPointer);
  ASSERT_RESULT(lrmoeMemAlloc(1, &block), lrmoeUnsupported);
  assertError("(NCCL 2.27.3) has no ncclMemAlloc");
  ASSERT_RESULT(lrmoeMemFree(&block), lrmoeUnsupported);
  assertError("ncclMemFree");
  ASSERT_RESULT(table->commWindowRegister(NULL, block, 1, &window, 0),
                lrmoeUnsupported);
  assertError("has no ncclCommWindowRegister");
}
END_TEST

START_TEST(what_is_there_is_in_the_table) {
  const struct lrmoeTransport *table = NULL;
  setenv("LRMOE_NCCL_PATH", STANDIN_NEW_FILE, 1);
  ASSERT_OK(lrmoeNcclTransportGet(0, &table));
  ck_assert_ptr_nonnull(table->getPeerPointer);
  ck_assert_ptr_eq(table, lrmoeNcclTransportLoaded());
  ck_assert_int_eq(table->hasStreams, 1);
  ck_assert_str_eq(table->name, "nccl");
}
END_TEST

/* ---- Results ---- */

/* One to one up to 7; 8 is the time-out of 2.30; others are unknown. */
START_TEST(results_of_nccl) {
  static const lrmoeResult_t expected[] = {
      [1] = lrmoeUnhandledCudaError, [2] = lrmoeSystemError,
      [3] = lrmoeInternalError,      [4] = lrmoeInvalidArgument,
      [5] = lrmoeInvalidUsage,       [6] = lrmoeRemoteError,
      [8] = lrmoeRemoteError,        [9] = lrmoeInternalError};
  lrmoeUniqueId id;
  lrmoeComm_t comm = NULL;
  char byte = 0;
  if (!expected[_i]) return;
  setenv("LRMOE_BACKEND", "cuda", 1);
  setenv("LRMOE_NCCL_PATH", STANDIN_FILE, 1);
  ASSERT_OK(lrmoeGetUniqueId(&id));
  ASSERT_OK(lrmoeCommInitRank(1, &id, 0, NULL, &comm));
  testStandin()->failNext(_i);
  ASSERT_RESULT(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, comm, NULL),
                expected[_i]);
  assertError("ncclBroadcast: ");
  assertError("injected failure");
  /* A communicator of LRMoE's own is a non-blocking one, which any ends. */
  ASSERT_RESULT(lrmoeBroadcast(&byte, &byte, 1, lrmoeInt8, 0, comm, NULL),
                expected[_i]);
  ASSERT_OK(lrmoeCommDestroy(comm));
  ck_assert_int_eq(testStandin()->misuses(), 0);
}
END_TEST

static Suite *makeSuite(void) {
  Suite *suite = suite_create("nccl_load");
  TCase *tests = tcase_create("load");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, old_releases_are_refused_by_name, 0, 3);
  tcase_add_loop_test(tests, known_releases_are_taken_in_silence, 0, 3);
  tcase_add_test(tests, newer_releases_are_taken_with_one_warning);
  tcase_add_test(tests, none_says_what_to_do);
  tcase_add_test(tests, another_library_is_refused);
  tcase_add_test(tests, other_backends_are_refused_by_name);
  tcase_add_test(tests, the_one_of_the_process_is_found);
  tcase_add_test(tests, the_one_of_the_process_comes_first);
  tcase_add_test(tests, naming_the_one_of_the_process_is_no_news);
  tcase_add_test(tests, nothing_to_borrow_from);
  tcase_add_test(tests, threads_load_once);
  tcase_add_test(tests, what_is_missing_is_named);
  tcase_add_test(tests, what_is_there_is_in_the_table);
  tcase_add_loop_test(tests, results_of_nccl, 1, 10);
  suite_add_tcase(suite, tests);
  return suite;
}

int main(void) {
  return suiteRun(makeSuite());
}
