/* The load CSV: what is read, what is refused and how it is named. */
#include "support/suite.h"
#include "tools/common/csv.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct toolLoad load;
static struct toolError error;

static enum toolExit parseBytes(const char *text, size_t bytes) {
  /* A block of exactly that length, so that ASan sees a read past it. */
  char *copy = malloc(bytes ? bytes : 1);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, text, bytes);
  load = (struct toolLoad){0};
  error.text[0] = 0;
  enum toolExit code = toolLoadParse("f.csv", copy, bytes, &load, &error);
  free(copy);
  return code;
}

static void accept(const char *text) {
  enum toolExit code = parseBytes(text, strlen(text));
  ck_assert_msg(code == toolGood, "refused: %s", error.text);
}

static void refuseBytes(const char *text, size_t bytes, const char *message) {
  ck_assert_int_eq(parseBytes(text, bytes), toolBadInput);
  ck_assert_str_eq(error.text, message);
  ck_assert_ptr_null(load.rows); /* written only on success */
}

static void refuse(const char *text, const char *message) {
  refuseBytes(text, strlen(text), message);
}

/* counts [numExperts] of the section, as text. */
static void checkCounts(int64_t step, int64_t layer, const char *expected) {
  const struct toolLoadSection *section = toolLoadFind(&load, step, layer);
  ck_assert_ptr_nonnull(section);
  int64_t *counts = NULL;
  ck_assert_int_eq(toolLoadCounts(&load, section, &counts, &error), toolGood);
  char text[200] = "";
  size_t used = 0;
  for (int e = 0; e < load.numExperts; e++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld",
                             e ? " " : "", (long long)counts[e]);
  ck_assert_str_eq(text, expected);
  free(counts);
}

START_TEST(plain) {
  accept("layer,expert,count\n0,0,5\n0,2,7\n1,1,9\n");
  ck_assert_int_eq(load.numRows, 3);
  ck_assert_int_eq(load.numSections, 2);
  ck_assert_int_eq(load.numExperts, 3);
  ck_assert_int_eq(load.numRanks, 1);
  ck_assert_int_eq(load.sections[0].total, 12);
  checkCounts(0, 0, "5 0 7");
  checkCounts(-1, 1, "0 9 0");
  checkCounts(-1, -1, "5 0 7");
  ck_assert_ptr_null(toolLoadFind(&load, 0, 2));
  ck_assert_ptr_null(toolLoadFind(&load, 1, 0));
  toolLoadFree(&load);
}
END_TEST

START_TEST(columnsInAnyOrder) {
  accept("count,rank,expert,step,layer\n5,1,0,3,2\n7,0,1,3,2\n");
  ck_assert_int_eq(load.numRanks, 2);
  ck_assert_int_eq(load.sections[0].step, 3);
  ck_assert_int_eq(load.sections[0].layer, 2);
  checkCounts(3, 2, "5 7");
  int64_t *counts = NULL;
  ck_assert_int_eq(
      toolLoadCountsByRank(&load, &load.sections[0], &counts, &error),
      toolGood);
  static const int64_t expected[] = {0, 7, 5, 0};
  ck_assert_mem_eq(counts, expected, sizeof expected);
  free(counts);
  toolLoadFree(&load);
}
END_TEST

START_TEST(rowsInAnyOrder) {
  accept("step,layer,expert,count\n1,0,1,4\n0,1,0,3\n0,0,1,2\n0,0,0,1\n");
  ck_assert_int_eq(load.numSections, 3);
  checkCounts(0, 0, "1 2");
  checkCounts(0, 1, "3 0");
  checkCounts(1, -1, "0 4");
  checkCounts(-1, 1, "3 0");
  toolLoadFree(&load);
}
END_TEST

START_TEST(lineEndsBlankLinesAndMark) {
  accept("layer,expert,count\r\n0,0,5\r\n0,1,6");
  checkCounts(0, 0, "5 6");
  toolLoadFree(&load);
  accept("\n\r\n\nlayer,expert,count\n\n0,0,5\n\r\n\n0,1,6\n\n\n");
  checkCounts(0, 0, "5 6");
  toolLoadFree(&load);
  accept("\xef\xbb\xbflayer,expert,count\n0,0,5\n");
  checkCounts(0, 0, "5");
  toolLoadFree(&load);
  refuse("\xef\xbblayer,expert,count\n0,0,5\n",
         "f.csv:1: column \"\xef\xbblayer\" is not one of step, rank, layer, "
         "expert, count, importance");
  refuse("layer,expert,count\r\r\n0,0,5\n",
         "f.csv:1: column \"count\r\" is not one of step, rank, layer, expert, "
         "count, importance");
}
END_TEST

