/* Ranks that a launcher made: see ranks.h.
 *
 * Each runs the body in its own process.  Rank 0 judges by what all say, and
 * its verdict and everybody's results go to all, so that they go on alike. */
#include "tools/common/device.h"
#include "tools/common/ranks_end.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 says before and after a run. */
struct verdict {
  int code;
  struct toolError error;
  lrmoeUniqueId id; /* before */
};

/* Rank 0's verdict becomes everybody's; rank 0 is the one that says why. */
static enum toolExit conclude(const struct toolLaunch *launch,
                              struct verdict *verdict, lrmoeUniqueId *id,
                              struct toolError *error) {
  enum toolExit code = toolLaunchSpread(verdict, sizeof *verdict, error);
  if (code != toolGood && (launch->rank || verdict->code == toolGood))
    return code; /* rank 0 is gone, or rank 0 knows of nothing worse */
  toolLaunchAgreed((enum toolExit)verdict->code);
  *error = verdict->error;
  if (launch->rank) error->text[0] = 0;
  if (id) *id = verdict->id;
  return (enum toolExit)verdict->code;
}

/* Everybody's id of this run; and nobody begins it when somebody is gone. */
static enum toolExit begin(const struct toolLaunch *launch, lrmoeUniqueId *id,
                           struct toolError *error) {
  static int64_t numRuns;
  struct verdict verdict;
  memset(&verdict, 0, sizeof verdict); /* its padding travels too */
  int64_t *runs = calloc((size_t)launch->numRanks, sizeof *runs);
  if (!runs) return toolFail(error, toolRunFailed, "out of memory");
  numRuns++;
  verdict.code =
      toolLaunchGather(&numRuns, sizeof numRuns, runs, &verdict.error);
  free(runs);
  if (!launch->rank && verdict.code == toolGood &&
      lrmoeGetUniqueId(&verdict.id) != lrmoeSuccess)
    verdict.code = toolFail(&verdict.error, toolRunFailed, "no id: %s",
                            lrmoeGetLastError());
  return conclude(launch, &verdict, id, error);
}

/* The body, with the device of this process. */
static enum toolExit runBody(const struct toolLaunch *launch, toolRankBody body,
                             void *user, struct toolRankEnd *end,
                             struct toolError *error) {
  struct toolRank self = {
      .rank = launch->rank, .numRanks = launch->numRanks, .user = user};
  enum toolExit code = begin(launch, &self.id, error);
  if (code != toolGood) return code;
  self.report = calloc((size_t)launch->numRanks, sizeof *self.report);
  if (!self.report) return toolFail(error, toolRunFailed, "out of memory");
  toolDeviceChoose(launch->localRank);
  end->code = body(&self);
  end->report = self.report[launch->rank];
  free(self.report);
  return toolGood;
}

static enum toolExit agree(const struct toolLaunch *launch,
                           const struct toolRankEnd *end,
                           struct toolError *error) {
  struct verdict verdict;
  memset(&verdict, 0, sizeof verdict);
  struct toolRankEnd *ends = calloc((size_t)launch->numRanks, sizeof *ends);
  if (!ends) return toolFail(error, toolRunFailed, "out of memory");
  verdict.code = toolLaunchGather(end, sizeof *end, ends, &verdict.error);
  if (!launch->rank && verdict.code == toolGood)
    verdict.code = toolRanksJudge(ends, launch->numRanks, &verdict.error);
  free(ends);
  return conclude(launch, &verdict, NULL, error);
}

static enum toolExit share(const struct toolLaunch *launch,
                           const struct toolResults *results,
                           struct toolError *error) {
  enum toolExit code = toolGood;
  if (!results->isRoots) {
    size_t each = results->bytes / (size_t)launch->numRanks;
    code =
        toolLaunchGather((char *)results->memory + (size_t)launch->rank * each,
                         each, results->memory, error);
  }
  if (code == toolGood)
    code = toolLaunchSpread(results->memory, results->bytes, error);
  return code;
}

enum toolExit toolRanksLaunched(const struct toolLaunch *launch,
                                toolRankBody body, void *user,
                                const struct toolResults *results,
                                struct toolError *error) {
  struct toolRankEnd end;
  memset(&end, 0, sizeof end); /* its padding travels too */
  enum toolExit code = runBody(launch, body, user, &end, error);
  if (code == toolGood) code = agree(launch, &end, error);
  if (code == toolGood && results) code = share(launch, results, error);
  return code;
}
