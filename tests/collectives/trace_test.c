/* What LRMOE_TRACE says of a step: each call once per rank, with what happened
 * in it inside it, and the bytes that went; and, where NVTX finds a tool
 * (nvtx_tool.c), that this is shown the same. */
#include "driver.h"
#include "support/suite.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  numRanks = 3,
  numTwice = 2 * numRanks,
  numThrice = 3 * numRanks
};

static char folder[] = "/tmp/lrmoe_trace_XXXXXX";
static char path[200];

static struct oracleCase traceCase(void) {
  struct oracleCase c = oracleRandomCase(3);
  c.numRanks = numRanks;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = 20 + r;
  return c;
}

static int runStep(const struct testRank *self) {
  struct driver d;
  const struct oracleCase *spec = self->user;
  int failed = driverOpen(&d, self, spec) || driverForward(&d) ||
               driverBackward(&d, &spec->backward, 0) ||
               driverBackward(&d, &spec->backward, 1);
  driverClose(&d);
  return failed;
}

struct total {
  int numSpans;
  int64_t bytes;
  double first;
  double last;
};

static const char *nameOf(json_t *event) {
  return json_string_value(json_object_get(event, "name"));
}

/* All spans of that name; of the device, or else of the host and names. */
static struct total totalOn(json_t *events, const char *name, int isDevice) {
  struct total total = {0, 0, 1e300, 0};
  size_t i;
  json_t *event;
  json_array_foreach(events, i, event) {
    const char *where = json_string_value(json_object_get(event, "cat"));
    if (strcmp(nameOf(event), name) != 0 ||
        (where && !strcmp(where, "device")) != isDevice)
      continue;
    double start = json_number_value(json_object_get(event, "ts"));
    double end = start + json_number_value(json_object_get(event, "dur"));
    ck_assert(end >= start);
    total.numSpans++;
    total.bytes += json_integer_value(
        json_object_get(json_object_get(event, "args"), "bytes"));
    if (start < total.first) total.first = start;
    if (end > total.last) total.last = end;
  }
  return total;
}

static struct total totalOf(json_t *events, const char *name) {
  return totalOn(events, name, 0);
}

static json_t *trace(void) {
  struct oracleCase c = traceCase();
  json_error_t error;
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/trace.json", folder);
  setenv("LRMOE_TRACE", path, 1);
  setenv("LRMOE_TEST_RANGES", folder, 1);
  ck_assert_int_eq(testRanksRun(numRanks, runStep, &c), 0);
  json_t *events = json_load_file(path, 0, &error);
  ck_assert_msg(events != NULL, "line %d: %s", error.line, error.text);
  unlink(path);
  return events;
}

/* The ranges of one process end in the order in which they should. */
static void checkNesting(FILE *file, json_t *counts) {
  char line[200];
  int depth = 0;
  while (fgets(line, sizeof line, file)) {
    depth += *line == '+' ? 1 : -1;
    ck_assert_int_ge(depth, 0);
    if (*line != '+') continue;
    line[strcspn(line, "\n")] = 0;
    json_int_t count = json_integer_value(json_object_get(counts, line + 1));
    json_object_set_new(counts, line + 1, json_integer(count + 1));
  }
  ck_assert_int_eq(depth, 0);
}

/* How many ranges of each name a tool was shown, of all ranks; empties the
 * folder. */
static json_t *countRanges(int *numFiles) {
  json_t *counts = json_object();
  DIR *entries = opendir(folder);
  ck_assert_ptr_nonnull(entries);
  for (const struct dirent *e = readdir(entries); e; e = readdir(entries)) {
    if (e->d_name[0] == '.') continue;
    char name[400];
    snprintf(name, sizeof name, "%s/%s", folder, e->d_name);
    FILE *file = fopen(name, "r");
    ck_assert_ptr_nonnull(file);
    checkNesting(file, counts);
    fclose(file);
    unlink(name);
    ++*numFiles;
  }
  closedir(entries);
  rmdir(folder);
  return counts;
}

static void checkRanges(json_t *events) {
  int numFiles = 0;
  json_t *counts = countRanges(&numFiles);
  const char *name;
  json_t *count;
  ck_assert_int_eq(numFiles, getenv("NVTX_INJECTION64_PATH") ? numRanks : 0);
  json_object_foreach(counts, name, count) ck_assert_msg(
      json_integer_value(count) == totalOf(events, name).numSpans,
      "%s: %d ranges, %d spans", name, (int)json_integer_value(count),
      totalOf(events, name).numSpans);
  if (numFiles)
    ck_assert_int_eq(
        json_integer_value(json_object_get(counts, "lrmoeDispatch")), numRanks);
  json_decref(counts);
}

/* The device works on a call after the host began it, in the same order, and
 * each call that enqueues work is there. */
static void checkDevice(json_t *events, int isThere) {
  static const char *const calls[] = {
      "lrmoeDispatch",       "lrmoeExpertForward",   "lrmoeCombine",
      "lrmoeSelect",         "lrmoeAllToAllCompact", "lrmoeSelectPackSend",
      "lrmoeExpertBackward", "lrmoeReturn",          "exchange"};
  double before = 0;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    struct total host = totalOf(events, calls[i]);
    struct total device = totalOn(events, calls[i], 1);
    ck_assert_int_eq(device.numSpans, isThere ? host.numSpans : 0);
    if (!isThere) continue;
    ck_assert_msg(device.last > host.first, "%s", calls[i]);
    ck_assert_int_eq(device.bytes, host.bytes);
    if (i >= 4) continue; /* both backwards have what follows */
    ck_assert_msg(device.first >= before, "%s", calls[i]);
    before = device.first;
  }
}

START_TEST(a_step_of_three_ranks) {
  json_t *events = trace();
  ck_assert_int_eq(totalOf(events, "process_name").numSpans, numRanks);
  static const char *const once[] = {
      "lrmoeDispatch", "lrmoeCombine",         "lrmoeExpertForward",
      "lrmoeSelect",   "lrmoeAllToAllCompact", "lrmoeSelectPackSend"};
  for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
    ck_assert_msg(totalOf(events, once[i]).numSpans == numRanks, "%s", once[i]);
  ck_assert_int_eq(totalOf(events, "lrmoeExpertBackward").numSpans, numTwice);
  struct total dispatch = totalOf(events, "lrmoeDispatch");
  struct total back = totalOf(events, "lrmoeReturn");
  struct total exchange = totalOf(events, "exchange");
  ck_assert_int_eq(back.numSpans, numTwice);
  ck_assert_int_gt(exchange.numSpans, numThrice);
  ck_assert_int_gt(exchange.bytes, 0);
  /* Only a device is waited for. */
  ck_assert_int_eq(totalOf(events, "wait").numSpans > 0,
                   getenv("LRMOE_BACKEND") || getenv("LRMOE_TEST_BACKEND"));
  ck_assert(dispatch.first < back.first);
  ck_assert(exchange.first > dispatch.first && exchange.last < back.last);
  const char *backend = getenv("LRMOE_BACKEND");
  checkDevice(events, backend && !strcmp(backend, "cuda"));
  checkRanges(events);
  json_decref(events);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_step_of_three_ranks};
  return suiteRunTests("trace", tests, sizeof tests / sizeof tests[0], 120);
}
