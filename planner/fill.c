/* Quotas of `overload` under a window, pair by pair.
 *
 * What is kept grows as long as a change does: pairs more of an expert on one
 * of its instances, alone or against pairs of another one, or pairs from an
 * instance to another one.  Changes that keep more are taken, and such as keep
 * as many and take less of the ports at their tolls (toll.c), so that there is
 * room for the next.  Steps halve down to single pairs.  In whole pairs this
 * stops at quotas that no change improves: then some experts lose pairs and it
 * begins again, for as long as the bound leaves something to be found.  Last,
 * pairs go from experts with higher rates to such with lower ones, where that
 * costs no pair.
 *
 * Sums of ports (port.c) say what fits; what is taken is measured, and a limit
 * that was not known is learned.  Bounded by the number of changes. */
#include "planner/planner.h"
#include "planner/port.h"

#include <string.h>

enum {
  maxWork = 1 << 24, /* rows and ports passed by the changes of one search */
  maxAttempts = 512,
  maxStirs = 128, /* attempts where quotas are fixed */
  maxLearned = 32,
  fairParts = 8,    /* of the changes, for fairness */
  closeParts = 1000 /* a bound so near is not looked for */
};

/* Pairs more (fewer) of an instance. */
struct change {
  int32_t expert;
  int32_t instance;
  int64_t pairs;
};

struct fill {
  struct lrmoePorts *ports;
  const struct lrmoeRetainSearch *search;
  struct lrmoePlan *plan;
  int64_t trials; /* that are left */
  int64_t bound;
  int64_t best; /* most kept that was measured; -1: none */
  uint64_t random;
  int32_t known;  /* ports that the tolls are for */
  int mustBeOver; /* no change may end below the caps */
  int isFair; /* equal sums: the higher least rate wins, not the lower toll */
  lrmoeResult_t result;
};

/* Quotas stay; only their splits change. */
static int isFixed(const struct fill *fill) {
  return fill->search->least == fill->search->ceiling;
}

static int64_t keptOf(const struct lrmoePlan *plan) {
  int64_t sum = 0;
  for (int32_t e = 0; e < plan->numExperts; e++)
    sum += plan->quotas[e];
  return sum;
}

/* ---- One change --------------------------------------------------------- */

static void apply(struct lrmoePlan *plan, const struct change *changes,
                  int count, int sign) {
  for (int i = 0; i < count; i++) {
    plan->quotas[changes[i].expert] += sign * changes[i].pairs;
    plan->keptPairs[changes[i].instance] += sign * changes[i].pairs;
  }
}

static int isAllowed(const struct fill *fill, const struct change *changes,
                     int count) {
  const struct lrmoeRetainSearch *search = fill->search;
  int isShift = count == 2 && changes[0].expert == changes[1].expert;
  for (int i = 0; i < count; i++) {
    int32_t e = changes[i].expert;
    int64_t quota = fill->plan->quotas[e] + (isShift ? 0 : changes[i].pairs);
    if (fill->plan->keptPairs[changes[i].instance] + changes[i].pairs < 0 ||
        quota < lrmoeRetained(fill->plan->totals[e], search->least) ||
        quota > lrmoeRetained(fill->plan->totals[e], search->ceiling))
      return 0;
  }
  return 1;
}

/* What is over all caps, and what is taken at the tolls. */
struct taken {
  lrmoeWide over;
  lrmoeWide worth;
};

static struct taken takenBy(const struct lrmoePorts *p,
                            const lrmoeWide *totals) {
  struct taken taken = {0, 0};
  for (int32_t k = 0; k < p->count; k++) {
    if (totals[k] > p->caps[k]) taken.over += totals[k] - p->caps[k];
    taken.worth += (totals[k] >> 30) * (p->tolls[k] + 1);
  }
  return taken;
}

