/* replica_perf: what its files share. */
#ifndef LRMOE_PERF_REPLICA_H
#define LRMOE_PERF_REPLICA_H

#include "lrmoe.h"
#include "tools/common/ranks.h"
#include "tools/common/workload.h"

enum {
  replicaMaxRounds = 200,
  replicaNumSteps = 2
};

struct replicaOptions {
  int64_t numRanks;
  int64_t numTokens;
  int64_t numRounds;
  int64_t numExperts;
  int64_t topk;
  int64_t hidden;
  int64_t ffn;
  int64_t numSlots;
  int64_t seed;
  double retain;
  lrmoeDataType_t type;
};

/* Of one rank; rounds of the same measurement are over the slowest rank. */
struct replicaResult {
  double comeMs[replicaMaxRounds];
  double standMs[replicaMaxRounds];
  double reduceMs[replicaMaxRounds];
  double moveMs[replicaMaxRounds];
  double stayMs[replicaMaxRounds];
  int64_t numReplicas; /* of both plans, on all ranks */
  int64_t numMoved;    /* to this rank, one backward */
};

/* What ranks get, and where they write: shared memory. */
struct replicaRun {
  struct replicaOptions options;
  struct toolWorkload loads[replicaNumSteps];
  struct replicaResult *results;
};

/* toolRankBody: the whole of one rank; user is struct replicaRun. */
enum toolExit replicaRankMain(const struct toolRank *self);

#endif
