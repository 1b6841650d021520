/* Limits under a window, as sums.
 *
 * T_comm is the longest of many times, each a sum over the rows that go a way:
 * what a rank copies, what an edge carries.  There are too many to list, and
 * few that decide, so they are learned: the topology says which limit decides
 * the time of a plan that takes too long, and what a byte between any two ranks
 * adds to it (lrmoeTopologyTrafficLimit); out and home together are a port.
 * The memory of a rank is one too.
 *
 * A port's whole is what any plan could use; its cap is lower where the time
 * that was measured is longer than its sum says (rates of crowded edges,
 * latencies), and what fits the caps is measured before it counts. */
#include "planner/port.h"

#include "base/alloc.h"
#include "topo/topology.h"

#include <string.h>

static lrmoeResult_t allocate(struct lrmoePorts *p, int64_t ranks,
                              int64_t experts, int64_t instances) {
  int64_t cells = ranks * ranks, max = 4 * ranks + lrmoeMaxWires;
  p->max = (int32_t)max;
  LRMOE_CHECK(LRMOE_ALLOCATE(cells * max, &p->cost));
  LRMOE_CHECK(LRMOE_ALLOCATE(cells * max, &p->more));
  LRMOE_CHECK(LRMOE_ALLOCATE(max, &p->isWire));
  LRMOE_CHECK(LRMOE_ALLOCATE(max, &p->isProof));
  LRMOE_CHECK(LRMOE_ALLOCATE(max, &p->caps));
  LRMOE_CHECK(LRMOE_ALLOCATE(max, &p->totals));
  LRMOE_CHECK(LRMOE_ALLOCATE(experts * max, &p->loads));
  LRMOE_CHECK(LRMOE_ALLOCATE(2 * max, &p->trial));
  LRMOE_CHECK(LRMOE_ALLOCATE(2 * cells, &p->slopes));
  LRMOE_CHECK(LRMOE_ALLOCATE(max, &p->tolls));
  LRMOE_CHECK(LRMOE_ALLOCATE(max, &p->bestTolls));
  LRMOE_CHECK(LRMOE_ALLOCATE(cells, &p->pays));
  LRMOE_CHECK(LRMOE_ALLOCATE(ranks, &p->least));
  LRMOE_CHECK(LRMOE_ALLOCATE(cells, &p->ways));
  LRMOE_CHECK(LRMOE_ALLOCATE(instances, &p->bestKept));
  LRMOE_CHECK(LRMOE_ALLOCATE(instances, &p->rateKept));
  return LRMOE_ALLOCATE(experts, &p->bestQuotas);
}

lrmoeResult_t lrmoePortsCreate(const struct lrmoePlanner *planner,
                               struct lrmoePorts **ports) {
  int64_t ranks = planner->numRanks, experts = planner->numExperts;
  struct lrmoePorts *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->planner = planner;
  lrmoeResult_t result =
      allocate(made, ranks, experts, experts + ranks * planner->work->slots);
  if (result == lrmoeSuccess)
    *ports = made;
  else
    lrmoePortsDestroy(made);
  return result;
}

void lrmoePortsDestroy(struct lrmoePorts *p) {
  if (!p) return;
  void *const arrays[] = {
      p->cost,  p->more,  p->isWire,   p->isProof,    p->caps,      p->totals,
      p->loads, p->trial, p->slopes,   p->tolls,      p->bestTolls, p->pays,
      p->least, p->ways,  p->bestKept, p->bestQuotas, p->rateKept};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    lrmoeFree(arrays[i]);
  lrmoeFree(p);
}

/* ---- Ranks -------------------------------------------------------------- */

/* `each` bytes or pairs of a kept pair on rank g, `move` more where it moved,
 * of so many. */
