/* Weight gradients beside the return: the bits of a backward without overlap,
 * whatever the schedule; what is enqueued before anybody waits for them; and
 * who waits where there is no return.  Ranks are threads with an emulated
 * device each, over NCCL's stand-in. */
#include "collectives/layer.h"
#include "driver.h"
#include "support/simt/simt.h"
#include "support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  numRanks = 4,
  numSteps = 2
};

static struct oracleCase fourRanks(void) {
  struct oracleCase c = oraclePlainCase();
  c.numRanks = numRanks;
  for (int r = 0; r < numRanks; r++)
    c.numTokens[r] = 6 + 3 * r;
  c.numTokens[1] = 0;
  c.numExperts = 2 * numRanks;
  c.gatherRanks = 64;
  return c;
}

/* Results of all steps, then the weight gradients. */
struct left {
  char *bytes;
  int64_t count;
};

static void append(struct left *left, const void *data, int64_t count) {
  left->bytes = realloc(left->bytes, (size_t)(left->count + count + 1));
  if (!left->bytes) abort();
  if (count) memcpy(left->bytes + left->count, data, (size_t)count);
  left->count += count;
}

static void appendResults(struct left *left, const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t numTokens = spec->numTokens[d->self->rank];
  mirrorPull(&d->mirrors, d->dx);
  mirrorPull(&d->mirrors, d->dWeights);
  append(left, d->dx, numTokens * d->layer->rowBytes);
  append(left, d->dWeights, numTokens * spec->topk * (int64_t)sizeof(float));
}

static void appendGradients(struct left *left, const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t element = spec->hidden * (int64_t)sizeof(float);
  driverPullGradients(d);
  for (int i = 0; i < d->numLocal; i++) {
    append(left, d->dw1[i], oracleFc1Rows(spec) * element);
    append(left, d->dw2[i], spec->ffn * element);
  }
}

/* ---- The same bits ---- */

/* Up to the experts, without a wait that the library does not need. */
static int beginBackward(const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  const void *x = driverDevice(d, data->x);
  const void *g = driverDevice(d, data->g);
  if (spec->isFused) {
    RANK_OK(d->self, lrmoeSelectPackSend(d->step, x, g, &spec->backward, NULL));
  } else {
    RANK_OK(d->self, lrmoeSelect(d->step, g, &spec->backward, NULL));
    RANK_OK(d->self, lrmoeAllToAllCompact(d->step, x, g, NULL));
  }
  RANK_OK(d->self, lrmoeExpertBackward(d->step, NULL));
  return 0;
}

static int endBackward(const struct driver *d) {
  RANK_OK(d->self, lrmoeReturn(d->step, driverDevice(d, d->dx),
                               driverDevice(d, d->dWeights), NULL));
  return 0;
}

/* Backwards of two steps in turn: what one puts may still be read by the
 * other's experts. */
static int runSteps(struct driver *steps, struct left *left) {
  int failed = 0;
  driverClearGradients(&steps[0]);
  for (int i = 0; i < 2 * numSteps && !failed; i++)
    failed = beginBackward(&steps[i % numSteps]) ||
             endBackward(&steps[i % numSteps]);
  if (failed) return 1;
  RANK_OK(steps->self, lrmoeReplicaReduce(steps[0].layer, NULL));
  for (int i = 0; i < numSteps; i++)
    appendResults(left, &steps[i]);
  appendGradients(left, &steps[0]);
  return 0;
}

/* One layer, with a body between its forwards and its end. */
typedef int (*layerBody)(struct driver *steps, struct left *left);

static int runLayer(const struct testRank *self, const struct oracleCase *spec,
                    layerBody body, struct left *left) {
  struct driver steps[numSteps];
  struct oracleCase other = *spec;
  other.dataSeed = spec->seed + 1;
  int failed = driverOpen(&steps[0], self, spec);
  driverJoin(&steps[1], &steps[0], &other);
  for (int i = 0; i < numSteps && !failed; i++)
    failed = driverForward(&steps[i]);
  failed = failed || body(steps, left);
  driverClose(&steps[1]);
  driverClose(&steps[0]);
  return failed;
}

/* Two cases that must leave the same. */
struct comparison {
  struct oracleCase specs[2];
  layerBody body;
  struct left left[2][numRanks];
  int side;
};

static int runSide(const struct testRank *self) {
  struct comparison *comparison = self->user;
  int side = comparison->side;
  return runLayer(self, &comparison->specs[side], comparison->body,
                  &comparison->left[side][self->rank]);
}

