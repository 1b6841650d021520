/* Calibration (lrmoeTopologyCalibrate): which patterns are probed, and which
 * samples a fit is made of.
 *
 * Per link class the fit `message` is made of single messages between up to
 * four pairs of ranks that have such a link, spread over all that do.  With
 * more than one rank there are gathers and scatters at up to two ranks, and the
 * ring and the all-to-all, which make one fit together: they differ in the
 * number of messages, which tells what a message costs from what a byte costs.
 *
 * All ranks have the same samples and fit them alike; rank 0's figures are
 * then given to all, so that ranks whose C libraries or compilers differ in a
 * rounding still agree to the bit. */
#include "base/alloc.h"
#include "base/config.h"
#include "base/hash.h"
#include "collectives/probe.h"
#include "topo/calibration.h"

enum {
  pairsPerClass = 4,
  numRoots = 2,
  maxKinds = pairsPerClass * lrmoeNumLinkClasses + 2 * numRoots + 2,
  maxSizes = 32
};

/* What is probed, and which fit each probe belongs to. */
struct agenda {
  struct lrmoeProbeKind kinds[maxKinds];
  struct {
    lrmoePattern_t pattern;
    lrmoeLinkClass_t linkClass;
  } fits[maxKinds];
  int32_t numKinds;
};

static lrmoeResult_t readConfig(const lrmoeCalibrationConfig_t *config,
                                lrmoeCalibrationConfig_t *known) {
  if (config)
    LRMOE_CHECK(lrmoeConfigRead("lrmoeCalibrationConfig_t", config,
                                sizeof *known, known));
  LRMOE_REQUIRE(known->minBytes >= 64 && known->minBytes <= known->maxBytes &&
                    known->maxBytes <= (1 << 30),
                "minBytes is %lld and maxBytes %lld, not 64..2^30 in order",
                (long long)known->minBytes, (long long)known->maxBytes);
  LRMOE_REQUIRE(known->budgetMs >= 1 && known->budgetMs <= 3600000,
                "budgetMs is %lld, not 1..3600000", (long long)known->budgetMs);
  LRMOE_REQUIRE(known->numRounds >= 1 && known->numRounds <= 1000,
                "numRounds is %d, not 1..1000", known->numRounds);
  return lrmoeSuccess;
}

/* ---- What is probed ----------------------------------------------------- */

static void add(struct agenda *agenda, lrmoePattern_t pattern,
                lrmoeLinkClass_t linkClass, struct lrmoeProbeKind kind) {
  agenda->fits[agenda->numKinds].pattern = pattern;
  agenda->fits[agenda->numKinds].linkClass = linkClass;
  agenda->kinds[agenda->numKinds++] = kind;
}

/* Calls of the class and the place of each ordered pair of ranks. */
static int64_t countPairs(const struct lrmoeTopology *topology,
                          lrmoeLinkClass_t linkClass) {
  int64_t count = 0;
  for (int32_t from = 0; from < topology->numRanks; from++)
    for (int32_t to = 0; to < topology->numRanks; to++)
      count += lrmoeTopologyLink(topology, from, to).linkClass == linkClass;
  return count;
}

/* The pairs whose places among those of the class are evenly spread. */
static void addPairs(const struct lrmoeTopology *topology,
                     lrmoeLinkClass_t linkClass, struct agenda *agenda) {
  int64_t numPairs = countPairs(topology, linkClass);
  int64_t wanted = numPairs < pairsPerClass ? numPairs : pairsPerClass;
  int64_t seen = 0, taken = 0;
  for (int32_t from = 0; from < topology->numRanks && taken < wanted; from++)
    for (int32_t to = 0; to < topology->numRanks && taken < wanted; to++) {
      if (lrmoeTopologyLink(topology, from, to).linkClass != linkClass)
        continue;
      if (seen++ != taken * numPairs / wanted) continue;
      taken++;
      add(agenda, lrmoePatternMessage, linkClass,
          (struct lrmoeProbeKind){lrmoeProbeOne, from, to});
    }
}

/* The farthest class between a rank and the others, or (rank -1) any two. */
static lrmoeLinkClass_t farthest(const struct lrmoeTopology *topology,
                                 int32_t rank) {
  lrmoeLinkClass_t most = lrmoeLinkSelf;
  for (int32_t from = 0; from < topology->numRanks; from++)
    for (int32_t to = 0; to < topology->numRanks; to++) {
      if (rank >= 0 && from != rank && to != rank) continue;
      lrmoeLinkClass_t linkClass =
          lrmoeTopologyLink(topology, from, to).linkClass;
      if (linkClass > most) most = linkClass;
    }
  return most;
}

