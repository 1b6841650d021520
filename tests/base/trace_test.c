/* Chrome traces: file names, what is in a file, who may add to it. */
#include "base/capture.h"
#include "base/clock.h"
#include "base/trace.h"
#include "support/suite.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  numThreads = 4,
  eventsEach = 5000, /* more than are kept */
  numEvents = numThreads * eventsEach
};

static char folder[] = "/tmp/lrmoe_trace_XXXXXX";
static char path[200];

static void open(void) {
  memset(folder + sizeof folder - 7, 'X', 6);
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/trace.json", folder);
  setenv("LRMOE_TRACE", path, 1);
  setenv("LRMOE_DEBUG", "1", 1);
}

static void shut(void) {
  unlink(path);
  rmdir(folder);
}

static json_t *load(const char *file) {
  json_error_t error;
  json_t *events = json_load_file(file, 0, &error);
  ck_assert_msg(events != NULL, "%s:%d: %s", file, error.line, error.text);
  ck_assert(json_is_array(events));
  return events;
}

/* Events whose member is the text. */
static int count(json_t *events, const char *member, const char *text) {
  int found = 0;
  size_t i;
  json_t *event;
  json_array_foreach(events, i, event) {
    const char *has = json_string_value(json_object_get(event, member));
    found += has && !strcmp(has, text);
  }
  return found;
}

START_TEST(nothing_is_wanted) {
  struct lrmoeTrace *trace = (void *)path;
  unsetenv("LRMOE_TRACE");
  ASSERT_OK(lrmoeTraceOpen(0, 1, &trace));
  ck_assert_ptr_null(trace);
  lrmoeTraceClose(trace);
}
END_TEST

START_TEST(an_event) {
  struct lrmoeTrace *trace = NULL;
  const struct lrmoeTraceEvent event = {"send", 1234567, 2234568, 77, 0};
  const struct lrmoeTraceEvent under = {"send", 1234567, 2234568, 77, 1};
  ASSERT_OK(lrmoeTraceOpen(2, 3, &trace));
  lrmoeTraceAdd(trace, &event);
  lrmoeTraceAdd(trace, &under);
  lrmoeTraceClose(trace);
  json_t *events = load(path);
  ck_assert_int_eq((int)json_array_size(events), 5); /* three are names */
  json_t *first = json_array_get(events, 0),
         *second = json_array_get(events, 3);
  for (int i = 0; i < 2; i++)
    ck_assert(
        json_equal(json_object_get(json_array_get(events, 1 + i), "tid"),
                   json_object_get(json_array_get(events, 3 + i), "tid")));
  ck_assert_int_eq(count(events, "cat", "host"), 1);
  ck_assert_int_eq(count(events, "cat", "device"), 1);
  ck_assert_str_eq(json_string_value(
                       json_object_get(json_object_get(first, "args"), "name")),
                   "rank 2 of 3");
  ck_assert_str_eq(json_string_value(json_object_get(second, "name")), "send");
  ck_assert_str_eq(json_string_value(json_object_get(second, "ph")), "X");
  ck_assert_double_eq_tol(json_number_value(json_object_get(second, "ts")),
                          1234.567, 1e-9);
  ck_assert_double_eq_tol(json_number_value(json_object_get(second, "dur")),
                          1000.001, 1e-9);
  ck_assert_int_eq((int)json_integer_value(json_object_get(
                       json_object_get(second, "args"), "bytes")),
                   77);
  json_decref(events);
}
END_TEST

static void *addMany(void *argument) {
  struct lrmoeTrace *trace = argument;
  for (int i = 0; i < eventsEach; i++) {
    const struct lrmoeTraceEvent event = {"many", i, i + 1, -1, 0};
    lrmoeTraceAdd(trace, &event);
  }
  lrmoeTraceClose(trace);
  return NULL;
}

START_TEST(ranks_share_a_file) {
  pthread_t threads[numThreads];
  struct lrmoeTrace *traces[numThreads];
  for (int i = 0; i < numThreads; i++)
    ASSERT_OK(lrmoeTraceOpen(i, numThreads, &traces[i]));
  for (int i = 0; i < numThreads; i++)
    ck_assert(!pthread_create(&threads[i], NULL, addMany, traces[i]));
  for (int i = 0; i < numThreads; i++)
    pthread_join(threads[i], NULL);
  json_t *events = load(path);
  ck_assert_int_eq(count(events, "name", "many"), numEvents);
  json_decref(events);
}
END_TEST