static void addRank(struct lrmoePorts *p, int32_t g, int64_t each, int64_t move,
                    int64_t limit) {
  int32_t ranks = p->plan->numRanks, port = p->count++;
  for (int64_t cell = 0; cell < (int64_t)ranks * ranks; cell++) {
    int isHere = cell % ranks == g;
    int64_t *cost = &p->cost[cell * p->max + port];
    *cost = isHere ? (int64_t)lrmoePortWhole + 1 : 0;
    p->more[cell * p->max + port] = 0;
    if (!isHere || limit < each) continue;
    *cost = (int64_t)(each * lrmoePortWhole / limit);
    p->more[cell * p->max + port] =
        (int64_t)((move < limit ? move : limit) * lrmoePortWhole / limit);
  }
  p->caps[port] = lrmoePortWhole;
  p->isWire[port] = 0;
  p->isProof[port] = 1;
}

/* ---- Loads -------------------------------------------------------------- */

struct loading {
  const struct lrmoePorts *ports;
  lrmoeWide *loads;
};

static void addRows(void *context, const struct lrmoeRows *rows) {
  const struct loading *loading = context;
  const struct lrmoePorts *p = loading->ports;
  int64_t cell = (int64_t)rows->source * p->plan->numRanks +
                 p->plan->instanceRanks[rows->instance];
  const int64_t *cost = &p->cost[cell * p->max];
  const int64_t *more = &p->more[cell * p->max];
  for (int32_t k = 0; k < p->count; k++) {
    int64_t extra = rows->moved + (p->isWire[k] ? rows->dropped : 0);
    loading->loads[k] +=
        (lrmoeWide)rows->kept * cost[k] + (lrmoeWide)extra * more[k];
  }
}

void lrmoePortsLoad(const struct lrmoePorts *p, int32_t expert,
                    lrmoeWide *loads) {
  struct loading loading = {p, loads};
  memset(loads, 0, (size_t)p->count * sizeof *loads);
  lrmoePlanRows(p->planner, p->plan, expert, addRows, &loading);
}

void lrmoePortsSum(struct lrmoePorts *p) {
  memset(p->totals, 0, (size_t)p->max * sizeof *p->totals);
  for (int32_t e = 0; e < p->plan->numExperts; e++) {
    lrmoeWide *loads = &p->loads[(int64_t)e * p->max];
    lrmoePortsLoad(p, e, loads);
    for (int32_t k = 0; k < p->count; k++)
      p->totals[k] += loads[k];
  }
}

/* ---- Wires -------------------------------------------------------------- */

/* A row's time in 2^-60 of the limit, in ns. */
static int64_t partOf(lrmoeWide slopes, int64_t rowBytes, int64_t ns) {
  const lrmoeWide most = (lrmoeWide)1 << 66;
  lrmoeWide row = slopes * rowBytes;
  if (row > most) row = most;
  row = (row << 28) / ns;
  return row > lrmoePortWhole ? (int64_t)lrmoePortWhole + 1 : (int64_t)row;
}

static void addWire(struct lrmoePorts *p, int64_t ns) {
  int64_t ranks = p->plan->numRanks, cells = ranks * ranks;
  int64_t row = lrmoeUnitBytesOf(&p->planner->config).row;
  for (int64_t cell = 0; cell < cells; cell++) {
    int64_t back = cell % ranks * ranks + cell / ranks;
    int64_t out = p->slopes[cell], home = p->slopes[cells + back];
    p->cost[cell * p->max + p->count] = partOf((lrmoeWide)out + home, row, ns);
    p->more[cell * p->max + p->count] = partOf(out, row, ns);
  }
}

/* The port that is the same as the one after the last; -1: none. */
static int32_t findSame(const struct lrmoePorts *p) {
  int64_t cells = (int64_t)p->plan->numRanks * p->plan->numRanks;
  for (int32_t k = 0; k < p->count; k++) {
    int64_t cell = 0;
    while (cell < cells &&
           p->cost[cell * p->max + k] == p->cost[cell * p->max + p->count] &&
           p->more[cell * p->max + k] == p->more[cell * p->max + p->count])
      cell++;
    if (p->isWire[k] && cell == cells) return k;
  }
  return -1;
}

