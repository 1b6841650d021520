/* Times an all-to-allv three ways in every round: see alltoallv.h.
 *
 * ours    a group of lrmoeSend and lrmoeRecv, out of lrmoeMemAlloc memory
 * ordered the same, in the order of lrmoeCommGetPeers, with a topology only
 * rival   MPI_Alltoallv, out of ordinary memory
 * limit   one process per core, pinned, copies its share of all the bytes
 *         with memcpy, from as much memory into as much memory as the others
 *
 * All receive into the same ordinary memory.  The order of the ways changes
 * from round to round.  A time is that between two barriers, as rank 0 sees
 * it, over the number of calls. */
#include "perf/alltoallv.h"
#include "tools/common/planning.h"
#include "tools/common/stats.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct bench {
  const struct toolRank *self;
  const struct alltoallvOptions *options;
  lrmoeComm_t comm;
  char *ourSend;
  char *rivalSend;
  char *recv;
  char *limitFrom; /* of the ranks that copy, else NULL */
  char *limitTo;
  int64_t limitRoom;
  int numCopiers;
  cpu_set_t cores;
  struct exchange exchange;
};

static char *touchedMemory(int64_t bytes) {
  char *memory = malloc((size_t)bytes);
  if (memory) memset(memory, 1, (size_t)bytes);
  return memory;
}

static enum toolExit failCall(const struct bench *bench,
                              struct toolError *error) {
  return toolFail(error, toolRunFailed, "rank %d: %s", bench->self->rank,
                  lrmoeGetLastError());
}

static lrmoeResult_t join(struct bench *bench, int64_t sendRoom) {
  const struct toolRank *self = bench->self;
  lrmoeResult_t result = lrmoeCommInitRank(self->numRanks, &self->id,
                                           self->rank, NULL, &bench->comm);
  if (result != lrmoeSuccess) return result;
  return lrmoeMemAlloc((size_t)sendRoom, (void **)&bench->ourSend);
}

static lrmoeResult_t setTopology(const struct bench *bench) {
  lrmoeTopology_t topology = NULL;
  lrmoeResult_t result =
      toolTopologyOpen(bench->options->topology, bench->options->copies,
                       bench->self->numRanks, &topology);
  if (result == lrmoeSuccess)
    result = lrmoeCommSetTopology(bench->comm, topology);
  lrmoeTopologyDestroy(topology);
  return result;
}

static enum toolExit benchMake(struct bench *bench, struct toolError *error) {
  int numRanks = bench->self->numRanks;
  int64_t maxBytes = bench->options->maxBytes;
  int64_t sendRoom = maxBytes + (int64_t)8 * numRanks;
  int64_t recvRoom = exchangeMaxRecv(numRanks, maxBytes) + sendRoom;
  if (join(bench, sendRoom) != lrmoeSuccess) return failCall(bench, error);
  if (bench->options->topology && setTopology(bench) != lrmoeSuccess)
    return failCall(bench, error);
  sched_getaffinity(0, sizeof bench->cores, &bench->cores);
  bench->numCopiers = CPU_COUNT(&bench->cores);
  if (bench->numCopiers > numRanks) bench->numCopiers = numRanks;
  bench->limitRoom = sendRoom * numRanks / bench->numCopiers + 1;
  int isCopier = bench->self->rank < bench->numCopiers;
  bench->recv = touchedMemory(recvRoom);
  if (rivalIsInside()) bench->rivalSend = touchedMemory(sendRoom);
  if (isCopier) bench->limitFrom = touchedMemory(bench->limitRoom);
  if (isCopier) bench->limitTo = touchedMemory(bench->limitRoom);
  int lacks = !bench->recv || (rivalIsInside() && !bench->rivalSend) ||
              (isCopier && (!bench->limitFrom || !bench->limitTo));
  return lacks ? toolFail(error, toolRunFailed, "rank %d: out of memory",
                          bench->self->rank)
               : toolGood;
}