START_TEST(emptyInputs) {
  refuse("", "f.csv:0: it is empty");
  ck_assert_int_eq(toolLoadParse("f.csv", NULL, 0, &load, &error),
                   toolBadInput);
  refuse("\xef\xbb\xbf", "f.csv:0: there is no header");
  refuse("\n\n", "f.csv:2: there is no header");
  refuse("layer,expert,count\n", "f.csv:1: no line after the header");
  refuse("layer,expert,count\n\n\n", "f.csv:3: no line after the header");
}
END_TEST

START_TEST(headerErrors) {
  refuse("layer,expert,tokens\n0,0,1\n",
         "f.csv:1: column \"tokens\" is not one of step, rank, layer, expert, "
         "count, importance");
  refuse("Layer,expert,count\n0,0,1\n",
         "f.csv:1: column \"Layer\" is not one of step, rank, layer, expert, "
         "count, importance");
  refuse("layer, expert,count\n0,0,1\n",
         "f.csv:1: column \" expert\" is not one of step, rank, layer, expert, "
         "count, importance");
  refuse("\"layer\",expert,count\n0,0,1\n",
         "f.csv:1: column \"\"layer\"\" is not one of step, rank, layer, "
         "expert, count, importance");
  refuse("layer,expert,count,\n0,0,1,\n",
         "f.csv:1: column \"\" is not one of step, rank, layer, expert, count, "
         "importance");
  refuse("layer,expert,count,expert\n0,0,1,0\n",
         "f.csv:1: column expert is there twice");
  refuse("layer,count\n0,1\n", "f.csv:1: column expert is missing");
  refuse("step,rank\n0,1\n", "f.csv:1: column layer is missing");
  refuse("expert,layer\n0,1\n", "f.csv:1: column count is missing");
  refuse("0,0,5\n", "f.csv:1: column \"0\" is not one of step, rank, layer, "
                    "expert, count, importance");
}
END_TEST

START_TEST(fieldErrors) {
  refuse("layer,expert,count\n0,0\n",
         "f.csv:2: 2 fields, and the header has 3");
  refuse("layer,expert,count\n0,0,1\n0,1,1,1\n",
         "f.csv:3: 4 fields, and the header has 3");
  refuse("layer,expert,count\n0,0,1,\n",
         "f.csv:2: 4 fields, and the header has 3");
  refuse("layer,expert,count\n0,,1\n", "f.csv:2: expert is empty");
  refuse("layer,expert,count\n0,0,\n", "f.csv:2: count is empty");
  refuse("layer,expert,count\n,0,1\n", "f.csv:2: layer is empty");
  refuse("layer,expert,count\n0,0,-1\n",
         "f.csv:2: count \"-1\" is not a number of digits");
  refuse("layer,expert,count\n0,0,+1\n",
         "f.csv:2: count \"+1\" is not a number of digits");
  refuse("layer,expert,count\n0,0,1.5\n",
         "f.csv:2: count \"1.5\" is not a number of digits");
  refuse("layer,expert,count\n0,0, 1\n",
         "f.csv:2: count \" 1\" is not a number of digits");
  refuse("layer,expert,count\n0,0,1e3\n",
         "f.csv:2: count \"1e3\" is not a number of digits");
  refuse("layer,expert,count\n\n0,0,1\n\n0,1,x\n",
         "f.csv:5: count \"x\" is not a number of digits");
  refuse("layer,expert,count\n0,0,\xff\n",
         "f.csv:2: count \"\xff\" is not a number of digits");
}
END_TEST