/* Room for what is rounded: what then does not fit is found out. */
static void setCap(struct lrmoePorts *p, int32_t port, lrmoeWide taken,
                   int64_t ns, int64_t windowNs) {
  for (; ns >> 40; ns >>= 1)
    windowNs >>= 1;
  lrmoeWide cap = ns > windowNs ? taken * windowNs / ns : lrmoePortWhole;
  cap += cap >> 32;
  if (cap < p->caps[port]) p->caps[port] = cap;
}

/* The limits that decide planner->traffic, out and home, and the ns that are
 * the same whatever goes. */
static lrmoeResult_t findLimit(struct lrmoePorts *p, int64_t *fixedNs,
                               int32_t *port) {
  const struct lrmoePlanner *planner = p->planner;
  int64_t cells = (int64_t)p->plan->numRanks * p->plan->numRanks;
  struct lrmoeTrafficLimit out = {.slopes = p->slopes},
                           home = {.slopes = p->slopes + cells};
  LRMOE_CHECK(lrmoeTopologyTrafficLimit(planner->topology, planner->traffic,
                                        planner->trafficRoom, &out));
  LRMOE_CHECK(lrmoeTopologyTrafficLimit(planner->topology,
                                        planner->traffic + cells,
                                        planner->trafficRoom, &home));
  int64_t whole = planner->config.windowNs - out.latencyNs - home.latencyNs;
  *fixedNs = out.fixedNs + home.fixedNs;
  *port = -1;
  if (p->count == p->max || whole <= 0) return lrmoeSuccess;
  addWire(p, whole);
  *port = findSame(p);
  if (*port >= 0) return lrmoeSuccess;
  *port = p->count++;
  p->isWire[*port] = 1;
  p->isProof[*port] = out.isProof && home.isProof;
  p->caps[*port] = lrmoePortWhole;
  p->tolls[*port] = p->bestTolls[*port] = 0;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePortsLearn(struct lrmoePorts *p) {
  int64_t window = p->planner->config.windowNs, fixedNs;
  int32_t port;
  LRMOE_CHECK(findLimit(p, &fixedNs, &port));
  lrmoePortsSum(p);
  if (port >= 0 && window > fixedNs)
    setCap(p, port, p->totals[port], p->plan->commNs - fixedNs,
           window - fixedNs);
  return lrmoeSuccess;
}

/* What a rank sends out and gets home, then what it receives and gives back. */
static lrmoeResult_t learnRanks(struct lrmoePorts *p) {
  const int64_t each = 1 << 20;
  int64_t ranks = p->plan->numRanks, cells = ranks * ranks, fixedNs;
  int64_t *out = p->planner->traffic, *home = out + cells;
  int32_t port;
  for (int64_t g = 0; g < 2 * ranks; g++) {
    memset(out, 0, 2 * (size_t)cells * sizeof *out);
    for (int64_t h = 0; h < ranks; h++) {
      int64_t to = g < ranks ? g * ranks + h : h * ranks + g - ranks;
      int64_t back = g < ranks ? h * ranks + g : (g - ranks) * ranks + h;
      out[to] = home[back] = each;
    }
    LRMOE_CHECK(findLimit(p, &fixedNs, &port));
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoePortsBegin(struct lrmoePorts *p,
                              const struct lrmoeRetainSearch *search,
                              struct lrmoePlan *plan) {
  const struct lrmoeMoving *moving = search->moving;
  p->plan = plan;
  p->instances = search->instances;
  p->work = p->planner->config.windowWork;
  p->count = 0;
  for (int32_t g = 0; g < plan->numRanks; g++) {
    if (search->room->caps[g] < plan->pairs)
      addRank(p, g, 1, 0, search->room->caps[g]);
    if (moving)
      addRank(p, g, moving->unit.backward - moving->unit.dropped,
              moving->unit.move, moving->budgets[g]);
  }
  memset(p->tolls, 0, (size_t)p->max * sizeof *p->tolls);
  memset(p->bestTolls, 0, (size_t)p->max * sizeof *p->bestTolls);
  LRMOE_CHECK(learnRanks(p));
  lrmoePortsSum(p);
  return lrmoeSuccess;
}