static void benchFree(struct bench *bench) {
  lrmoeCommDestroy(bench->comm);
  lrmoeMemFree(bench->ourSend);
  free(bench->rivalSend);
  free(bench->recv);
  free(bench->limitFrom);
  free(bench->limitTo);
}

/* ---- The ways ---------------------------------------------------------- */

static lrmoeResult_t barrier(const struct bench *bench) {
  char own = 0, all[toolMaxRanks];
  return lrmoeAllGather(&own, all, 1, lrmoeInt8, bench->comm, NULL);
}

static lrmoeResult_t post(const struct bench *bench, int target, int source) {
  const struct exchange *x = &bench->exchange;
  lrmoeResult_t result = lrmoeSend(bench->ourSend + x->sendOffsets[target],
                                   (size_t)x->sendCounts[target], lrmoeInt8,
                                   target, bench->comm, NULL);
  if (result != lrmoeSuccess) return result;
  return lrmoeRecv(bench->recv + x->recvOffsets[source],
                   (size_t)x->recvCounts[source], lrmoeInt8, source,
                   bench->comm, NULL);
}

static lrmoeResult_t runOurs(const struct bench *bench, int isOrdered) {
  lrmoeResult_t result = lrmoeGroupStart();
  for (int i = 0; i < bench->self->numRanks && result == lrmoeSuccess; i++) {
    int target = (bench->self->rank + i) % bench->self->numRanks;
    int source = target;
    if (isOrdered) result = lrmoeCommGetPeers(bench->comm, i, &target, &source);
    if (result == lrmoeSuccess) result = post(bench, target, source);
  }
  lrmoeResult_t ended = lrmoeGroupEnd();
  return result == lrmoeSuccess ? ended : result;
}

static void runRival(const struct bench *bench) {
  const struct exchange *x = &bench->exchange;
  rivalAlltoallv(bench->rivalSend, x->sendCounts, x->sendOffsets, bench->recv,
                 x->recvCounts, x->recvOffsets);
}

static void runLimit(const struct bench *bench) {
  int64_t total = bench->exchange.bytes * bench->self->numRanks;
  if (bench->limitFrom)
    memcpy(bench->limitTo, bench->limitFrom,
           (size_t)(total / bench->numCopiers));
}

/* The rank-th core of those this process may use; all of them again. */
static void pin(const struct bench *bench, int isPinned) {
  cpu_set_t one;
  CPU_ZERO(&one);
  int place = 0;
  for (int core = 0; core < CPU_SETSIZE; core++)
    if (CPU_ISSET(core, &bench->cores) && place++ == bench->self->rank)
      CPU_SET(core, &one);
  if (bench->limitFrom)
    sched_setaffinity(0, sizeof one, isPinned ? &one : &bench->cores);
}

static lrmoeResult_t run(const struct bench *bench, enum way way) {
  if (way == wayOurs || way == wayOrdered)
    return runOurs(bench, way == wayOrdered);
  if (way == wayRival)
    runRival(bench);
  else
    runLimit(bench);
  return lrmoeSuccess;
}

/* ---- One size ---------------------------------------------------------- */

static lrmoeResult_t timeCalls(const struct bench *bench, enum way way,
                               int64_t numCalls, double *seconds) {
  lrmoeResult_t result = barrier(bench);
  int64_t start = toolWallNs();
  for (int64_t i = 0; i < numCalls && result == lrmoeSuccess; i++)
    result = run(bench, way);
  if (result == lrmoeSuccess) result = barrier(bench);
  *seconds = (double)(toolWallNs() - start) * 1e-9 / (double)numCalls;
  return result;
}

