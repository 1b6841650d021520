/* Timing patterns of messages: see probe.h.
 *
 * A probe is a group of sends and receives, repeated so often that the clock
 * and the start of the ranks do not matter, from a barrier on.  Its time is
 * that of the rank that took longest; an all-reduce tells it to all, so that
 * every decision (how often to repeat, when to stop) is the same on every rank.
 *
 * All kinds and sizes are timed once before any is timed again: what disturbs
 * the machine for a while then disturbs one round of each and not all rounds of
 * one.  The first round learns how many repetitions a probe needs, and which
 * sizes fit the budget.
 *
 * Messages walk through the buffers, which are as long as the largest of them,
 * so that those on a CPU come out of memory and not out of a cache that the
 * repetition before has filled: rows of a layer are seldom there twice.  All
 * pages are touched by all ranks before. */
#include "collectives/probe.h"

#include "base/alloc.h"
#include "base/log.h"
#include "collectives/step.h"

enum {
  probeNs = 2000000, /* a probe is repeated for so long */
  maxRepeats = 256,
  unitBytes = 64 /* messages are multiples of it */
};

/* ---- Memory and agreement ----------------------------------------------- */

lrmoeResult_t lrmoeProbeOpen(struct lrmoeProbe *probe, int64_t maxBytes) {
  const struct lrmoeTransport *transport = probe->comm->transport;
  size_t bytes =
      (size_t)(maxBytes + (int64_t)unitBytes * probe->comm->numRanks);
  probe->room = (int64_t)bytes;
  probe->cursor = 0;
  LRMOE_CHECK(transport->memAlloc((void **)&probe->words,
                                  lrmoeProbeMaxWords * sizeof(int64_t)));
  LRMOE_CHECK(transport->memAlloc((void **)&probe->send, bytes));
  return transport->memAlloc((void **)&probe->recv, bytes);
}

void lrmoeProbeClose(struct lrmoeProbe *probe) {
  const struct lrmoeTransport *transport = probe->comm->transport;
  if (probe->recv) transport->memFree(probe->recv);
  if (probe->send) transport->memFree(probe->send);
  if (probe->words) transport->memFree(probe->words);
  probe->recv = probe->send = NULL;
  probe->words = NULL;
}

lrmoeResult_t lrmoeProbeMax(struct lrmoeProbe *probe, int64_t *values,
                            int count) {
  struct lrmoeComm *comm = probe->comm;
  const struct lrmoeBackend *backend = comm->backend;
  size_t bytes = (size_t)count * sizeof *values;
  LRMOE_RUN(backend, copy, probe->words, values, bytes, lrmoeCopyToDevice,
            probe->stream);
  LRMOE_CHECK(comm->transport->allReduce(probe->words, probe->words,
                                         (size_t)count, lrmoeInt64, lrmoeMax,
                                         comm->nccl, probe->stream));
  LRMOE_RUN(backend, copy, values, probe->words, bytes, lrmoeCopyToHost,
            probe->stream);
  return lrmoeCommSynchronize(comm, probe->stream);
}

/* ---- One pattern -------------------------------------------------------- */

static lrmoeResult_t post(const struct lrmoeProbe *probe, int from, int to,
                          int64_t bytes, int64_t slot) {
  const struct lrmoeComm *comm = probe->comm;
  const struct lrmoeTransport *transport = comm->transport;
  int64_t offset = probe->cursor + slot * bytes;
  if (from == comm->rank)
    LRMOE_CHECK(transport->send(probe->send + offset, (size_t)bytes, lrmoeUint8,
                                to, comm->nccl, probe->stream));
  if (to == comm->rank)
    LRMOE_CHECK(transport->recv(probe->recv + offset, (size_t)bytes, lrmoeUint8,
                                from, comm->nccl, probe->stream));
  return lrmoeSuccess;
}

/* Moves on by the bytes that a rank's side has; there must be room for as many
 * behind. */
static void walk(struct lrmoeProbe *probe, int64_t sideBytes) {
  probe->cursor += sideBytes;
  if (probe->cursor + sideBytes > probe->room) probe->cursor = 0;
}

/* Every rank's sends and receives with the rank `step` away, so that no rank
 * is everybody's first target. */
static lrmoeResult_t postShift(const struct lrmoeProbe *probe, int step,
                               int64_t bytes, int64_t slot) {
  int numRanks = probe->comm->numRanks, rank = probe->comm->rank;
  LRMOE_CHECK(post(probe, rank, (rank + step) % numRanks, bytes, slot));
  return post(probe, (rank - step + numRanks) % numRanks, rank, bytes, slot);
}

