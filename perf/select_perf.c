/* select_perf: what it takes to choose the pairs that backward keeps.
 *
 * lrmoeSelect, scores and their exchange included, by each metric. */
#include "perf/stage.h"

static const struct stageWay ways[] = {
    {"lrm", lrmoeMetricLrm, lrmoeWireDedup},
    {"grad2", lrmoeMetricGrad2, lrmoeWireDedup},
    {"grad1", lrmoeMetricGrad1, lrmoeWireDedup},
    {"random", lrmoeMetricRandom, lrmoeWireDedup}};

static const struct toolColumn columns[] = {STAGE_COLUMNS,
                                            {"pairs", "", 8},
                                            {"kept", "", 8},
                                            {"bytes", "sent", 10},
                                            {"pair_ns", "cpu most", 8},
                                            {"relative", "x lrm", 8}};

/* Every rank has the keys of all pairs to go through. */
static void cells(const struct stageOptions *options,
                  const struct stageWay *way, const struct stageSum *sum,
                  const struct stageSum *first, struct toolTable *table) {
  (void)options;
  (void)way;
  toolTableInt(table, sum->pairs);
  toolTableInt(table, sum->kept);
  toolTableInt(table, sum->selectBytes);
  toolTableReal(table, 1e6 * sum->cpuMs.median / (double)sum->pairs, 2);
  toolTableReal(table, sum->cpuMs.median / first->cpuMs.median, 2);
}

int main(int argc, char **argv) {
  const struct stageProgram program = {
      .name = "select_perf",
      .summary = "Times the selection of a backward's pairs.",
      .kind = stageSelect,
      .ways = ways,
      .numWays = sizeof ways / sizeof *ways,
      .columns = columns,
      .numColumns = sizeof columns / sizeof *columns,
      .cells = cells};
  return stageMain(&program, argc, argv);
}