/* Times one way with fresh data and adds the wrong words. */
static lrmoeResult_t timeWay(const struct bench *bench, enum way way,
                             int64_t round, int64_t numCalls,
                             struct timing *timing) {
  const struct exchange *x = &bench->exchange;
  double seconds = 0;
  if (way == wayRival && !rivalIsInside()) return lrmoeSuccess;
  if (way == wayOrdered && !bench->options->topology) return lrmoeSuccess;
  char *send = way == wayRival ? bench->rivalSend : bench->ourSend;
  int64_t serial = round * numWays + (int64_t)way;
  if (way != wayLimit) {
    exchangeFill(x, serial, send);
    memset(bench->recv, 0, (size_t)x->recvBytes);
  } else {
    pin(bench, 1);
  }
  lrmoeResult_t result = timeCalls(bench, way, numCalls, &seconds);
  if (way != wayLimit)
    timing->numWrong += exchangeCountWrong(x, serial, bench->recv);
  else
    pin(bench, 0);
  if (round >= 0) timing->seconds[way][round] = seconds;
  return result;
}

/* Calls per timing: rank 0's estimate for everybody. */
static lrmoeResult_t countCalls(const struct bench *bench, int64_t *numCalls) {
  double seconds = 0;
  *numCalls = bench->options->numIterations;
  if (*numCalls) return lrmoeSuccess;
  lrmoeResult_t result = timeCalls(bench, wayOurs, 3, &seconds);
  int64_t wanted = (int64_t)(5e-3 / (seconds > 1e-9 ? seconds : 1e-9));
  *numCalls = wanted < 1 ? 1 : wanted > 500 ? 500 : wanted;
  if (result != lrmoeSuccess) return result;
  return lrmoeBroadcast(numCalls, numCalls, 1, lrmoeInt64, 0, bench->comm,
                        NULL);
}

static lrmoeResult_t measureSize(const struct bench *bench,
                                 struct timing *timing) {
  const struct alltoallvOptions *options = bench->options;
  int64_t numCalls = 0;
  lrmoeResult_t result = countCalls(bench, &numCalls);
  for (int64_t round = -options->numWarmups; round < options->numRounds;
       round++)
    for (int i = 0; i < numWays && result == lrmoeSuccess; i++) {
      int64_t way = (i + round + options->numWarmups) % numWays;
      result = timeWay(bench, (enum way)way, round, numCalls, timing);
    }
  if (result != lrmoeSuccess) return result;
  return lrmoeAllReduce(&timing->numWrong, &timing->numWrong, 1, lrmoeInt64,
                        lrmoeSum, bench->comm, NULL);
}

static enum toolExit measureSizes(struct bench *bench, timingReport report,
                                  struct toolError *error) {
  const struct alltoallvOptions *options = bench->options;
  const struct toolRank *self = bench->self;
  int64_t numWrong = 0,
          least = (int64_t)8 * self->numRanks; /* 8 bytes a pair */
  int64_t first = options->minBytes;
  while (first < least && first * options->factor <= options->maxBytes)
    first *= options->factor;
  for (int64_t bytes = first; bytes <= options->maxBytes;
       bytes *= options->factor) {
    struct timing timing = {0};
    enum toolExit code = exchangeMake(self->rank, self->numRanks, bytes,
                                      &bench->exchange, error);
    if (code != toolGood) return code;
    timing.bytes = bench->exchange.bytes;
    lrmoeResult_t result = measureSize(bench, &timing);
    exchangeFree(&bench->exchange);
    if (result != lrmoeSuccess) return failCall(bench, error);
    numWrong += timing.numWrong;
    if (self->rank == 0) report(self, &timing);
  }
  if (!numWrong) return toolGood;
  return toolFail(error, toolWrongData, "%lld words are wrong",
                  (long long)numWrong);
}

enum toolExit alltoallvMeasure(const struct toolRank *self,
                               const struct alltoallvOptions *options,
                               timingReport report, struct toolError *error) {
  struct bench bench = {.self = self, .options = options};
  enum toolExit code = benchMake(&bench, error);
  if (code == toolGood) code = measureSizes(&bench, report, error);
  benchFree(&bench);
  return code;
}
