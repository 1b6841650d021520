/* What programs print: statistics, tables, JSON. */
#include "support/suite.h"
#include "tools/common/json.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct toolError error;

START_TEST(statsOfOddAndEven) {
  double five[] = {5, 1, 4, 2, 3};
  struct toolStats stats = toolStatsMake(five, 5);
  ck_assert(stats.minimum == 1 && stats.lower == 2 && stats.median == 3);
  ck_assert(stats.upper == 4 && stats.maximum == 5 && stats.count == 5);
  ck_assert(fabs(toolStatsSpread(&stats) - 1.0 / 3) < 1e-12);
  double four[] = {4, 3, 2, 1};
  stats = toolStatsMake(four, 4);
  ck_assert(stats.lower == 1.75 && stats.median == 2.5 && stats.upper == 3.25);
}
END_TEST

START_TEST(statsOfOneAndOfZeros) {
  double one[] = {7};
  struct toolStats stats = toolStatsMake(one, 1);
  ck_assert(stats.minimum == 7 && stats.lower == 7 && stats.median == 7);
  ck_assert(stats.upper == 7 && stats.maximum == 7);
  ck_assert(toolStatsSpread(&stats) == 0);
  double zeros[] = {0, 0, 1};
  stats = toolStatsMake(zeros, 3);
  ck_assert(toolStatsSpread(&stats) == 0);
}
END_TEST

/* Sleep is wall time and not CPU time; work is CPU time. */
START_TEST(clocks) {
  int64_t wall = toolWallNs(), cpu = toolCpuNs();
  usleep(50000);
  ck_assert_int_ge(toolWallNs() - wall, 50000000);
  ck_assert_int_lt(toolCpuNs() - cpu, 50000000);
  while (toolCpuNs() == cpu)
    continue; /* the test's time-out is the limit */
}
END_TEST

static const struct toolColumn columns[] = {
    {"size", "B", 10}, {"metric", "", 8}, {"time", "us", 9}};

static char *tableText(struct toolJson *json) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *memory = open_memstream(&text, &bytes);
  struct toolTable table = {
      .out = memory, .json = json, .columns = columns, .numColumns = 3};
  toolTableNote(memory, "ranks %d", 4);
  toolTableBegin(&table);
  toolTableInt(&table, 1024);
  toolTableText(&table, "lrm");
  toolTableReal(&table, 12.3456, 2);
  toolTableInt(&table, INT64_MIN);
  toolTableText(&table, "a long name");
  toolTableReal(&table, NAN, 2);
  fclose(memory);
  return text;
}

START_TEST(tables) {
  char *text = tableText(NULL);
  ck_assert_str_eq(text, "# ranks 4\n"
                         "#\n"
                         "#     size    metric       time\n"
                         "#        B                   us\n"
                         "      1024       lrm      12.35\n"
                         "-9223372036854775808  a long name          -\n");
  free(text);
}
END_TEST

static char folder[64];

