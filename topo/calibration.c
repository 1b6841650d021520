/* Calibrating a topology: see calibration.h.
 *
 * Ranks of one machine.  A message is copied by a core, the receiver's, and
 * there may be fewer cores than ranks: what is shared is not a link but the
 * cores, and the memory behind them.  The lines of `gather` say how long each
 * rank would take for what it receives, were it alone: L[r].  The line of `all`
 * says how long all of it takes when every rank has an equal part: A.  So
 * P = sum(L) / A ranks can copy at once.  The system gives each rank that still
 * has work the same share, so while k ranks have work each advances at
 * min(1, P / k): with L in ascending order the time is
 *     sum over i of (L[i] - L[i-1]) / min(1, P / (G - i))
 * which is A where the ranks have equal parts and L[r] where one has all.  It
 * is at least what the line of `scatter` says of each sender and that of
 * `message` of each message.  What a rank copies to itself counts as received.
 * On several NUMA nodes patterns have the class of the farthest link, messages
 * that of their own. */
#include "topo/calibration.h"

#include "base/alloc.h"
#include "base/config.h"
#include "topo/path.h"

#include <stdlib.h>
#include <string.h>

const char *lrmoePatternName(lrmoePattern_t pattern) {
  static const char *const names[lrmoeNumPatterns] = {"message", "gather",
                                                      "scatter", "all"};
  return (unsigned)pattern < lrmoeNumPatterns ? names[pattern] : NULL;
}

const char *lrmoeLinkClassName(lrmoeLinkClass_t linkClass) {
  static const char *const names[lrmoeNumLinkClasses] = {
      "self", "memory",      "device",  "direct", "switched",
      "pci",  "host bridge", "sockets", "nic",    "none"};
  return (unsigned)linkClass < lrmoeNumLinkClasses ? names[linkClass] : NULL;
}

/* ---- Applying ----------------------------------------------------------- */

static int isBefore(const struct lrmoeFit *left, const struct lrmoeFit *right) {
  if (left->pattern != right->pattern) return left->pattern < right->pattern;
  return left->linkClass < right->linkClass;
}

/* Puts a fit into its place among the sorted first `count`. */
static lrmoeResult_t insert(struct lrmoeFit *fits, int32_t count,
                            const struct lrmoeFit *fit) {
  int32_t at = count;
  while (at > 0 && isBefore(fit, &fits[at - 1]))
    at--;
  LRMOE_REQUIRE(at == 0 || isBefore(&fits[at - 1], fit),
                "two fits of pattern %s, class %s",
                lrmoePatternName(fit->pattern),
                lrmoeLinkClassName(fit->linkClass));
  memmove(fits + at + 1, fits + at, (size_t)(count - at) * sizeof *fits);
  fits[at] = *fit;
  return lrmoeSuccess;
}

static void calibrateClass(struct lrmoeTopology *topology,
                           const struct lrmoeFit *fit) {
  lrmoeLink_t link = {fit->linkClass, 0, fit->line.latencyNs,
                      fit->line.bytesPerSecond};
  struct lrmoeClassFigure figure = {fit->line.latencyNs,
                                    fit->line.bytesPerSecond};
  if (fit->linkClass == lrmoeLinkSelf) topology->self = link;
  if (fit->linkClass == lrmoeLinkMemory) topology->memory = link;
  lrmoeTopologyCalibrateClass(topology, fit->linkClass, figure);
}

/* In place of what was measured before. */
static void apply(struct lrmoeTopology *topology, struct lrmoeFit *sorted,
                  int32_t numFits, int64_t *room) {
  lrmoeFree(topology->fits);
  topology->fits = sorted;
  topology->numFits = numFits;
  topology->calibrated = true;
  memset(topology->classes, 0, sizeof topology->classes);
  memset(topology->scales, 0, sizeof topology->scales);
  memset(topology->crowded, 0, sizeof topology->crowded);
  for (int32_t i = 0; i < numFits; i++)
    if (sorted[i].pattern == lrmoePatternMessage)
      calibrateClass(topology, &sorted[i]);
  lrmoeTopologyCrowdEdges(topology, room);
}

lrmoeResult_t lrmoeTopologyApplyFits(struct lrmoeTopology *topology,
                                     const struct lrmoeFit *fits,
                                     int32_t numFits) {
  struct lrmoeFit *sorted = NULL;
  int64_t *room = NULL;
  lrmoeResult_t result = LRMOE_ALLOCATE(numFits + 1, &sorted);
  if (result == lrmoeSuccess)
    result = LRMOE_ALLOCATE(2 * (int64_t)lrmoeNumEdges(topology), &room);
  for (int32_t i = 0; i < numFits && result == lrmoeSuccess; i++)
    result = insert(sorted, i, &fits[i]);
  if (result == lrmoeSuccess)
    apply(topology, sorted, numFits, room);
  else
    lrmoeFree(sorted);
  lrmoeFree(room);
  return result;
}

