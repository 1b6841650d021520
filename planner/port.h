/* Where backward's rows and kept pairs meet a limit: see port.c. */
#ifndef LRMOE_PLANNER_PORT_H
#define LRMOE_PLANNER_PORT_H

#include "planner/retain.h"

__extension__ typedef __int128 lrmoeWide;

/* A limit on a sum over all pairs.  What a pair takes of it is in 2^-60 of the
 * whole limit, rounded down. */
struct lrmoePorts {
  const struct lrmoePlanner *planner;
  struct lrmoePlan *plan; /* whose quotas and kept pairs are changed */
  const struct lrmoeInstances *instances; /* that stand */
  int64_t work; /* steps that are left: lrmoePlannerConfig_t.windowWork */
  int32_t count;
  int32_t max;
  int64_t *cost;     /* [G, G, max] a kept pair of a source on a rank */
  int64_t *more;     /* [G, G, max] and one more row out, or a moved pair */
  int32_t *isWire;   /* [max] dropped pairs count too */
  int32_t *isProof;  /* [max] nothing that fits takes more than the whole */
  lrmoeWide *caps;   /* [max] what may be taken, at most lrmoePortWhole */
  lrmoeWide *totals; /* [max] what is taken */
  lrmoeWide *loads;  /* [E, max] by the pairs of an expert */
  lrmoeWide *trial;  /* [2, max] of a change that is tried */
  int64_t *slopes;   /* [2, G, G] */
  /* Prices (toll.c). */
  int64_t *tolls;      /* [max] worth of the whole, in 2^-20 pairs */
  int64_t *bestTolls;  /* [max] */
  lrmoeWide *pays;     /* [G, G] of a kept pair, in 2^-40 pairs */
  lrmoeWide *least;    /* [G] of one expert's pairs so far */
  int32_t *ways;       /* [G, G] where they went */
  int64_t *bestKept;   /* [instances] */
  int64_t *bestQuotas; /* [E] */
  int64_t *rateKept;   /* [instances] at the largest rate so far */
};

static const lrmoeWide lrmoePortWhole = (lrmoeWide)1 << 60;

enum {
  lrmoeMaxPortRanks = 64, /* groups above have no ports */
  lrmoeMaxWires = 64,     /* but those of single ranks */
  lrmoeMaxPorts = 4 * lrmoeMaxPortRanks + lrmoeMaxWires
};

lrmoeResult_t lrmoePortsCreate(const struct lrmoePlanner *planner,
                               struct lrmoePorts **ports);
void lrmoePortsDestroy(struct lrmoePorts *ports);

/* The ports that memory and maxPairs make, and those of single ranks on the
 * wire; what the plan takes of them. */
lrmoeResult_t lrmoePortsBegin(struct lrmoePorts *ports,
                              const struct lrmoeRetainSearch *search,
                              struct lrmoePlan *plan);

/* After lrmoePlanCommNs of the plan, which takes too long: adds the limit that
 * decides, or lowers its cap, and sums up what the plan takes. */
lrmoeResult_t lrmoePortsLearn(struct lrmoePorts *ports);

/* What the plan's pairs of an expert take, into loads [count]. */
void lrmoePortsLoad(const struct lrmoePorts *ports, int32_t expert,
                    lrmoeWide *loads);

/* All loads and totals anew. */
void lrmoePortsSum(struct lrmoePorts *ports);

/* Prices for which few pairs more can be kept than are (toll.c); the plan's
 * quotas and kept pairs are left at what the prices ask for. */
void lrmoeTollsFind(struct lrmoePorts *ports,
                    const struct lrmoeRetainSearch *search, int64_t kept);

/* The most pairs that any quotas from `least` to `ceiling` keep; `pairs` where
 * nothing is proven. */
int64_t lrmoeTollsBound(struct lrmoePorts *ports,
                        const struct lrmoeRetainSearch *search);

/* Some experts lose pairs; where `least` is `ceiling`, their instances swap
 * some. */
void lrmoePortsShake(struct lrmoePorts *ports,
                     const struct lrmoeRetainSearch *search, uint64_t *random);

/* The largest common rate from `least` to `ceiling` that the prices found last
 * do not rule out, for plans with a row to another rank. */
int64_t lrmoeTollsRate(struct lrmoePorts *ports,
                       const struct lrmoeRetainSearch *search);

/* The most pairs of plans without such a row. */
int64_t lrmoeTollsOwn(const struct lrmoePorts *ports);

/* The largest rate that keeps fewer pairs; -1: there is none. */
int64_t lrmoeRateBelow(const struct lrmoePlan *plan, int64_t ppm);

/* A larger common rate than `ppm`, at which the plan is and fits memory and
 * window, or (*fits 0) does not: see rate.c. */
lrmoeResult_t lrmoePortsRate(struct lrmoePorts *ports,
                             const struct lrmoeRetainSearch *search,
                             struct lrmoePlan *plan, int64_t ppm, int *fits);

/* More kept pairs of a plan that fits memory and window, or nearly: see
 * fill.c.  Where `least` is `ceiling`, other splits of the quotas only. */
lrmoeResult_t lrmoePortsFill(struct lrmoePorts *ports,
                             const struct lrmoeRetainSearch *search,
                             struct lrmoePlan *plan, int *fits);

#endif