/* Trial loads of the experts that change; totals into the last of them. */
static struct taken trialOf(const struct fill *fill,
                            const struct change *changes, int count,
                            lrmoeWide *totals) {
  struct lrmoePorts *p = fill->ports;
  memcpy(totals, p->totals, (size_t)p->count * sizeof *totals);
  for (int i = 0; i < count; i++) {
    int32_t e = changes[i].expert;
    lrmoeWide *loads = &p->trial[(int64_t)i * p->max];
    const lrmoeWide *before = &p->loads[(int64_t)e * p->max];
    if (i && e == changes[0].expert) break;
    lrmoePortsLoad(p, e, loads);
    for (int32_t k = 0; k < p->count; k++)
      totals[k] += loads[k] - before[k];
  }
  return takenBy(p, totals);
}

/* Whether the plan as it is fits, measured; *fits 0: and what was learned. */
static void measure(struct fill *fill, int *fits) {
  lrmoePlanSum(fill->plan);
  fill->result = lrmoePlanMeasure(fill->ports->planner, fill->plan);
  if (fill->result != lrmoeSuccess) return;
  *fits = lrmoePlanBackwardFits(fill->ports->planner, fill->plan);
  int64_t window = fill->ports->planner->config.windowNs;
  if (!*fits && fill->plan->commNs > window)
    fill->result = lrmoePortsLearn(fill->ports);
}

/* The rates of a swap are nearer to each other than before. */
static int isFairer(const struct fill *fill, const struct change *changes) {
  const struct lrmoePlan *plan = fill->plan; /* changed already */
  lrmoeWide up = (lrmoeWide)plan->quotas[changes[0].expert] *
                 plan->totals[changes[1].expert];
  lrmoeWide down = (lrmoeWide)plan->quotas[changes[1].expert] *
                   plan->totals[changes[0].expert];
  return up <= down;
}

static int isBetter(const struct fill *fill, const struct change *changes,
                    int count, struct taken now, struct taken then) {
  int64_t gain = changes[0].pairs + (count > 1 ? changes[1].pairs : 0);
  if (then.over && then.over >= now.over) return 0;
  if (now.over) return then.over < now.over && (then.over || !fill->mustBeOver);
  if (gain) return gain > 0;
  return fill->isFair ? isFairer(fill, changes) : then.worth < now.worth;
}

/* Takes a change that is better and fits; 0 leaves all as it was. */
static int tryChange(struct fill *fill, const struct change *changes,
                     int count) {
  struct lrmoePorts *p = fill->ports;
  lrmoeWide totals[lrmoeMaxPorts];
  int fits = 1;
  if (fill->trials <= 0 || fill->result != lrmoeSuccess ||
      !isAllowed(fill, changes, count))
    return 0;
  fill->trials--;
  apply(fill->plan, changes, count, 1);
  struct taken then = trialOf(fill, changes, count, totals);
  struct taken now = takenBy(p, p->totals);
  if (isBetter(fill, changes, count, now, then)) {
    if (!then.over) measure(fill, &fits);
    if (fits) {
      memcpy(p->totals, totals, (size_t)p->count * sizeof *totals);
      for (int i = 0; i < count; i++)
        if (!i || changes[i].expert != changes[0].expert)
          memcpy(&p->loads[(int64_t)changes[i].expert * p->max],
                 &p->trial[(int64_t)i * p->max],
                 (size_t)p->count * sizeof *totals);
      return 1;
    }
    apply(fill->plan, changes, count, -1);
    lrmoePortsSum(p);
    return 0;
  }
  apply(fill->plan, changes, count, -1);
  return 0;
}

/* ---- Sweeps ------------------------------------------------------------- */

static int growExpert(struct fill *fill, int32_t e, int64_t pairs) {
  const int32_t *offsets = fill->plan->instanceOffsets;
  int isChanged = 0;
  for (int32_t i = offsets[e]; i < offsets[e + 1]; i++)
    while (tryChange(fill, &(struct change){e, i, pairs}, 1))
      isChanged = 1;
  return isChanged;
}

