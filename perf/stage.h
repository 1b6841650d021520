/* Benchmarks of one stage of an MoE layer's backward: what their files share.
 *
 * alltoall_compact_perf, select_perf and grouped_gemm_perf run one layer on
 * ranks that are processes of this machine.  Every way to run the stage makes
 * the whole backward in every round, interleaved with the others, and the
 * stage's part is timed; which pairs are kept, and dX, are compared before. */
#ifndef LRMOE_PERF_STAGE_H
#define LRMOE_PERF_STAGE_H

#include "lrmoe.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/ranks.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"
#include "tools/common/workload.h"

enum {
  stageMaxRounds = 200,
  stageMaxWays = 8
};

enum stageKind {
  stageSelect,  /* lrmoeSelect */
  stageCompact, /* lrmoeAllToAllCompact */
  stageExperts  /* lrmoeExpertBackward */
};

/* A way to run the backward.  The first one is what others are compared with;
 * those that keep the same pairs (`metric`) must give the same dX. */
struct stageWay {
  const char *name;
  lrmoeMetric_t metric;
  lrmoeWire_t wire;
};

struct stageOptions {
  int64_t numRanks;
  int64_t numTokens;
  int64_t numRounds;
  int64_t numExperts;
  int64_t topk;
  int64_t hidden;
  int64_t ffn;
  int64_t numSlots;
  uint64_t seed;
  double retain;
  lrmoeDataType_t type;
  lrmoePolicy_t policy;
  const char *gemm;
  const char *topology; /* file of the machine to take it for, or NULL */
  int64_t copies;       /* hosts like it */
  lrmoeWire_t forwardWire;
};

/* One way on one rank. */
struct stageFigures {
  double wallMs[stageMaxRounds];
  double cpuMs[stageMaxRounds];
  int64_t pairs;    /* of this rank's tokens */
  int64_t kept;     /* of them */
  int64_t executed; /* by this rank's experts: pairs, and kept ones */
  int64_t executedKept;
  int64_t selectBytes; /* sent to other ranks */
  int64_t rowBytes;
  int64_t nodeBytes; /* of them, rows of g to other nodes */
  int64_t xNodeBytes;
  int64_t forwardNodeBytes; /* rows of x in forward */
  int64_t numWrong; /* quotas that are not met, and rows of dX that differ */
};

struct stageRankResult {
  struct stageFigures ways[stageMaxWays];
};

/* What ranks get, and where they write: shared memory. */
struct stageRun {
  struct stageOptions options;
  struct toolWorkload workload;
  enum stageKind kind;
  const struct stageWay *ways;
  int numWays;
  struct stageRankResult *results;
};

/* toolRankBody: the whole of one rank; user is struct stageRun. */
enum toolExit stageRankMain(const struct toolRank *self);

/* ---- Programs ------------------------------------------------------------ */

/* All ranks together.  Time is of the slowest rank of a round. */
struct stageSum {
  struct toolStats wallMs; /* over rounds */
  struct toolStats cpuMs;
  int64_t pairs;
  int64_t kept;
  int64_t mostExecuted; /* by one rank, of this way's pairs */
  int64_t selectBytes;
  int64_t rowBytes;
  int64_t nodeBytes;
  int64_t xNodeBytes;
  int64_t forwardNodeBytes;
  int64_t numWrong;
};

/* A program: its ways, and the figures that follow tokens, retain and way. */
struct stageProgram {
  const char *name;
  const char *summary;
  enum stageKind kind;
  const struct stageWay *ways;
  int numWays;
  const struct toolColumn *columns; /* all: those of stageColumns first */
  int numColumns;
  /* The cells after the common ones; sums[0] is the first way's. */
  void (*cells)(const struct stageOptions *options, const struct stageWay *way,
                const struct stageSum *sum, const struct stageSum *first,
                struct toolTable *table);
};

/* The columns that every program begins with. */
#define STAGE_COLUMNS                                                          \
  {"tokens", "per rank", 8}, {"retain", "", 6}, {"way", "", 9},                \
      {"time_ms", "slowest", 9}, {"spread", "+- %", 6}, {"cpu_ms", "most", 8}, \
  {                                                                            \
    "wrong", "", 6                                                             \
  }

int stageMain(const struct stageProgram *program, int argc, char **argv);

#endif
