/* How ranks end; between ranks.c and ranks_launched.c. */
#ifndef LRMOE_TOOLS_RANKS_END_H
#define LRMOE_TOOLS_RANKS_END_H

#include "tools/common/launch.h"
#include "tools/common/ranks.h"

struct toolRankEnd {
  int signal; /* that it died of, or 0 */
  int wasEnded;
  int code;
  struct toolRankReport report;
};

/* The code of the rank to blame, with error naming it; toolGood: none is. */
enum toolExit toolRanksJudge(const struct toolRankEnd *ends, int numRanks,
                             struct toolError *error);

/* toolRanksRun of a launched process. */
enum toolExit toolRanksLaunched(const struct toolLaunch *launch,
                                toolRankBody body, void *user,
                                const struct toolResults *results,
                                struct toolError *error);

#endif