static lrmoeResult_t postKind(const struct lrmoeProbe *probe,
                              const struct lrmoeProbeKind *kind,
                              int64_t bytes) {
  int numRanks = probe->comm->numRanks;
  if (kind->shape == lrmoeProbeOne)
    return post(probe, kind->from, kind->to, bytes, 0);
  if (kind->shape == lrmoeProbeRing) return postShift(probe, 1, bytes, 0);
  for (int i = 1; i < numRanks; i++) {
    if (kind->shape == lrmoeProbeAll)
      LRMOE_CHECK(postShift(probe, i, bytes, i - 1));
    else if (kind->shape == lrmoeProbeGather)
      LRMOE_CHECK(
          post(probe, (kind->to + i) % numRanks, kind->to, bytes, i - 1));
    else
      LRMOE_CHECK(
          post(probe, kind->from, (kind->from + i) % numRanks, bytes, i - 1));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t runKind(const struct lrmoeProbe *probe,
                             const struct lrmoeProbeKind *kind, int64_t bytes) {
  LRMOE_CHECK(probe->comm->transport->groupStart());
  lrmoeResult_t posted = postKind(probe, kind, bytes);
  lrmoeResult_t ended = probe->comm->transport->groupEnd();
  return posted == lrmoeSuccess ? ended : posted;
}

/* Messages of a pattern: what a rank's side has, and all together. */
static void countMessages(const struct lrmoeProbeKind *kind, int64_t numRanks,
                          int64_t *side, int64_t *total) {
  int isOne = kind->shape == lrmoeProbeOne,
      isRing = kind->shape == lrmoeProbeRing;
  *side = isOne || isRing ? 1 : numRanks - 1;
  *total = isOne                          ? 1
           : isRing                       ? numRanks
           : kind->shape == lrmoeProbeAll ? numRanks * (numRanks - 1)
                                          : numRanks - 1;
}

/* ---- Timing ------------------------------------------------------------- */

struct timing {
  int64_t ns;        /* of one repetition, on the slowest rank */
  int64_t elapsedNs; /* since the start of the run, on the slowest rank */
};

/* A barrier, then the repetitions, then the longest time. */
static lrmoeResult_t timeKind(struct lrmoeProbe *probe,
                              const struct lrmoeProbeKind *kind, int64_t bytes,
                              int64_t repeats, int64_t startNs,
                              struct timing *timing) {
  int64_t words[2] = {0}, side = 0, total = 0;
  countMessages(kind, probe->comm->numRanks, &side, &total);
  LRMOE_CHECK(lrmoeProbeMax(probe, words, 1));
  int64_t begin = lrmoeNowNs();
  for (int64_t i = 0; i < repeats; i++) {
    walk(probe, side * bytes);
    LRMOE_CHECK(runKind(probe, kind, bytes));
  }
  LRMOE_CHECK(lrmoeCommSynchronize(probe->comm, probe->stream));
  int64_t end = lrmoeNowNs();
  words[0] = (end - begin) / repeats;
  words[1] = end - startNs;
  LRMOE_CHECK(lrmoeProbeMax(probe, words, 2));
  *timing = (struct timing){words[0] > 0 ? words[0] : 1, words[1]};
  return lrmoeSuccess;
}

static int64_t repeatsFor(int64_t ns) {
  int64_t repeats = probeNs / ns;
  return repeats < 1 ? 1 : repeats > maxRepeats ? maxRepeats : repeats;
}

int64_t lrmoeProbeNumSizes(const struct lrmoeProbeConfig *config) {
  int64_t numSizes = 0;
  for (int64_t bytes = config->minBytes; bytes <= config->maxBytes; bytes *= 4)
    numSizes++;
  return numSizes;
}

/* ---- The sweep ---------------------------------------------------------- */

struct sweep {
  struct lrmoeProbe *probe;
  const struct lrmoeProbeConfig *config;
  const struct lrmoeProbeKind *kinds;
  int32_t numKinds;
  struct lrmoeProbeSamples *samples;
  int32_t *repeats; /* [numSizes, numKinds], from the first round */
  int64_t numSizes; /* that the budget allows */
  int64_t round;
  int64_t startNs;
  int64_t elapsedNs;
};

static lrmoeResult_t probeOne(struct sweep *sweep, int64_t size, int32_t k) {
  const struct lrmoeProbeKind *kind = &sweep->kinds[k];
  int64_t side = 0, total = 0;
  countMessages(kind, sweep->probe->comm->numRanks, &side, &total);
  int64_t bytes = (sweep->config->minBytes << 2 * size) / side;
  bytes = (bytes + unitBytes - 1) / unitBytes * unitBytes;
  int32_t *repeats = &sweep->repeats[size * sweep->numKinds + k];
  struct timing timing = {0};
  if (!*repeats) { /* also warms up */
    LRMOE_CHECK(
        timeKind(sweep->probe, kind, bytes, 1, sweep->startNs, &timing));
    *repeats = (int32_t)repeatsFor(timing.ns);
  }
  LRMOE_CHECK(
      timeKind(sweep->probe, kind, bytes, *repeats, sweep->startNs, &timing));
  sweep->elapsedNs = timing.elapsedNs;
  struct lrmoeProbeSamples *samples = sweep->samples;
  samples->list[k * samples->maxPerKind + samples->numPerKind] =
      (struct lrmoeSample){total, total * bytes, timing.ns};
  lrmoeLog(lrmoeLogTrace, "probe %d %d to %d: %lld messages of %lld B: %lld ns",
           (int)kind->shape, kind->from, kind->to, (long long)total,
           (long long)bytes, (long long)timing.ns);
  return lrmoeSuccess;
}

static void report(const struct sweep *sweep, int64_t size, int32_t kind) {
  if (!sweep->config->progress) return;
  int64_t perRound = sweep->numSizes * sweep->numKinds;
  int64_t done = sweep->round * perRound + size * sweep->numKinds + kind + 1;
  int64_t donePpm = done * 1000000 / (perRound * sweep->config->numRounds);
  int64_t spentPpm = (int64_t)((double)sweep->elapsedNs * 1e6 /
                               (double)sweep->config->budgetNs);
  if (donePpm < spentPpm) donePpm = spentPpm;
  sweep->config->progress(sweep->config->user,
                          donePpm < 1000000 ? donePpm : 1000000);
}

/* Whether that part of the budget is spent. */
static int isLate(const struct sweep *sweep, int64_t part) {
  return sweep->elapsedNs >= sweep->config->budgetNs / part;
}

/* Every rank reads all of every rank's memory once, in a quarter of the budget
 * at most. */
static lrmoeResult_t touch(struct sweep *sweep) {
  struct lrmoeProbe *probe = sweep->probe;
  int64_t bytes = probe->room, numRanks = probe->comm->numRanks;
  probe->cursor = 0;
  for (int step = 0; step < numRanks && !isLate(sweep, 4); step++) {
    LRMOE_CHECK(probe->comm->transport->groupStart());
    lrmoeResult_t posted = postShift(probe, step, bytes, 0);
    LRMOE_CHECK(probe->comm->transport->groupEnd());
    LRMOE_CHECK(posted);
    LRMOE_CHECK(lrmoeCommSynchronize(probe->comm, probe->stream));
    sweep->elapsedNs = lrmoeNowNs() - sweep->startNs;
    LRMOE_CHECK(lrmoeProbeMax(probe, &sweep->elapsedNs, 1));
  }
  return lrmoeSuccess;
}

/* Later rounds do the sizes that the first one had time for. */
static void limitSizes(struct sweep *sweep, int64_t numSizes) {
  long long most = sweep->config->minBytes << 2 * (numSizes - 1);
  if (numSizes < sweep->numSizes && !sweep->probe->comm->rank)
    lrmoeLog(lrmoeLogWarn,
             "calibration had no time for more than %lld B at once: what is "
             "larger is extrapolated",
             most);
  sweep->numSizes = numSizes;
}

static lrmoeResult_t runSize(struct sweep *sweep, int64_t size) {
  for (int32_t k = 0; k < sweep->numKinds; k++) {
    LRMOE_CHECK(probeOne(sweep, size, k));
    report(sweep, size, k);
  }
  sweep->samples->numPerKind++;
  return lrmoeSuccess;
}

static lrmoeResult_t runRound(struct sweep *sweep) {
  int64_t size = 0;
  while (size < sweep->numSizes) {
    LRMOE_CHECK(runSize(sweep, size++));
    /* The other half is for a second look at each. */
    if (isLate(sweep, sweep->round ? 1 : 2)) break;
  }
  if (!sweep->round) limitSizes(sweep, size);
  sweep->round++;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeProbeRun(struct lrmoeProbe *probe,
                            const struct lrmoeProbeConfig *config,
                            const struct lrmoeProbeKind *kinds,
                            int32_t numKinds,
                            struct lrmoeProbeSamples *samples) {
  struct sweep sweep = {.probe = probe,
                        .config = config,
                        .kinds = kinds,
                        .numKinds = numKinds,
                        .samples = samples,
                        .numSizes = lrmoeProbeNumSizes(config),
                        .startNs = lrmoeNowNs()};
  LRMOE_CHECK(LRMOE_ALLOCATE(sweep.numSizes * numKinds, &sweep.repeats));
  samples->numPerKind = 0;
  lrmoeResult_t result = touch(&sweep);
  while (result == lrmoeSuccess && sweep.round < config->numRounds &&
         (!sweep.round || !isLate(&sweep, 1)))
    result = runRound(&sweep);
  lrmoeFree(sweep.repeats);
  if (result == lrmoeSuccess && config->progress)
    config->progress(config->user, 1000000);
  return result;
}