static void plan(const struct lrmoeTopology *topology, struct agenda *agenda) {
  int32_t numRanks = topology->numRanks;
  agenda->numKinds = 0;
  for (int c = 0; c < lrmoeLinkNone; c++)
    addPairs(topology, (lrmoeLinkClass_t)c, agenda);
  if (numRanks < 2) return;
  for (int i = 0; i < numRoots; i++) {
    int root = i * (numRanks - 1) / (numRoots - 1);
    lrmoeLinkClass_t linkClass = farthest(topology, root);
    add(agenda, lrmoePatternGather, linkClass,
        (struct lrmoeProbeKind){lrmoeProbeGather, 0, root});
    add(agenda, lrmoePatternScatter, linkClass,
        (struct lrmoeProbeKind){lrmoeProbeScatter, root, 0});
  }
  lrmoeLinkClass_t linkClass = farthest(topology, -1);
  add(agenda, lrmoePatternAll, linkClass,
      (struct lrmoeProbeKind){lrmoeProbeRing, 0, 0});
  add(agenda, lrmoePatternAll, linkClass,
      (struct lrmoeProbeKind){lrmoeProbeAll, 0, 0});
}

/* ---- Fits --------------------------------------------------------------- */

static int isOf(const struct agenda *agenda, int32_t kind,
                const struct lrmoeFit *fit) {
  return agenda->fits[kind].pattern == fit->pattern &&
         agenda->fits[kind].linkClass == fit->linkClass;
}

/* Fits the samples of all kinds that belong to `fit`; gathered has room. */
static lrmoeResult_t fitOne(const struct agenda *agenda,
                            const struct lrmoeProbeSamples *samples,
                            struct lrmoeSample *gathered,
                            struct lrmoeFit *fit) {
  int64_t count = 0;
  for (int32_t k = 0; k < agenda->numKinds; k++)
    for (int64_t i = 0; i < samples->numPerKind && isOf(agenda, k, fit); i++)
      gathered[count++] = samples->list[k * samples->maxPerKind + i];
  return lrmoeFitLine(gathered, count, &fit->line);
}

static lrmoeResult_t fitAll(const struct agenda *agenda,
                            const struct lrmoeProbeSamples *samples,
                            struct lrmoeFit *fits, int32_t *numFits) {
  struct lrmoeSample *gathered = NULL;
  LRMOE_CHECK(
      LRMOE_ALLOCATE(agenda->numKinds * samples->numPerKind, &gathered));
  lrmoeResult_t result = lrmoeSuccess;
  *numFits = 0;
  for (int32_t k = 0; k < agenda->numKinds && result == lrmoeSuccess; k++) {
    struct lrmoeFit fit = {
        agenda->fits[k].pattern, agenda->fits[k].linkClass, {0}};
    int32_t first = 0;
    while (!isOf(agenda, first, &fit))
      first++;
    if (first < k) continue; /* done */
    result = fitOne(agenda, samples, gathered, &fit);
    if (result == lrmoeSuccess) fits[(*numFits)++] = fit;
  }
  lrmoeFree(gathered);
  return result;
}

/* Rank 0's figures on every rank: the largest of them and zeros. */
static lrmoeResult_t shareFits(struct lrmoeProbe *probe, struct lrmoeFit *fits,
                               int32_t numFits) {
  for (int32_t i = 0; i < numFits; i++) {
    struct lrmoeLine *line = &fits[i].line;
    int64_t words[] = {line->latencyNs, line->bytesPerSecond,
                       line->medianErrorPpm, line->worstErrorPpm};
    for (int w = 0; w < 4 && probe->comm->rank; w++)
      words[w] = 0;
    LRMOE_CHECK(lrmoeProbeMax(probe, words, 4));
    *line = (struct lrmoeLine){words[0], words[1], words[2], words[3],
                               line->numSamples};
  }
  return lrmoeSuccess;
}

/* ---- All ---------------------------------------------------------------- */