const struct lrmoeFit *
lrmoeTopologyFindFit(const struct lrmoeTopology *topology,
                     lrmoePattern_t pattern, lrmoeLinkClass_t linkClass) {
  for (int32_t i = 0; i < topology->numFits; i++)
    if (topology->fits[i].pattern == pattern &&
        topology->fits[i].linkClass == linkClass)
      return &topology->fits[i];
  return NULL;
}

lrmoeResult_t lrmoeTopologyGetFit(lrmoeTopology_t topology, int index,
                                  lrmoeTopologyFit_t *fit) {
  LRMOE_REQUIRE(topology, "topology is NULL");
  LRMOE_REQUIRE(index >= 0 && index < topology->numFits, "fit %d of %d", index,
                topology->numFits);
  const struct lrmoeFit *found = &topology->fits[index];
  lrmoeTopologyFit_t full = LRMOE_TOPOLOGY_FIT_INITIALIZER;
  full.pattern = found->pattern;
  full.linkClass = found->linkClass;
  full.latencyNs = found->line.latencyNs;
  full.bytesPerSecond = found->line.bytesPerSecond;
  full.medianErrorPpm = found->line.medianErrorPpm;
  full.worstErrorPpm = found->line.worstErrorPpm;
  full.numSamples = found->line.numSamples;
  return lrmoeViewWrite("lrmoeTopologyFit_t", &full, sizeof full, fit);
}

/* ---- Ranks of one machine ----------------------------------------------- */

__extension__ typedef unsigned __int128 wide;

/* Messages and bytes that one line is asked about. */
struct load {
  int64_t messages;
  int64_t bytes;
};

struct crowd {
  const struct lrmoeTopology *topology;
  const struct lrmoeLine *lines[lrmoeNumPatterns];       /* but of messages */
  const struct lrmoeLine *messages[lrmoeNumLinkClasses]; /* NULL: not probed */
  int32_t numRanks;
  struct load *received; /* [numRanks] */
  struct load *sent;     /* [numRanks] */
  int64_t *alone;        /* [numRanks] L, ascending */
  struct load total;
  int64_t ns;
};

static const struct lrmoeLine *lineOf(const struct lrmoeTopology *topology,
                                      lrmoePattern_t pattern,
                                      lrmoeLinkClass_t linkClass) {
  const struct lrmoeFit *fit =
      lrmoeTopologyFindFit(topology, pattern, linkClass);
  return fit ? &fit->line : NULL;
}

/* The class of what all ranks did together: the farthest that there is. */
static lrmoeLinkClass_t classOfAll(const struct lrmoeTopology *topology) {
  for (int32_t i = 0; i < topology->numFits; i++)
    if (topology->fits[i].pattern == lrmoePatternAll)
      return topology->fits[i].linkClass;
  return lrmoeLinkNone;
}

static bool findLines(const struct lrmoeTopology *topology,
                      struct crowd *crowd) {
  lrmoeLinkClass_t linkClass = classOfAll(topology);
  bool found = true;
  for (int p = lrmoePatternGather; p < lrmoeNumPatterns; p++) {
    crowd->lines[p] = lineOf(topology, (lrmoePattern_t)p, linkClass);
    found &= crowd->lines[p] != NULL;
  }
  for (int c = 0; c < lrmoeNumLinkClasses; c++)
    crowd->messages[c] =
        lineOf(topology, lrmoePatternMessage, (lrmoeLinkClass_t)c);
  return found && crowd->messages[lrmoeLinkSelf] && crowd->messages[linkClass];
}

/* Ranks are processes that copy, not GPUs. */
static bool isOneMachine(const struct lrmoeTopology *topology) {
  if (!topology->places) return true;
  int32_t device = topology->places[0].device;
  return topology->numHosts == 1 &&
         topology->machine.nodes[device].kind == lrmoeNodeNuma;
}

bool lrmoeTopologyHasCrowd(const struct lrmoeTopology *topology) {
  struct crowd crowd = {.topology = topology};
  return isOneMachine(topology) && findLines(topology, &crowd);
}

static void addLoad(struct load *load, int64_t bytes) {
  load->messages++;
  load->bytes =
      bytes > INT64_MAX - load->bytes ? INT64_MAX : load->bytes + bytes;
}

static void take(struct crowd *crowd, const struct lrmoeLine *line,
                 const struct load *load) {
  if (!line || !load->messages) return;
  int64_t ns = lrmoeLineNs(line, load->messages, load->bytes);
  if (ns > crowd->ns) crowd->ns = ns;
}

