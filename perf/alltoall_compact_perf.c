/* alltoall_compact_perf: what it takes to bring gradient rows to the experts.
 *
 * lrmoeAllToAllCompact with all pairs (full), with a zero row for each dropped
 * pair (masked), with a row per kept pair (pairwise), with a row per (token,
 * rank) that has one (dedup, the library's own way), and with one per (token,
 * node) between the nodes of --topology (node).  What crosses between nodes is
 * counted: of g and x there, and in forward, which is of --forward-wire. */
#include "perf/stage.h"

static const struct stageWay ways[] = {
    {"full", lrmoeMetricAll, lrmoeWireDedup},
    {"masked", lrmoeMetricLrm, lrmoeWireMasked},
    {"pairwise", lrmoeMetricLrm, lrmoeWirePairwise},
    {"dedup", lrmoeMetricLrm, lrmoeWireDedup},
    {"node", lrmoeMetricLrm, lrmoeWireNode}};

static const struct toolColumn columns[] = {STAGE_COLUMNS,
                                            {"bytes", "sent", 10},
                                            {"bytes_percent", "of full", 13},
                                            {"node_bytes", "between", 10},
                                            {"x_node_bytes", "between", 12},
                                            {"forward_node_bytes", "in F1", 18},
                                            {"bandwidth", "GB/s", 9},
                                            {"speedup", "full", 7}};

/* Bytes over the slowest rank's time; of one rank alone nothing is sent. */
static void cells(const struct stageOptions *options,
                  const struct stageWay *way, const struct stageSum *sum,
                  const struct stageSum *first, struct toolTable *table) {
  (void)options;
  (void)way;
  double bytes = (double)sum->rowBytes;
  toolTableInt(table, sum->rowBytes);
  toolTableReal(table, 100 * bytes / (double)first->rowBytes, 1);
  toolTableInt(table, sum->nodeBytes);
  toolTableInt(table, sum->xNodeBytes);
  toolTableInt(table, sum->forwardNodeBytes);
  toolTableReal(table, 1e-6 * bytes / sum->wallMs.median, 3);
  toolTableReal(table, first->wallMs.median / sum->wallMs.median, 2);
}

int main(int argc, char **argv) {
  const struct stageProgram program = {
      .name = "alltoall_compact_perf",
      .summary = "Times the compact all-to-all of a backward.",
      .kind = stageCompact,
      .ways = ways,
      .numWays = sizeof ways / sizeof *ways,
      .columns = columns,
      .numColumns = sizeof columns / sizeof *columns,
      .cells = cells};
  return stageMain(&program, argc, argv);
}