static void makeFolder(void) {
  strcpy(folder, "/tmp/lrmoe_json_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void removeFolder(void) {
  char command[100];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  ck_assert_int_eq(system(command), 0);
}

static const char *inFolder(const char *name) {
  static char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static int64_t ranks = 4;
static double retain = 0.5;
static const char *routing = "zipf:1", *unset;
static int isCheck = 1, metric = 1;
static struct toolIntList sizes = {{1, 2}, 2};
static struct toolRealList ratios = {{0.5, 0.25}, 2};
static const char *const metrics[] = {"lrm", "grad2", NULL};
static const struct toolArg args[] = {
    {.name = "ranks", .kind = toolArgInt, .value = &ranks},
    {.name = "retain", .kind = toolArgReal, .value = &retain},
    {.name = "routing", .kind = toolArgText, .value = &routing},
    {.name = "load", .kind = toolArgText, .value = &unset},
    {.name = "check", .kind = toolArgFlag, .value = &isCheck},
    {.name = "metric", .kind = toolArgEnum, .value = &metric, .names = metrics},
    {.name = "sizes", .kind = toolArgIntList, .value = &sizes},
    {.name = "ratios", .kind = toolArgRealList, .value = &ratios},
    {0}};
static struct toolProgram program = {
    .name = "lrmoe-x", .summary = "", .args = args};

static struct toolJson *begin(const char *path) {
  struct toolJson *json = NULL;
  program.json = path;
  enum toolExit code = toolJsonBegin(&program, &json, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
  return json;
}

START_TEST(jsonDocument) {
  makeFolder();
  char path[200];
  strcpy(path, inFolder("out.json"));
  struct toolJson *json = begin(path);
  free(tableText(json));
  toolJsonInts(json, "list", (const int64_t[]){1, INT64_MAX}, 2);
  toolJsonRow(json);
  ck_assert_int_eq(toolJsonEnd(json, &error), toolGood);

  json_t *found = json_load_file(path, 0, NULL);
  ck_assert_ptr_nonnull(found);
  char version[40];
  snprintf(version, sizeof version, "%d.%d.%d", LRMOE_MAJOR, LRMOE_MINOR,
           LRMOE_PATCH);
  json_t *expected = json_pack(
      "{s:i, s:s, s:s,"
      " s:{s:i, s:f, s:s, s:n, s:b, s:s, s:[i,i], s:[f,f]},"
      " s:[{s:i, s:s, s:f}, {s:I, s:s, s:n, s:[I,I]}, {}]}",
      "schema", 1, "program", "lrmoe-x", "version", version, "options", "ranks",
      4, "retain", 0.5, "routing", "zipf:1", "load", "check", 1, "metric",
      "grad2", "sizes", 1, 2, "ratios", 0.5, 0.25, "results", "size", 1024,
      "metric", "lrm", "time", 12.3456, "size", (json_int_t)INT64_MIN, "metric",
      "a long name", "time", "list", (json_int_t)1, (json_int_t)INT64_MAX);
  ck_assert_ptr_nonnull(expected);
  ck_assert(json_equal(found, expected));
  json_decref(found);
  json_decref(expected);
  removeFolder();
}
END_TEST

START_TEST(withoutJsonNothingHappens) {
  struct toolJson *json = begin(NULL);
  ck_assert_ptr_null(json);
  toolJsonRow(json);
  toolJsonInt(json, "a", 1);
  toolJsonText(json, "a", "b");
  toolJsonReal(json, "a", 1);
  toolJsonInts(json, "a", NULL, 0);
  ck_assert_int_eq(toolJsonEnd(json, &error), toolGood);
  toolJsonDrop(json);
}
END_TEST

/* Nothing of the process but what it was asked to do. */
START_TEST(jsonHasNoEnvironment) {
  makeFolder();
  setenv("LRMOE_SECRET_FOR_TEST", "tell-no-one", 1);
  char path[200], text[4000];
  strcpy(path, inFolder("out.json"));
  ck_assert_int_eq(toolJsonEnd(begin(path), &error), toolGood);
  FILE *file = fopen(path, "r");
  size_t bytes = fread(text, 1, sizeof text - 1, file);
  text[bytes] = 0;
  fclose(file);
  ck_assert_ptr_null(strstr(text, "tell-no-one"));
  ck_assert_ptr_null(strstr(text, "SECRET"));
  ck_assert_ptr_null(strstr(text, folder));
  removeFolder();
}
END_TEST

static int countFiles(void) {
  char command[160];
  snprintf(command, sizeof command, "exit $(ls -A '%s' | wc -l)", folder);
  int status = system(command);
  return WEXITSTATUS(status);
}

START_TEST(jsonReplacesWholeFiles) {
  makeFolder();
  char path[200], link[200];
  strcpy(path, inFolder("out.json"));
  strcpy(link, inFolder("link.json"));
  FILE *file = fopen(path, "w");
  fputs("old", file);
  fclose(file);
  ck_assert_int_eq(symlink("out.json", link), 0);
  mode_t mask = umask(027);
  struct toolJson *json = begin(link);
  ck_assert_int_eq(countFiles(), 2);
  ck_assert_int_eq(toolJsonEnd(json, &error), toolGood);
  umask(mask);
  ck_assert_int_eq(countFiles(), 2); /* nothing left beside it */
  struct stat status;
  ck_assert_int_eq(lstat(link, &status), 0);
  ck_assert(S_ISLNK(status.st_mode));
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_int_gt(status.st_size, 50);
  ck_assert_int_eq(status.st_mode & 0777, 0640);
  removeFolder();
}
END_TEST

START_TEST(jsonToDevice) {
  ck_assert_int_eq(toolJsonEnd(begin("/dev/null"), &error), toolGood);
  struct stat status;
  ck_assert_int_eq(stat("/dev/null", &status), 0);
  ck_assert(S_ISCHR(status.st_mode)); /* not replaced */
  struct toolJson *json = begin("/dev/full");
  ck_assert_int_eq(toolJsonEnd(json, &error), toolBadInput);
  ck_assert_str_eq(error.text, "option --json: \"/dev/full\": No space left on "
                               "device");
}
END_TEST

static void refusePath(const char *path, const char *why) {
  struct toolJson *json = NULL;
  program.json = path;
  ck_assert_int_eq(toolJsonBegin(&program, &json, &error), toolBadInput);
  ck_assert_ptr_null(json);
  ck_assert_msg(strstr(error.text, why) != NULL, "%s", error.text);
}

START_TEST(jsonRefusedBeforeTheRun) {
  makeFolder();
  refusePath("", "\"\" cannot be written");
  refusePath("/nonexistent/out.json", "cannot be written");
  refusePath(folder, "is a folder");
  /* The folder goes away during the run. */
  struct toolJson *json = begin(inFolder("out.json"));
  removeFolder();
  ck_assert_int_eq(toolJsonEnd(json, &error), toolBadInput);
  ck_assert_ptr_nonnull(strstr(error.text, "No such file or directory"));
  program.json = "\xff\xfe";
  routing = "\xff";
  json = begin("/dev/null");
  ck_assert_int_eq(toolJsonEnd(json, &error), toolRunFailed);
  ck_assert_ptr_nonnull(strstr(error.text, "not UTF-8"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("output");
  TCase *tcase = tcase_create("output");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, statsOfOddAndEven);
  tcase_add_test(tcase, statsOfOneAndOfZeros);
  tcase_add_test(tcase, clocks);
  tcase_add_test(tcase, tables);
  tcase_add_test(tcase, jsonDocument);
  tcase_add_test(tcase, withoutJsonNothingHappens);
  tcase_add_test(tcase, jsonHasNoEnvironment);
  tcase_add_test(tcase, jsonReplacesWholeFiles);
  tcase_add_test(tcase, jsonToDevice);
  tcase_add_test(tcase, jsonRefusedBeforeTheRun);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