/* times[at] down the heap, whose largest comes first. */
static void sink(int64_t *times, int32_t at, int32_t count) {
  int64_t time = times[at];
  for (int32_t child; (child = 2 * at + 1) < count; at = child) {
    if (child + 1 < count && times[child + 1] > times[child]) child++;
    if (times[child] <= time) break;
    times[at] = times[child];
  }
  times[at] = time;
}

/* In place: qsort may allocate, and making a plan comes through here. */
static void sortTimes(int64_t *times, int32_t count) {
  for (int32_t at = count / 2 - 1; at >= 0; at--)
    sink(times, at, count);
  for (int32_t last = count - 1; last > 0; last--) {
    int64_t largest = times[0];
    times[0] = times[last];
    times[last] = largest;
    sink(times, 0, last);
  }
}

/* numBusy / P, what ranks that share the cores are slower than alone, in units
 * of 2^-20, at least 1. */
static uint64_t slownessOf(int64_t numBusy, int64_t together, wide sum) {
  const uint64_t one = 1 << 20, most = (uint64_t)1 << 60;
  wide slowness = (wide)numBusy * (wide)together * one / sum;
  if (slowness < one) return one;
  return slowness > most ? most : (uint64_t)slowness;
}

/* The time that ranks need which share the cores: see above. */
static void takeShared(struct crowd *crowd) {
  wide sum = 0, ns = 0;
  for (int32_t r = 0; r < crowd->numRanks; r++) {
    const struct load *load = &crowd->received[r];
    crowd->alone[r] = lrmoeLineNs(crowd->lines[lrmoePatternGather],
                                  load->messages, load->bytes);
    sum += (wide)crowd->alone[r];
  }
  if (!sum) return;
  int64_t together = lrmoeLineNs(crowd->lines[lrmoePatternAll],
                                 crowd->total.messages, crowd->total.bytes);
  sortTimes(crowd->alone, crowd->numRanks);
  for (int32_t r = 0; r < crowd->numRanks; r++) {
    int64_t more = crowd->alone[r] - (r ? crowd->alone[r - 1] : 0);
    ns += (wide)more * slownessOf(crowd->numRanks - r, together, sum) >> 20;
  }
  if (ns > INT64_MAX) ns = INT64_MAX;
  if ((int64_t)ns > crowd->ns) crowd->ns = (int64_t)ns;
}

static lrmoeResult_t addTraffic(struct crowd *crowd, const int64_t *bytes) {
  int32_t numRanks = crowd->numRanks;
  for (int64_t i = 0; i < (int64_t)numRanks * numRanks; i++) {
    int64_t from = i / numRanks, to = i % numRanks;
    LRMOE_REQUIRE(bytes[i] >= 0, "%lld B from rank %lld to rank %lld",
                  (long long)bytes[i], (long long)from, (long long)to);
    if (!bytes[i]) continue;
    lrmoeLinkClass_t linkClass =
        lrmoePathWalk(crowd->topology, (int32_t)from, (int32_t)to, NULL);
    take(crowd, crowd->messages[linkClass], &(struct load){1, bytes[i]});
    addLoad(&crowd->total, bytes[i]);
    addLoad(&crowd->received[to], bytes[i]);
    if (from != to) addLoad(&crowd->sent[from], bytes[i]);
  }
  for (int32_t r = 0; r < numRanks; r++)
    take(crowd, crowd->lines[lrmoePatternScatter], &crowd->sent[r]);
  takeShared(crowd);
  return lrmoeSuccess;
}

/* Two loads of each rank, and its time alone. */
int64_t lrmoeTopologyCrowdRoom(const struct lrmoeTopology *topology) {
  const int64_t perLoad = sizeof(struct load) / sizeof(int64_t);
  return (2 * perLoad + 1) * topology->numRanks;
}

lrmoeResult_t lrmoeTopologyCrowdNs(const struct lrmoeTopology *topology,
                                   const int64_t *bytes, int64_t *room,
                                   int64_t *ns) {
  size_t numRanks = (size_t)topology->numRanks;
  struct crowd crowd = {.topology = topology,
                        .numRanks = topology->numRanks,
                        .received = (struct load *)(void *)room};
  if (!findLines(topology, &crowd))
    return LRMOE_FAIL(lrmoeInternalError,
                      "the topology knows no crowd of ranks");
  crowd.sent = crowd.received + numRanks;
  crowd.alone = (int64_t *)(void *)(crowd.sent + numRanks);
  memset(crowd.received, 0, 2 * numRanks * sizeof *crowd.received);
  LRMOE_CHECK(addTraffic(&crowd, bytes));
  *ns = crowd.ns;
  return lrmoeSuccess;
}
