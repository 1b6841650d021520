/* Faults: the n-th allocation or transport call fails on one rank, for every n;
 * a rank is killed.  The rank itself and its peers get an error, nobody hangs,
 * nothing leaks (the sanitized build looks for leaks). */
#include "base/alloc.h"
#include "collectives/transport.h"
#include "driver.h"
#include "support/suite.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  statusRight = 0,
  statusWrong = 1,
  statusFailed = 3
};

struct sweep {
  struct oracleCase spec;
  int64_t (*failAt)(int64_t n);
  int64_t n;
};

static struct oracleCase tinyCase(void) {
  struct oracleCase c = oracleRandomCase(8);
  c.numRanks = 2;
  c.numTokens[0] = 4;
  c.numTokens[1] = 5;
  c.numExperts = 3;
  c.topk = 2;
  c.hidden = 8;
  c.ffn = 8;
  c.retainPpm = 500000;
  c.isFused = 0;
  c.backward = (lrmoeBackwardConfig_t)LRMOE_BACKWARD_CONFIG_INITIALIZER;
  return c;
}

/* The same with a node of each rank: every row that leaves it by a relay. */
static struct oracleCase relayedCase(void) {
  struct oracleCase c = tinyCase();
  c.ranksPerNode = 1;
  c.forwardWire = lrmoeWireNode;
  c.backward.wire = lrmoeWireNode;
  return c;
}

static int runCase(struct driver *d, const struct testRank *self,
                   const struct sweep *sweep) {
  const struct oracleCase *spec = &sweep->spec;
  if (self->rank == 1) sweep->failAt(sweep->n);
  int failed = driverOpen(d, self, spec) || driverForward(d) ||
               driverBackward(d, &spec->backward, 0) ||
               driverBackward(d, &spec->backward, 1);
  if (self->rank == 1) sweep->failAt(0);
  return failed;
}

/* statusFailed: an error, as it should be; results of good calls are right. */
static int sweepRank(const struct testRank *self) {
  struct sweep *sweep = self->user;
  struct driver d;
  int failed = runCase(&d, self, sweep);
  int isWrong = !failed && (driverCheckSelection(&d) || driverCheckResults(&d));
  if (failed && d.comm) lrmoeCommAbort(d.comm);
  driverClose(&d);
  if (isWrong && self->rank == 1) return statusWrong;
  return failed || isWrong ? statusFailed : statusRight;
}

/* Both ranks with this fault; right or failed, never wrong. */
static void runSweep(struct sweep *sweep, int status[2]) {
  int pids[2];
  testRanksFork(2, sweepRank, sweep, pids);
  for (int r = 0; r < 2; r++) {
    status[r] = testRankWait(pids[r]);
    ck_assert_msg(status[r] == statusRight || status[r] == statusFailed,
                  "fault %lld: rank %d ended with %d", (long long)sweep->n, r,
                  status[r]);
  }
}

/* A rank that fails before it joins is missed only after the time-out. */
static void beQuick(void) {
  testRankQuiet = 1;
  setenv("LRMOE_TIMEOUT_MS", "3000", 1);
}

/* Raises n until the fault is never reached; then both ranks were right. */
static void sweepFaults(struct oracleCase spec, int64_t (*failAt)(int64_t n),
                        int64_t atLeast) {
  struct sweep sweep = {spec, failAt, 1};
  int status[2] = {statusFailed, statusFailed};
  beQuick();
  for (; status[1] != statusRight && sweep.n < 100000; sweep.n++)
    runSweep(&sweep, status);
  testRankQuiet = 0;
  ck_assert_int_eq(status[0], statusRight);
  ck_assert_int_gt(sweep.n, atLeast);
}

/* Of the emulated CUDA runtime, where the backend is cuda. */
void simtFailCall(int64_t n, int error) __attribute__((weak));

static int64_t failCudaAt(int64_t n) {
  simtFailCall(n, 999); /* cudaErrorUnknown */
  return 0;
}

/* Every so many of the runtime's calls.  Few may fail without harm, those that
 * free or wait for what is done. */
static void sweepCuda(struct oracleCase spec) {
  struct sweep sweep = {spec, failCudaAt, 1};
  int numFailed = 0;
  int numRuns = 0;
  beQuick();
  for (; sweep.n < 400; sweep.n += 11, numRuns++) {
    int status[2];
    runSweep(&sweep, status);
    numFailed += status[1] == statusFailed;
  }
  testRankQuiet = 0;
  ck_assert_int_gt(numFailed, numRuns * 3 / 4);
}

START_TEST(everyAllocation) {
  sweepFaults(tinyCase(), lrmoeAllocFailAt, 40);
  sweepFaults(relayedCase(), lrmoeAllocFailAt, 40);
}
END_TEST

START_TEST(everyTransportCall) {
  const char *backend = getenv("LRMOE_BACKEND");
  int isCuda = backend && !strcmp(backend, "cuda");
  for (int i = 0; i < 2; i++) {
    struct oracleCase spec = i ? relayedCase() : tinyCase();
    if (isCuda)
      sweepCuda(spec);
    else
      sweepFaults(spec, lrmoeCpuFailAt, 20);
  }
}
END_TEST

/* Backward for ever; an error ends it. */
static int runForever(const struct testRank *self) {
  const struct oracleCase *spec = self->user;
  struct driver d;
  int failed = driverOpen(&d, self, spec) || driverForward(&d);
  for (int i = 0; !failed; i++)
    failed = driverBackward(&d, &spec->backward, i % 2);
  lrmoeResult_t error = lrmoeSuccess;
  lrmoeCommGetAsyncError(d.comm, &error);
  driverClose(&d);
  return error == lrmoeRemoteError ? statusFailed : statusWrong;
}

START_TEST(rankKilledInBackward) {
  struct oracleCase spec = tinyCase();
  spec.numRanks = 4;
  spec.numTokens[2] = 3;
  spec.numTokens[3] = 6;
  testRankQuiet = 1;
  for (int i = 0; i < 5; i++) {
    int pids[4];
    testRanksFork(4, runForever, &spec, pids);
    usleep((useconds_t)(100000 + 7000 * i));
    kill(pids[i % 4], SIGKILL);
    for (int r = 0; r < 4; r++) {
      int status = testRankWait(pids[r]);
      ck_assert_int_eq(status, r == i % 4 ? 128 + SIGKILL : statusFailed);
    }
  }
  testRankQuiet = 0;
}
END_TEST

int main(void) {
  const TTest *const tests[] = {everyAllocation, everyTransportCall,
                                rankKilledInBackward};
  return suiteRunTests("fault", tests, sizeof tests / sizeof *tests, 500);
}