static void runSideOf(struct comparison *comparison, int side) {
  comparison->side = side;
  ck_assert_int_eq(testRanksThreads(numRanks, runSide, comparison), 0);
}

static void assertSame(struct comparison *comparison) {
  for (int r = 0; r < numRanks; r++) {
    struct left *first = &comparison->left[0][r];
    struct left *second = &comparison->left[1][r];
    ck_assert_int_eq(first->count, second->count);
    ck_assert_int_gt(first->count, 0);
    ck_assert(!memcmp(first->bytes, second->bytes, (size_t)first->count));
    free(first->bytes);
    free(second->bytes);
  }
}

/* The case, which may pack x, with overlap; and with neither. */
static void compareOverlap(const struct oracleCase *spec, layerBody body) {
  struct comparison comparison = {{*spec, *spec}, .body = body};
  comparison.specs[0].packsX = 0;
  comparison.specs[1].overlapsReturn = 1;
  runSideOf(&comparison, 0);
  runSideOf(&comparison, 1);
  assertSame(&comparison);
}

/* Without scores there is no round B1: nothing but the meetings keeps ranks
 * from putting early. */
START_TEST(sameBitsAsWithout) {
  struct oracleCase c = fourRanks();
  c.isFused = _i % 2;
  if (_i / 2 % 2) c.backward.metric = lrmoeMetricAll;
  c.packsX = _i / 2 % 3 == 0;
  if (_i / 4 % 3 == 1) c.numSlots = 1;
  if (_i / 4 % 3 == 2) c.savedState = lrmoeSavedNone;
  simtSetOrder(_i / 12 ? simtOrderLifo : simtOrderRandom, (uint64_t)_i + 1);
  compareOverlap(&c, runSteps);
}
END_TEST

START_TEST(sameBitsOfAllRouterGradients) {
  struct oracleCase c = fourRanks();
  c.isFused = _i % 2;
  c.routerGrad = (lrmoeRouterGrad_t)(1 + _i / 2);
  compareOverlap(&c, runSteps);
}
END_TEST

/* ---- x in the order of the GEMMs ---- */

static int64_t bytesGathered(void) {
  struct simtCounters counters;
  simtGetCounters("gatherTilesKernel", &counters);
  simtResetCounters();
  return counters.bytesStored;
}

/* By no batch; forward's rows of x, and rows of g, are all the same. */
START_TEST(packedRowsAreNotGathered) {
  struct oracleCase c = fourRanks();
  c.isFused = 1;
  c.numSlots = _i;
  struct comparison comparison = {{c, c}, .body = runSteps};
  comparison.specs[1].packsX = 1;
  simtResetCounters();
  runSideOf(&comparison, 0);
  int64_t gathered = bytesGathered();
  runSideOf(&comparison, 1);
  int64_t packed = bytesGathered();
  assertSame(&comparison);
  ck_assert_int_lt(packed, gathered);
}
END_TEST

/* ---- Where there is no return ---- */

/* The step goes before the return, and its gradients are read. */
static int runAndLeave(struct driver *steps, struct left *left) {
  driverClearGradients(&steps[0]);
  if (beginBackward(&steps[0])) return 1;
  RANK_OK(steps->self, lrmoeStepDestroy(steps[0].step));
  steps[0].step = NULL;
  appendGradients(left, &steps[0]);
  return 0;
}

START_TEST(aStepThatGoesIsWaitedFor) {
  struct oracleCase c = fourRanks();
  simtSetOrder(simtOrderLifo, 0);
  c.isFused = _i;
  compareOverlap(&c, runAndLeave);
}
END_TEST

/* Behind a communicator that has failed nobody waits. */
static int runAndAbort(const struct testRank *self) {
  struct driver d;
  if (driverOpen(&d, self, self->user) || driverForward(&d) ||
      beginBackward(&d))
    return 1;
  RANK_OK(self, lrmoeCommAbort(d.comm));
  RANK_TRUE(self, lrmoeStepDestroy(d.step) == lrmoeRemoteError);
  d.step = NULL;
  RANK_TRUE(self, d.layer->numSteps == 0);
  driverClose(&d);
  return 0;
}

START_TEST(aFailureIsNotWaitedFor) {
  struct oracleCase c = fourRanks();
  c.numRanks = 1;
  c.overlapsReturn = 1;
  ck_assert_int_eq(testRanksThreads(1, runAndAbort, &c), 0);
}
END_TEST