START_TEST(limits) {
  accept("layer,expert,count\n9223372036854775807,999999,"
         "9223372036854775807\n");
  ck_assert_int_eq(load.numExperts, toolMaxLoadExperts);
  ck_assert_int_eq(load.rows[0].count, INT64_MAX);
  ck_assert_int_eq(load.rows[0].layer, INT64_MAX);
  toolLoadFree(&load);
  accept("layer,expert,count\n0000,0007,00000000000000000000000000001\n");
  checkCounts(0, 0, "0 0 0 0 0 0 0 1");
  toolLoadFree(&load);
  refuse("layer,expert,count\n0,0,9223372036854775808\n",
         "f.csv:2: count 9223372036854775808 is over 9223372036854775807");
  refuse("layer,expert,count\n0,0,99999999999999999999999999999999999\n",
         "f.csv:2: count 99999999999999999999999999999999999 is over "
         "9223372036854775807");
  refuse("layer,expert,count\n0,1000000,1\n",
         "f.csv:2: expert 1000000 is over 999999");
  refuse("layer,expert,count\n0,18446744073709551616,1\n",
         "f.csv:2: expert 18446744073709551616 is over 999999");
  refuse("rank,layer,expert,count\n65536,0,1,1\n",
         "f.csv:2: rank 65536 is over 65535");
}
END_TEST

START_TEST(sumOverflow) {
  accept("layer,expert,count\n0,0,9223372036854775806\n0,1,1\n");
  ck_assert_int_eq(load.sections[0].total, INT64_MAX);
  toolLoadFree(&load);
  accept("layer,expert,count\n0,0,9223372036854775807\n1,1,"
         "9223372036854775807\n");
  toolLoadFree(&load);
  refuse("layer,expert,count\n3,0,9223372036854775806\n3,1,1\n3,2,1\n",
         "f.csv:4: the counts of step 0, layer 3 add up to more than 2^63 - 1");
}
END_TEST

START_TEST(duplicates) {
  refuse("layer,expert,count\n0,0,1\n0,1,1\n0,0,2\n",
         "f.csv:4: step 0, rank 0, layer 0, expert 0 is already on line 2");
  refuse("step,rank,layer,expert,count\n4,3,2,1,7\n4,3,2,1,7\n",
         "f.csv:3: step 4, rank 3, layer 2, expert 1 is already on line 2");
  accept("step,rank,layer,expert,count\n4,3,2,1,7\n4,2,2,1,7\n5,3,2,1,7\n"
         "4,3,1,1,7\n");
  ck_assert_int_eq(load.numSections, 3);
  checkCounts(4, 2, "0 14");
  toolLoadFree(&load);
}
END_TEST

START_TEST(nulBytes) {
  static const char inRow[] = "layer,expert,count\n0,0,1\0\n";
  static const char inHeader[] = "layer,expert\0,count\n0,0,1\n";
  static const char alone[] = "layer,expert,count\n0,0,1\n\0";
  refuseBytes(inRow, sizeof inRow - 1, "f.csv:2: the line has a NUL byte");
  refuseBytes(inHeader, sizeof inHeader - 1,
              "f.csv:1: the line has a NUL byte");
  refuseBytes(alone, sizeof alone - 1, "f.csv:3: the line has a NUL byte");
}
END_TEST

START_TEST(longLines) {
  static char text[6000];
  size_t header = (size_t)sprintf(text, "layer,expert,count\n0,0,");
  memset(text + header, '0', sizeof text - header - 1);
  text[header + 4096 - 4] = 0; /* "0,0," and zeros: 4096 bytes in all */
  accept(text);
  toolLoadFree(&load);
  text[header + 4096 - 4] = '0';
  text[header + 4097 - 4] = 0;
  refuse(text, "f.csv:2: the line is 4097 bytes long, over 4096");
  memset(text, ',', sizeof text);
  refuseBytes(text, sizeof text,
              "f.csv:1: the line is 6000 bytes long, over 4096");
}
END_TEST

/* Far experts and far ranks in few bytes: a dense array of both is refused,
 * the sum over ranks is not. */
START_TEST(denseStorageIsBounded) {
  accept("rank,layer,expert,count\n65535,0,0,1\n0,0,999999,1\n");
  int64_t *counts = NULL;
  ck_assert_int_eq(
      toolLoadCountsByRank(&load, &load.sections[0], &counts, &error),
      toolBadInput);
  ck_assert_str_eq(error.text, "65536 ranks of 1000000 experts are more counts "
                               "than 67108864");
  ck_assert_ptr_null(counts);
  ck_assert_int_eq(toolLoadCounts(&load, &load.sections[0], &counts, &error),
                   toolGood);
  ck_assert_int_eq(counts[0] + counts[999999], 2);
  free(counts);
  toolLoadFree(&load);
}
END_TEST