START_TEST(names_of_files) {
  char pattern[300], host[256] = "", expected[700];
  struct lrmoeTrace *trace = NULL;
  const struct lrmoeTraceEvent event = {"send", 0, 1, -1, 0};
  ck_assert(!gethostname(host, sizeof host - 1));
  snprintf(pattern, sizeof pattern, "%s/%%h.%%r.100%%%%", folder);
  snprintf(expected, sizeof expected, "%s/%s.12.100%%", folder, host);
  setenv("LRMOE_TRACE", pattern, 1);
  ASSERT_OK(lrmoeTraceOpen(12, 16, &trace));
  lrmoeTraceAdd(trace, &event);
  lrmoeTraceClose(trace);
  json_decref(load(expected));
  unlink(expected);
}
END_TEST

START_TEST(names_that_make_no_sense) {
  static const char *const patterns[] = {"/tmp/%x", "/tmp/%", "/tmp/%R"};
  char longName[5000];
  struct lrmoeTrace *trace = NULL;
  for (size_t i = 0; i < 3; i++) {
    setenv("LRMOE_TRACE", patterns[i], 1);
    ASSERT_RESULT(lrmoeTraceOpen(0, 1, &trace), lrmoeInvalidArgument);
    ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), patterns[i]));
    ck_assert_ptr_null(trace);
  }
  memset(longName, 'a', sizeof longName);
  longName[sizeof longName - 1] = '\0';
  setenv("LRMOE_TRACE", longName, 1);
  ASSERT_RESULT(lrmoeTraceOpen(0, 1, &trace), lrmoeInvalidArgument);
}
END_TEST

/* One warning, whatever is added, and the file as it was. */
static void checkRefused(const char *reason) {
  static char text[2000];
  struct lrmoeTrace *trace = NULL;
  const struct lrmoeTraceEvent event = {"send", 0, 1, -1, 0};
  ASSERT_OK(lrmoeTraceOpen(0, 1, &trace));
  struct capture capture = captureBegin();
  for (int i = 0; i < 3; i++) {
    lrmoeTraceAdd(trace, &event);
    lrmoeTraceFlush(trace);
  }
  lrmoeTraceClose(trace);
  captureEnd(&capture, text, sizeof text);
  ck_assert_msg(countLines(text) == 1 && strstr(text, reason), "%s", text);
}

START_TEST(a_file_of_somebody_else) {
  static const char *const contents[] = {"a", "precious", "[\n{}\n]\n "};
  for (size_t i = 0; i < 3; i++) {
    char after[40] = "";
    FILE *file = fopen(path, "w");
    fputs(contents[i], file);
    fclose(file);
    checkRefused("not a trace");
    file = fopen(path, "r");
    after[fread(after, 1, sizeof after - 1, file)] = '\0';
    fclose(file);
    ck_assert_str_eq(after, contents[i]);
  }
}
END_TEST

START_TEST(no_such_folder) {
  char pattern[300];
  snprintf(pattern, sizeof pattern, "%s/none/trace.json", folder);
  setenv("LRMOE_TRACE", pattern, 1);
  checkRefused("No such file");
}
END_TEST

/* What is older than a second does not wait for more. */
START_TEST(a_killed_rank_loses_little) {
  struct lrmoeTrace *trace = NULL;
  ASSERT_OK(lrmoeTraceOpen(0, 1, &trace));
  int64_t now = lrmoeNowNs();
  const struct lrmoeTraceEvent early = {"early", now, now + 1, -1, 0};
  const struct lrmoeTraceEvent late = {"late", now, now + 2000000000, -1, 0};
  lrmoeTraceAdd(trace, &early);
  ck_assert_int_ne(access(path, F_OK), 0);
  lrmoeTraceAdd(trace, &late);
  json_t *events = load(path);
  ck_assert_int_eq(count(events, "name", "early"), 1);
  ck_assert_int_eq(count(events, "name", "late"), 1);
  json_decref(events);
  lrmoeTraceClose(trace);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      nothing_is_wanted,        an_event,
      ranks_share_a_file,       names_of_files,
      names_that_make_no_sense, a_file_of_somebody_else,
      no_such_folder,           a_killed_rank_loses_little};
  Suite *suite = suite_create("base_trace");
  TCase *tcase = tcase_create("base_trace");
  tcase_set_timeout(tcase, 60);
  tcase_add_checked_fixture(tcase, open, shut);
  for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
    tcase_add_test(tcase, tests[i]);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