/* Pairs of instance i against those of all others. */
static int swapInstance(struct fill *fill, int32_t e, int32_t i,
                        int64_t pairs) {
  const struct lrmoePlan *plan = fill->plan;
  int isChanged = 0;
  int32_t begin = isFixed(fill) ? e : 0;
  int32_t end = isFixed(fill) ? e + 1 : plan->numExperts;
  for (int32_t f = begin; f < end && fill->trials > 0; f++)
    for (int32_t j = plan->instanceOffsets[f]; j < plan->instanceOffsets[f + 1];
         j++) {
      struct change changes[] = {{e, i, pairs}, {f, j, -pairs}};
      if (i == j || (f == e && fill->isFair)) continue;
      isChanged |= tryChange(fill, changes, 2);
      changes[1].pairs = -(pairs / 2);
      if (pairs > 1 && f != e) isChanged |= tryChange(fill, changes, 2);
    }
  return isChanged;
}

static int isClose(const struct fill *fill, int64_t kept) {
  return fill->bound - kept <= fill->bound / closeParts;
}

static int isDone(const struct fill *fill) {
  const struct lrmoePorts *p = fill->ports;
  return fill->trials <= 0 ||
         (!fill->isFair && isClose(fill, keptOf(fill->plan)) &&
          !takenBy(p, p->totals).over);
}

static int grow(struct fill *fill, int64_t pairs) {
  int isChanged = 0;
  for (int32_t e = 0; e < fill->plan->numExperts; e++)
    if (fill->plan->totals[e]) isChanged |= growExpert(fill, e, pairs);
  return isChanged;
}

static int sweep(struct fill *fill, int64_t pairs) {
  const struct lrmoePlan *plan = fill->plan;
  int isChanged = grow(fill, pairs);
  for (int32_t e = 0; e < plan->numExperts && !isDone(fill); e++)
    for (int32_t i = plan->instanceOffsets[e];
         i < plan->instanceOffsets[e + 1] && plan->totals[e]; i++)
      isChanged |= swapInstance(fill, e, i, pairs);
  return isChanged;
}

/* What a pair of e pays on average, at least `sixteenths` of a pair. */
static int isDear(const struct fill *fill, int32_t e, int sixteenths) {
  const struct lrmoePorts *p = fill->ports;
  struct taken taken = takenBy(p, &p->loads[(int64_t)e * p->max]);
  return taken.worth >> 46 >= (lrmoeWide)fill->plan->quotas[e] * sixteenths;
}

/* What is over goes, a step of each expert in turn. */
static void drop(struct fill *fill, int64_t pairs, int sixteenths) {
  const struct lrmoePlan *plan = fill->plan;
  int isChanged = 1;
  fill->mustBeOver = pairs > 1;
  while (isChanged) {
    isChanged = 0;
    for (int32_t e = 0; e < plan->numExperts; e++)
      for (int32_t i = plan->instanceOffsets[e];
           i < plan->instanceOffsets[e + 1]; i++) {
        if (!takenBy(fill->ports, fill->ports->totals).over) break;
        struct change change = {e, i, -pairs};
        if (isDear(fill, e, sixteenths))
          isChanged |= tryChange(fill, &change, 1);
      }
  }
  fill->mustBeOver = 0;
}

static int64_t largestStep(const struct lrmoePlan *plan) {
  int64_t most = 1, step = 1;
  for (int32_t e = 0; e < plan->numExperts; e++)
    if (plan->totals[e] > most) most = plan->totals[e];
  while (step <= most / 4)
    step *= 2;
  return step;
}

static void climb(struct fill *fill, int64_t pairs) {
  for (int sixteenths = 15; sixteenths >= 0 && !isFixed(fill); sixteenths -= 5)
    for (int64_t step = pairs; step > 0; step /= 2)
      drop(fill, step, sixteenths);
  for (int64_t step = pairs; step > 0 && !fill->isFair && !isFixed(fill);
       step /= 2)
    grow(fill, step);
  for (int64_t step = pairs; step > 0 && !isDone(fill); step /= 2)
    while (sweep(fill, step) && !isDone(fill))
      continue;
}

/* ---- Attempts ----------------------------------------------------------- */

static void copy(struct fill *fill, int isBack) {
  struct lrmoePorts *p = fill->ports;
  struct lrmoePlan *plan = fill->plan;
  size_t quotas = (size_t)plan->numExperts * sizeof(int64_t);
  size_t kept = (size_t)plan->numInstances * sizeof(int64_t);
  memcpy(isBack ? plan->quotas : p->bestQuotas,
         isBack ? p->bestQuotas : plan->quotas, quotas);
  memcpy(isBack ? plan->keptPairs : p->bestKept,
         isBack ? p->bestKept : plan->keptPairs, kept);
  if (isBack) lrmoePortsSum(p);
}