START_TEST(manyRows) {
  size_t room = 40 * 20000, used = 0;
  char *text = malloc(room);
  ck_assert_ptr_nonnull(text);
  used += (size_t)sprintf(text, "layer,expert,count\n");
  for (int i = 19999; i >= 0; i--)
    used += (size_t)sprintf(text + used, "%d,%d,%d\n", i / 100, i % 100, i);
  accept(text);
  ck_assert_int_eq(load.numRows, 20000);
  ck_assert_int_eq(load.numSections, 200);
  for (int i = 0; i < 20000; i++)
    ck_assert_int_eq(load.rows[i].count, i);
  toolLoadFree(&load);
  free(text);
}
END_TEST

START_TEST(files) {
  ck_assert_int_eq(toolLoadRead("/nonexistent/x.csv", &load, &error),
                   toolBadInput);
  ck_assert_str_eq(error.text, "/nonexistent/x.csv: No such file or directory");
  ck_assert_int_eq(toolLoadRead("/", &load, &error), toolBadInput);
  ck_assert_str_eq(error.text, "/: Is a directory");
  ck_assert_int_eq(toolLoadRead("/dev/null", &load, &error), toolBadInput);
  char path[] = "/tmp/lrmoe_csv_XXXXXX";
  int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  FILE *file = fdopen(descriptor, "w");
  fputs("layer,expert,count\n", file);
  for (int i = 0; i < 50000; i++)
    fprintf(file, "%d,3,%d\n", i, i);
  fclose(file);
  enum toolExit code = toolLoadRead(path, &load, &error);
  unlink(path);
  ck_assert_int_eq(code, toolGood);
  ck_assert_int_eq(load.numSections, 50000);
  ck_assert_int_eq(load.rows[49999].count, 49999);
  toolLoadFree(&load);
}
END_TEST

/* An endless input is given up, not swallowed. */
START_TEST(endlessFile) {
  ck_assert_int_eq(toolLoadRead("/dev/zero", &load, &error), toolBadInput);
  ck_assert_str_eq(error.text, "/dev/zero: is over 256 MiB");
}
END_TEST

static int isLoadFile(const char *name) {
  size_t length = strlen(name);
  return length > 4 && strcmp(name + length - 4, ".csv") == 0;
}

/* Measured loads, where they are: every one is read, and dense. */
START_TEST(measuredLoads) {
  const char *shared = getenv("LRMOE_SHARED_DATA");
  char folder[4096], path[5000];
  snprintf(folder, sizeof folder, "%s/expert_load",
           shared && *shared ? shared : LRMOE_DEFAULT_SHARED_DATA);
  DIR *directory = opendir(folder);
  if (!directory) {
    printf("skipped: no folder of measured loads (LRMOE_SHARED_DATA)\n");
    return;
  }
  int numRead = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    if (!isLoadFile(entry->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    enum toolExit code = toolLoadRead(path, &load, &error);
    ck_assert_msg(code == toolGood, "%s", error.text);
    ck_assert_int_gt(load.sections[0].total, 0);
    ck_assert_int_eq(load.numRows % load.numSections, 0);
    toolLoadFree(&load);
    numRead++;
  }
  closedir(directory);
  printf("%d measured loads read\n", numRead);
  ck_assert_int_gt(numRead, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("csv");
  TCase *tcase = tcase_create("csv");
  tcase_set_timeout(tcase, 120);
  tcase_add_test(tcase, plain);
  tcase_add_test(tcase, columnsInAnyOrder);
  tcase_add_test(tcase, rowsInAnyOrder);
  tcase_add_test(tcase, lineEndsBlankLinesAndMark);
  tcase_add_test(tcase, emptyInputs);
  tcase_add_test(tcase, headerErrors);
  tcase_add_test(tcase, fieldErrors);
  tcase_add_test(tcase, limits);
  tcase_add_test(tcase, sumOverflow);
  tcase_add_test(tcase, duplicates);
  tcase_add_test(tcase, nulBytes);
  tcase_add_test(tcase, longLines);
  tcase_add_test(tcase, denseStorageIsBounded);
  tcase_add_test(tcase, manyRows);
  tcase_add_test(tcase, files);
  tcase_add_test(tcase, endlessFile);
  tcase_add_test(tcase, measuredLoads);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
