/* grouped_gemm_perf: what the experts' backward takes.
 *
 * lrmoeExpertBackward on all pairs (full), on all with zero rows for dropped
 * ones (masked), and on the kept ones alone (compact).  A GEMM per instance has
 * as many rows as the instance has pairs. */
#include "perf/stage.h"

static const struct stageWay ways[] = {
    {"full", lrmoeMetricAll, lrmoeWireDedup},
    {"masked", lrmoeMetricLrm, lrmoeWireMasked},
    {"compact", lrmoeMetricLrm, lrmoeWireDedup}};

static const struct toolColumn columns[] = {STAGE_COLUMNS,
                                            {"rows", "most", 8},
                                            {"gflops", "cpu most", 8},
                                            {"speedup", "full", 7}};

/* A pair takes 6 H F multiply-adds: FC2 (H F) and both halves of SwiGLU's FC1
 * (2 H F), each for data and weights. */
static void cells(const struct stageOptions *options,
                  const struct stageWay *way, const struct stageSum *sum,
                  const struct stageSum *first, struct toolTable *table) {
  (void)way;
  double flops = 12 * (double)options->hidden * (double)options->ffn *
                 (double)sum->mostExecuted;
  toolTableInt(table, sum->mostExecuted);
  toolTableReal(table, 1e-6 * flops / sum->cpuMs.median, 1);
  toolTableReal(table, first->cpuMs.median / sum->cpuMs.median, 2);
}

int main(int argc, char **argv) {
  const struct stageProgram program = {
      .name = "grouped_gemm_perf",
      .summary = "Times the experts' part of a backward.",
      .kind = stageExperts,
      .ways = ways,
      .numWays = sizeof ways / sizeof *ways,
      .columns = columns,
      .numColumns = sizeof columns / sizeof *columns,
      .cells = cells};
  return stageMain(&program, argc, argv);
}
