/* Traces and apportionment: sums, spreading over ranks, made loads. */
#include "support/program.h"
#include "support/suite.h"
#include "tools/common/apportion.h"
#include "tools/common/trace.h"

#include <string.h>

static struct toolError error;
static struct toolTraceSection section;

static struct toolTrace *openTrace(const struct toolTraceConfig *config) {
  struct toolTrace *trace = NULL;
  enum toolExit code = toolTraceOpen(config, &trace, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
  return trace;
}

static void readSection(struct toolTrace *trace, int64_t index) {
  enum toolExit code = toolTraceRead(trace, index, &section, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
}

/* A trace of a file of this test, on so many ranks. */
static struct toolTrace *openFile(const char *text, int32_t numRanks,
                                  int64_t numTokens) {
  programWrite("f.csv", text);
  const struct toolTraceConfig config = {.load = programPath("f.csv"),
                                         .step = -1,
                                         .layer = -1,
                                         .numTokens = numTokens,
                                         .numRanks = numRanks,
                                         .topk = 1};
  return openTrace(&config);
}

START_TEST(largestRemainders) {
  static const struct {
    int64_t weights[4];
    int64_t total;
    int64_t parts[4];
  } cases[] = {{{1, 1, 1, 1}, 6, {2, 2, 1, 1}},
               {{4, 2, 3, 0}, 6, {3, 1, 2, 0}},
               {{0, 0, 0, 0}, 5, {0, 0, 0, 0}},
               {{1, 0, 0, 0}, INT64_MAX, {INT64_MAX, 0, 0, 0}},
               {{INT64_MAX - 1, 1, 0, 0}, 2, {2, 0, 0, 0}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t parts[4];
    memcpy(parts, cases[i].weights, sizeof parts);
    ck_assert_int_eq(toolApportion(parts, 4, cases[i].total, parts, &error),
                     toolGood);
    ck_assert_mem_eq(parts, cases[i].parts, sizeof parts);
  }
}
END_TEST

/* Without ranks in the file: as even as whole numbers are. */
START_TEST(dividedEvenly) {
  struct toolTrace *trace =
      openFile("layer,expert,count\n0,0,7\n0,1,4\n", 3, 0);
  readSection(trace, 0);
  static const int64_t demand[] = {3, 1, 2, 1, 2, 2};
  ck_assert_mem_eq(section.demand, demand, sizeof demand);
  ck_assert_int_eq(section.pairs, 11);
  ck_assert_ptr_null(section.importance);
  toolTraceClose(trace);
}
END_TEST

static const char *const fourRanks = "layer,rank,expert,count\n2,0,0,1\n"
                                     "2,1,0,2\n2,2,0,4\n2,3,0,8\n2,3,1,16\n";

START_TEST(ranksOfTheFile) {
  struct toolTrace *trace = openFile(fourRanks, 4, 0);
  readSection(trace, 0);
  static const int64_t asItIs[] = {1, 0, 2, 0, 4, 0, 8, 16};
  ck_assert_mem_eq(section.demand, asItIs, sizeof asItIs);
  ck_assert_int_eq(section.layer, 2);
  toolTraceClose(trace);

  trace = openFile(fourRanks, 2, 0);
  readSection(trace, 0);
  static const int64_t folded[] = {3, 0, 12, 16};
  ck_assert_mem_eq(section.demand, folded, sizeof folded);
  toolTraceClose(trace);

  trace = openFile(fourRanks, 4, 62); /* scaled to twice as many */
  readSection(trace, 0);
  static const int64_t twice[] = {2, 0, 4, 0, 8, 0, 16, 32};
  ck_assert_mem_eq(section.demand, twice, sizeof twice);
  toolTraceClose(trace);
}
END_TEST

/* Gate mass: only shares matter; a layer without mass has none. */
START_TEST(importance) {
  struct toolTrace *trace = openFile(
      "layer,expert,count,importance\n0,0,5,30\n0,2,7,10\n1,0,1,0\n", 1, 0);
  readSection(trace, 0);
  ck_assert(section.importance[0] == 0.75 && section.importance[1] == 0 &&
            section.importance[2] == 0.25);
  readSection(trace, 1);
  ck_assert_ptr_null(section.importance);
  toolTraceClose(trace);
}
END_TEST

/* As many pairs as tokens and slots give; no expert has more than tokens; each
 * layer differs; the same seed gives the same. */
START_TEST(madeLoads) {
  const struct toolTraceConfig config = {.routing = "zipf:2",
                                         .numLayers = 2,
                                         .numTokens = 1001,
                                         .seed = 3,
                                         .numRanks = 4,
                                         .numExperts = 16,
                                         .topk = 4};
  struct toolTrace *trace = openTrace(&config);
  ck_assert_int_eq(toolTraceLength(trace), 2);
  ck_assert_int_eq(toolTraceExperts(trace), 16);
  int64_t first[16];
  readSection(trace, 0);
  memcpy(first, section.counts, sizeof first);
  for (int i = 0; i < 16; i++)
    ck_assert_int_le(first[i], 1001);
  ck_assert_int_eq(section.pairs, 4004);
  readSection(trace, 1);
  ck_assert_int_eq(section.pairs, 4004);
  ck_assert_mem_ne(section.counts, first, sizeof first);
  readSection(trace, 0);
  ck_assert_mem_eq(section.counts, first, sizeof first);
  toolTraceClose(trace);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {largestRemainders, dividedEvenly,
                                ranksOfTheFile, importance, madeLoads};
  return suiteRunTests("trace", tests, sizeof tests / sizeof *tests, 60);
}