/* The plan as it is, if it is the best so far and fits. */
static void note(struct fill *fill) {
  int fits = 0;
  if (keptOf(fill->plan) <= fill->best || fill->result != lrmoeSuccess) return;
  measure(fill, &fits);
  if (!fits) return;
  fill->best = keptOf(fill->plan);
  copy(fill, 0);
}

/* Tolls for the limits that are known, the bound that they prove, and what
 * they ask for in the plan: limits that it shows come to those known. */
static void appraise(struct fill *fill) {
  struct lrmoePorts *p = fill->ports;
  for (int i = 0; i < maxLearned && fill->result == lrmoeSuccess; i++) {
    int fits = 0;
    int32_t known = p->count;
    lrmoeTollsFind(p, fill->search, fill->best < 0 ? 0 : fill->best);
    int64_t bound = lrmoeTollsBound(p, fill->search);
    if (bound < fill->bound) fill->bound = bound;
    memcpy(p->tolls, p->bestTolls, (size_t)p->count * sizeof *p->tolls);
    measure(fill, &fits);
    fill->known = known;
    if (fits || known == p->count) return;
  }
}

static void attempt(struct fill *fill, int64_t step) {
  climb(fill, step);
  note(fill);
  if (fill->known == fill->ports->count) return;
  appraise(fill);
  copy(fill, 1);
}

/* From higher rates to lower ones, where no pair is lost. */
static void level(struct fill *fill, int64_t trials) {
  struct lrmoePorts *p = fill->ports;
  if (takenBy(p, p->totals).over) return;
  fill->isFair = 1;
  fill->trials = trials;
  climb(fill, largestStep(fill->plan));
  int64_t kept = keptOf(fill->plan);
  if (kept > fill->best) fill->best = kept;
}

/* Whether more attempts may find more. */
static int isOpen(const struct fill *fill) {
  if (isFixed(fill) && (fill->best >= 0 || fill->bound < keptOf(fill->plan)))
    return 0;
  return fill->trials > 0 && !isClose(fill, fill->best);
}

/* Changes that a part of the search's work allows. */
static int64_t trialsOf(const struct lrmoePorts *ports, int64_t parts,
                        int64_t effort) {
  int64_t work = ports->work < maxWork ? ports->work : maxWork;
  return work > 0 ? work / parts / effort : 0;
}

lrmoeResult_t lrmoePortsFill(struct lrmoePorts *ports,
                             const struct lrmoeRetainSearch *search,
                             struct lrmoePlan *plan, int *fits) {
  int64_t effort = 2 * (int64_t)(ports->count + 1) * (plan->numRanks + 1) *
                   (1 + plan->numExperts / 32);
  struct fill fill = {.ports = ports,
                      .search = search,
                      .plan = plan,
                      .trials = trialsOf(ports, 1, effort),
                      .bound = plan->boundRetained,
                      .best = -1,
                      .random = 1};
  int attempts = isFixed(&fill) ? maxStirs : maxAttempts;
  int64_t trials = fill.trials;
  note(&fill);
  if (fill.best < 0) copy(&fill, 0);
  if (fill.best < 0 || !isFixed(&fill)) appraise(&fill);
  if (isOpen(&fill)) attempt(&fill, largestStep(plan));
  for (int i = 0; i < attempts && isOpen(&fill); i++) {
    copy(&fill, 1);
    if (i) lrmoePortsShake(ports, search, &fill.random);
    attempt(&fill, i ? 4 : largestStep(plan));
  }
  copy(&fill, 1);
  ports->work -= (trials - fill.trials) * effort;
  *fits = fill.best >= 0;
  if (*fits && !isFixed(&fill))
    level(&fill, trialsOf(ports, fairParts, effort));
  plan->boundRetained = fill.bound;
  LRMOE_CHECK(fill.result);
  lrmoePlanSum(plan);
  return lrmoePlanMeasure(ports->planner, plan);
}