struct calibration {
  struct lrmoeProbe probe;
  struct lrmoeProbeConfig config;
  struct lrmoeTopology *topology;
  struct agenda agenda;
  struct lrmoeProbeSamples samples;
  struct lrmoeFit fits[maxKinds];
  int32_t numFits;
};

/* Ranks that would probe different things must not begin: where they agree
 * the largest and the least hash are one. */
static lrmoeResult_t agree(struct calibration *calibration, bool *isSame) {
  struct {
    int64_t minBytes, maxBytes, budgetNs, numRounds;
    uint64_t machineKey;
  } words = {calibration->config.minBytes, calibration->config.maxBytes,
             calibration->config.budgetNs, calibration->config.numRounds,
             calibration->topology->machineKey};
  uint64_t hash = lrmoeHash(0, &words, sizeof words);
  hash = lrmoeHash(hash, calibration->agenda.kinds,
                   (size_t)calibration->agenda.numKinds *
                       sizeof *calibration->agenda.kinds);
  int64_t own = (int64_t)(hash >> 1);
  int64_t most[] = {own, -own};
  LRMOE_CHECK(
      lrmoeProbeOpen(&calibration->probe, calibration->config.maxBytes));
  LRMOE_CHECK(lrmoeProbeMax(&calibration->probe, most, 2));
  *isSame = most[0] == own && most[1] == -own;
  return lrmoeSuccess;
}

static lrmoeResult_t measure(struct calibration *calibration) {
  const struct agenda *agenda = &calibration->agenda;
  struct lrmoeProbeSamples *samples = &calibration->samples;
  samples->maxPerKind =
      lrmoeProbeNumSizes(&calibration->config) * calibration->config.numRounds;
  LRMOE_CHECK(
      LRMOE_ALLOCATE(agenda->numKinds * samples->maxPerKind, &samples->list));
  LRMOE_CHECK(lrmoeProbeRun(&calibration->probe, &calibration->config,
                            agenda->kinds, agenda->numKinds, samples));
  LRMOE_CHECK(
      fitAll(agenda, samples, calibration->fits, &calibration->numFits));
  return shareFits(&calibration->probe, calibration->fits,
                   calibration->numFits);
}

/* A difference is seen by all ranks: the communicator stays whole. */
static lrmoeResult_t calibrate(struct calibration *calibration) {
  struct lrmoeComm *comm = calibration->probe.comm;
  bool isSame = false;
  LRMOE_CHECK(lrmoeCommSettle(comm, agree(calibration, &isSame)));
  if (!isSame)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "lrmoeTopologyCalibrate: the ranks' topologies or "
                      "configs differ");
  LRMOE_CHECK(lrmoeCommSettle(comm, measure(calibration)));
  return lrmoeTopologyApplyFits(calibration->topology, calibration->fits,
                                calibration->numFits);
}

static void fillConfig(const lrmoeCalibrationConfig_t *known,
                       struct lrmoeProbeConfig *config) {
  config->minBytes = known->minBytes;
  config->maxBytes = known->maxBytes;
  config->budgetNs = known->budgetMs * 1000000;
  config->numRounds = known->numRounds;
  config->progress = known->progress;
  config->user = known->user;
}

lrmoeResult_t lrmoeTopologyCalibrate(lrmoeTopology_t topology, lrmoeComm_t comm,
                                     const lrmoeCalibrationConfig_t *config,
                                     lrmoeStream_t stream) {
  lrmoeCalibrationConfig_t known = LRMOE_CALIBRATION_CONFIG_INITIALIZER;
  LRMOE_REQUIRE(topology && comm, "%s is NULL", topology ? "comm" : "topology");
  LRMOE_REQUIRE(topology->numRanks == comm->numRanks,
                "the topology has %d ranks, the communicator %d",
                topology->numRanks, comm->numRanks);
  LRMOE_REQUIRE(!stream || comm->transport->hasStreams,
                "a CPU communicator has no streams: pass NULL");
  LRMOE_CHECK(readConfig(config, &known));
  LRMOE_CHECK(lrmoeCommNeedBackend(comm));
  struct calibration calibration = {.probe = {.comm = comm, .stream = stream},
                                    .topology = topology};
  fillConfig(&known, &calibration.config);
  plan(topology, &calibration.agenda);
  lrmoeResult_t result = calibrate(&calibration);
  lrmoeProbeClose(&calibration.probe);
  lrmoeFree(calibration.samples.list);
  return result;
}
