/* alltoall_compact_perf, select_perf and grouped_gemm_perf: what they count
 * follows from the routing, and data that differ are said. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <string.h>

#define SHAPE                                                                 \
  "-g 3 -b 24 -e 48 -n 2 --hidden 32 --ffn 16 --experts 7 --topk 2 --retain " \
  "0.5,1 -J out.json "

/* The row of a way, by tokens and retention. */
static const json_t *find(const json_t *document, double tokens, double retain,
                          const char *way) {
  const json_t *results = json_object_get(document, "results");
  size_t i;
  const json_t *row;
  json_array_foreach(results, i, row) {
    if (numberOf(row, "tokens") == tokens &&
        numberOf(row, "retain") == retain &&
        strcmp(textOf(row, "way"), way) == 0)
      return row;
  }
  ck_abort_msg("no row of %s", way);
}

static void checkTimes(const json_t *document, size_t numWays) {
  const json_t *results = json_object_get(document, "results");
  size_t i;
  const json_t *row;
  ck_assert_uint_eq(json_array_size(results), 2 * 2 * numWays);
  json_array_foreach(results, i, row) {
    ck_assert(numberOf(row, "time_ms") > 0);
    ck_assert(numberOf(row, "cpu_ms") > 0);
    ck_assert(numberOf(row, "wrong") == 0);
  }
}

/* A row per kept pair is no more than a row per pair, and a row per (token,
 * rank) no more than that. */
START_TEST(compact) {
  json_t *document = documentRun(LRMOE_ALLTOALL_COMPACT_PERF, "out.json",
                                 SHAPE "--dtype fp32");
  checkTimes(document, 5);
  for (double tokens = 24; tokens <= 48; tokens += 24) {
    double masked = numberOf(find(document, tokens, 0.5, "masked"), "bytes");
    double pairwise =
        numberOf(find(document, tokens, 0.5, "pairwise"), "bytes");
    double dedup = numberOf(find(document, tokens, 0.5, "dedup"), "bytes");
    ck_assert(dedup > 0 && dedup <= pairwise);
    ck_assert(pairwise < masked);
    ck_assert(numberOf(find(document, tokens, 1, "pairwise"), "bytes") ==
              numberOf(find(document, tokens, 1, "masked"), "bytes"));
    ck_assert(numberOf(find(document, tokens, 1, "dedup"), "bytes_percent") ==
              100);
  }
  json_decref(document);
}
END_TEST

/* Between two hosts of two ranks a row per token at most, and no more than a
 * row per (token, rank). */
#define NODES                                                        \
  "-g 4 -b 24 -e 24 -n 1 --hidden 32 --ffn 16 --experts 8 --topk 6 " \
  "--retain 1 -J out.json --topology host.xml --copies 2"
START_TEST(compactOfNodes) {
  documentWriteHost();
  json_t *document =
      documentRun(LRMOE_ALLTOALL_COMPACT_PERF, "out.json", NODES);
  double dedup = numberOf(find(document, 24, 1, "dedup"), "node_bytes");
  double node = numberOf(find(document, 24, 1, "node"), "node_bytes");
  ck_assert(numberOf(find(document, 24, 1, "node"), "wrong") == 0);
  ck_assert(node == 4 * 24 * 32 * 2);
  ck_assert(dedup > node && dedup <= 2 * node);
  const json_t *row = find(document, 24, 1, "node");
  double forward = numberOf(row, "forward_node_bytes");
  ck_assert(forward > node && forward <= 2 * node);
  json_decref(document);
  document = documentRun(LRMOE_ALLTOALL_COMPACT_PERF, "out.json",
                         NODES " --forward-wire node");
  row = find(document, 24, 1, "dedup");
  ck_assert(numberOf(row, "forward_node_bytes") == node);
  ck_assert(numberOf(row, "wrong") == 0);
  json_decref(document);
}
END_TEST

/* Every metric keeps as many: the quotas. */
START_TEST(selection) {
  static const char *const ways[] = {"lrm", "grad2", "grad1", "random"};
  json_t *document = documentRun(LRMOE_SELECT_PERF, "out.json", SHAPE);
  checkTimes(document, 4);
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    const json_t *half = find(document, 48, 0.5, ways[i]);
    const json_t *whole = find(document, 48, 1, ways[i]);
    ck_assert(numberOf(half, "pairs") == 3 * 48 * 2);
    ck_assert(numberOf(half, "kept") >= 3 * 48);
    ck_assert(numberOf(half, "kept") <= 3 * 48 + 7); /* rounded up, by expert */
    ck_assert(numberOf(whole, "kept") == 3 * 48 * 2);
    ck_assert(numberOf(half, "bytes") > 0);
  }
  json_decref(document);
}
END_TEST

/* Without replicas the busiest rank's rows are those of its experts. */
START_TEST(experts) {
  json_t *document = documentRun(LRMOE_GROUPED_GEMM_PERF, "out.json",
                                 SHAPE "--policy fixed --gemm reference");
  checkTimes(document, 3);
  double full = numberOf(find(document, 48, 0.5, "full"), "rows");
  double masked = numberOf(find(document, 48, 0.5, "masked"), "rows");
  double half = numberOf(find(document, 48, 0.5, "compact"), "rows");
  ck_assert(masked == full);
  ck_assert(half >= full / 2 && half <= full / 2 + 7);
  ck_assert(numberOf(find(document, 48, 1, "compact"), "rows") == full);
  json_decref(document);
}
END_TEST

START_TEST(wrongOptions) {
  programRefuses(LRMOE_SELECT_PERF, "--hidden 12", "multiples of 8");
  programRefuses(LRMOE_SELECT_PERF, "--retain 1.5", "retain");
  programRefuses(LRMOE_ALLTOALL_COMPACT_PERF, "-b 2 -e 1", "is over -e");
  programRefuses(LRMOE_ALLTOALL_COMPACT_PERF, "--topology none.xml",
                 "none.xml");
  programRefuses(LRMOE_GROUPED_GEMM_PERF, "--load none.csv", "none.csv");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {compact, compactOfNodes, selection, experts,
                                wrongOptions};
  return suiteRunTests("stage", tests, sizeof tests / sizeof *tests, 120);
}