/* Gradients of replicas go home before the return. */
static int runAndReduce(struct driver *steps, struct left *left) {
  driverClearGradients(&steps[0]);
  if (beginBackward(&steps[0])) return 1;
  RANK_OK(steps->self, lrmoeReplicaReduce(steps[0].layer, NULL));
  appendGradients(left, &steps[0]);
  return endBackward(&steps[0]);
}

START_TEST(gradientsGoHomeWhole) {
  struct oracleCase c = fourRanks();
  simtSetOrder(simtOrderLifo, 0);
  c.isFused = _i;
  c.numSlots = 1;
  compareOverlap(&c, runAndReduce);
}
END_TEST

/* ---- What is enqueued when ---- */

/* Calls of this rank's backward, in order. */
static _Thread_local const struct lrmoeBackend *device;
static _Thread_local const struct lrmoeTransport *wire;
static _Thread_local char trace[64];
static _Thread_local size_t numTraced;

static void note(char what) {
  if (numTraced + 1 < sizeof trace) trace[numTraced++] = what;
  trace[numTraced] = 0;
}

static lrmoeResult_t expertBackwardSplit(struct lrmoeExpertContext *context,
                                         int32_t numInstances,
                                         const struct lrmoeExpertBackward *args,
                                         void *event, lrmoeStream_t stream) {
  note('e');
  return device->expertBackwardSplit(context, numInstances, args, event,
                                     stream);
}

static lrmoeResult_t putSums(const struct lrmoePutSums *args,
                             lrmoeStream_t stream) {
  note('p');
  return device->putSums(args, stream);
}

static lrmoeResult_t gatherSum(const struct lrmoeGatherSum *args,
                               lrmoeStream_t stream) {
  note('s');
  return device->gatherSum(args, stream);
}

static lrmoeResult_t groupEnd(void) {
  note('m');
  return wire->groupEnd();
}

static lrmoeResult_t streamWait(lrmoeStream_t stream, void *event) {
  note('w');
  return device->streamWait(stream, event);
}

static int traceBackward(struct driver *d) {
  const char *expected = d->oracle->spec.isFused ? "epmsw" : "esmsw";
  numTraced = 0;
  if (beginBackward(d)) return 1;
  const char *from = strchr(trace, 'e');
  RANK_TRUE(d->self, from != NULL);
  if (endBackward(d)) return 1;
  if (strcmp(from, expected))
    fprintf(stderr, "rank %d: %s, expected %s\n", d->self->rank, from,
            expected);
  return strcmp(from, expected) != 0;
}

static int runTraced(const struct testRank *self) {
  struct driver d;
  struct driverLayer options = {NULL, 1, 0};
  RANK_OK(self, lrmoeCommInitRank(numRanks, &self->id, self->rank, NULL,
                                  &options.comm));
  RANK_OK(self, lrmoeCommNeedBackend(options.comm));
  device = options.comm->backend;
  wire = options.comm->transport;
  struct lrmoeBackend traced = *device;
  struct lrmoeTransport tracedWire = *wire;
  traced.expertBackwardSplit = expertBackwardSplit;
  traced.putSums = putSums;
  traced.gatherSum = gatherSum;
  traced.streamWait = streamWait;
  tracedWire.groupEnd = groupEnd;
  options.comm->backend = &traced;
  options.comm->transport = &tracedWire;
  int failed = driverOpenLayer(&d, self, self->user, &options) ||
               driverForward(&d) || traceBackward(&d);
  driverClose(&d);
  lrmoeCommDestroy(options.comm);
  return failed;
}

/* Experts, the sums of executors (put, or added and sent), messages, the sums
 * of sources, and only then the wait. */
START_TEST(theReturnIsNotBehindWeights) {
  struct oracleCase c = fourRanks();
  c.isFused = _i;
  c.overlapsReturn = 1;
  ck_assert_int_eq(testRanksThreads(numRanks, runTraced, &c), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("overlap");
  suiteAddTest(suite, 300, sameBitsAsWithout, 24);
  suiteAddTest(suite, 300, sameBitsOfAllRouterGradients, 4);
  suiteAddTest(suite, 300, packedRowsAreNotGathered, 2);
  suiteAddTest(suite, 300, aStepThatGoesIsWaitedFor, 2);
  suiteAddTest(suite, 300, aFailureIsNotWaitedFor, 1);
  suiteAddTest(suite, 300, gradientsGoHomeWhole, 2);
  suiteAddTest(suite, 300, theReturnIsNotBehindWeights, 2);
  return suiteRun(suite);
}
