/* A placement made better slot by slot, where exports did not reach the bound.
 *
 * For a target, a placement is as good as the pairs that no split can bring
 * below it are few: the excess.  It is smoother than the peak, which the
 * fullest cut alone decides.  One step changes the expert of one slot, or
 * exchanges those of two; experts that are tried are the largest of the cut
 * (split.c), since only a replica of an expert that stands nowhere outside can
 * let pairs out.  The first change that leaves less excess is taken, else the
 * best one although it leaves more, and slots that were changed then stay for
 * some steps (tabu search; Glover 1986).  Targets come by bisection.
 *
 * Splits see only the experts with replicas: what the others bring to their
 * ranks is a base.  Bounded by the number of splits. */
#include "planner/improve.h"

#include "planner/split.h"

#include <string.h>

enum {
  maxTargets = 6,
  maxTries = 512,    /* splits for one target */
  maxWork = 1 << 17, /* and most of tries times slots */
  maxLarge = 4,      /* experts of the cut that are tried */
  numRests = 3       /* steps that a changed slot stays */
};

struct climb {
  struct lrmoeWork *work;
  const int64_t *weights;
  struct lrmoeInstances *instances;
  int64_t target;
  int64_t tries;     /* that are left */
  int32_t numPlaced; /* experts with replicas */
  int32_t large[maxLarge];
  int32_t numLarge;
};

/* One slot, and the expert that it gets. */
struct change {
  int64_t slot;
  int32_t expert;
};

/* One or two changes, and the excess that they lead to. */
struct step {
  struct change changes[2];
  int numChanges;
  int64_t excess;
};

static int32_t rankOf(const struct lrmoeWork *work, int64_t slot) {
  return (int32_t)(slot / work->slots);
}

static int isUsed(const struct lrmoeWork *work, int64_t slot) {
  return slot % work->slots < work->trial.used[rankOf(work, slot)];
}

/* ---- Splits of the trial ------------------------------------------------ */

/* Numbers the experts with replicas; offsets[k + 1] counts their instances,
 * rankOffsets[g] those on each rank. */
static int32_t countPlaced(struct lrmoeWork *work,
                           struct lrmoeInstances *instances) {
  int32_t numPlaced = 0;
  int64_t numSlots = (int64_t)work->numRanks * work->slots;
  memset(instances->rankOffsets, 0,
         ((size_t)work->numRanks + 1) * sizeof(int32_t));
  instances->offsets[0] = 0;
  for (int64_t slot = 0; slot < numSlots; slot++) {
    if (!isUsed(work, slot)) continue;
    int32_t e = work->trial.experts[slot], at = work->placeOf[e];
    if (at >= numPlaced || work->placed[at] != e) {
      at = work->placeOf[e] = numPlaced++;
      work->placed[at] = e;
      instances->offsets[at + 1] = 1;
      instances->rankOffsets[work->homes[e]]++;
    }
    instances->offsets[at + 1]++;
    instances->rankOffsets[rankOf(work, slot)]++;
  }
  return numPlaced;
}

static void addInstance(struct lrmoeInstances *instances, int32_t i,
                        int32_t expert, int32_t rank) {
  instances->experts[i] = expert;
  instances->ranks[i] = rank;
  instances->ofRank[--instances->rankOffsets[rank]] = i;
}

/* The first instance of each expert is at home and takes what is left; an
 * expert's cursor is where its next one goes. */
static void addHomes(const struct climb *climb) {
  struct lrmoeWork *work = climb->work;
  struct lrmoeInstances *instances = climb->instances;
  memcpy(work->base, work->homeLoads, (size_t)work->numRanks * sizeof(int64_t));
  for (int32_t k = 0; k < climb->numPlaced; k++) {
    int32_t e = work->placed[k], first = instances->offsets[k];
    instances->offsets[k + 1] += first;
    work->cursors[k] = first + 1;
    addInstance(instances, first, k, work->homes[e]);
    instances->kept[first] = climb->weights[e];
    work->base[work->homes[e]] -= climb->weights[e];
  }
  instances->count = instances->offsets[climb->numPlaced];
}

/* As lrmoeInstancesBuild, of the experts with replicas only; they are numbered
 * as in work->placed. */
static void build(struct climb *climb) {
  struct lrmoeWork *work = climb->work;
  struct lrmoeInstances *instances = climb->instances;
  int64_t numSlots = (int64_t)work->numRanks * work->slots;
  climb->numPlaced = countPlaced(work, instances);
  for (int32_t g = 0; g < work->numRanks; g++)
    instances->rankOffsets[g + 1] += instances->rankOffsets[g];
  addHomes(climb);
  for (int64_t slot = 0; slot < numSlots; slot++) {
    if (!isUsed(work, slot)) continue;
    int32_t k = work->placeOf[work->trial.experts[slot]];
    int32_t i = work->cursors[k]++;
    addInstance(instances, i, k, rankOf(work, slot));
    instances->kept[i] = work->trial.pairs[slot];
    instances->kept[instances->offsets[k]] -= work->trial.pairs[slot];
    work->instanceOf[slot] = i;
  }
}

static int64_t splitTrial(struct climb *climb, int64_t enough) {
  const struct lrmoeSplitGoal goal = {climb->work->base, climb->target, enough};
  build(climb);
  return lrmoeSplitExcess(climb->work, climb->instances, climb->instances->kept,
                          &goal);
}

/* The split at hand is where that of the next trial begins. */
static void keepShares(const struct climb *climb) {
  struct lrmoeWork *work = climb->work;
  int64_t numSlots = (int64_t)work->numRanks * work->slots;
  for (int64_t slot = 0; slot < numSlots; slot++)
    if (isUsed(work, slot))
      work->trial.pairs[slot] = climb->instances->kept[work->instanceOf[slot]];
}

/* ---- Changes ------------------------------------------------------------ */

static int isConfined(const struct climb *climb, int32_t e) {
  const struct lrmoeWork *work = climb->work;
  const struct lrmoeInstances *instances = climb->instances;
  int32_t k = work->placeOf[e];
  if (!work->inCut[work->homes[e]]) return 0;
  if (k >= climb->numPlaced || work->placed[k] != e) return 1;
  for (int32_t i = instances->offsets[k]; i < instances->offsets[k + 1]; i++)
    if (!work->inCut[instances->ranks[i]]) return 0;
  return 1;
}

/* The largest experts of the cut, in descending order. */
static void listLarge(struct climb *climb) {
  const int64_t *weights = climb->weights;
  climb->numLarge = 0;
  for (int32_t e = 0; e < climb->work->numExperts; e++) {
    int32_t at = climb->numLarge;
    if (at == maxLarge && weights[e] <= weights[climb->large[at - 1]]) continue;
    if (!weights[e] || !isConfined(climb, e)) continue;
    if (at == maxLarge) at--;
    for (; at > 0 && weights[climb->large[at - 1]] < weights[e]; at--)
      climb->large[at] = climb->large[at - 1];
    climb->large[at] = e;
    climb->numLarge += climb->numLarge < maxLarge;
  }
}

static int standsOn(const struct lrmoeWork *work, int32_t expert,
                    int32_t rank) {
  int64_t first = (int64_t)rank * work->slots;
  if (work->homes[expert] == rank) return 1;
  for (int64_t slot = first; slot < first + work->trial.used[rank]; slot++)
    if (work->trial.experts[slot] == expert) return 1;
  return 0;
}

static void apply(struct lrmoeWork *work, struct change change) {
  if (!isUsed(work, change.slot)) work->trial.used[rankOf(work, change.slot)]++;
  work->trial.experts[change.slot] = change.expert;
  work->trial.pairs[change.slot] = 0;
}

/* Splits the trial with the changes of `step`, and takes them back; *best is
 * the one with least excess. */
static void try(struct climb *climb, struct step *step, struct step *best) {
  struct lrmoeWork *work = climb->work;
  int32_t experts[2], used[2];
  int64_t pairs[2];
  climb->tries--;
  for (int i = 0; i < step->numChanges; i++) {
    int64_t slot = step->changes[i].slot;
    used[i] = work->trial.used[rankOf(work, slot)];
    experts[i] = work->trial.experts[slot];
    pairs[i] = work->trial.pairs[slot];
    apply(work, step->changes[i]);
  }
  step->excess = splitTrial(climb, best->excess);
  if (step->excess < best->excess) *best = *step;
  for (int i = 0; i < step->numChanges; i++) {
    int64_t slot = step->changes[i].slot;
    work->trial.used[rankOf(work, slot)] = used[i];
    work->trial.experts[slot] = experts[i];
    work->trial.pairs[slot] = pairs[i];
  }
}

/* Whether a slot may change: pins do not, nor slots behind the first that is
 * free, nor those that rest. */
static int mayChange(const struct lrmoeWork *work, int64_t slot, int32_t now) {
  int32_t rank = rankOf(work, slot);
  if (slot % work->slots > work->trial.used[rank]) return 0;
  if (work->restUntil[slot] > now) return 0;
  return !isUsed(work, slot) ||
         !lrmoeIsPinned(work, work->trial.experts[slot], rank);
}

/* What the search for one step needs to know. */
struct hunt {
  int32_t now;
  int64_t excess; /* any step that leaves less is good enough */
  struct step best;
};

static int isOver(const struct climb *climb, const struct hunt *hunt) {
  return hunt->best.excess < hunt->excess || climb->tries <= 0;
}

static void tryExperts(struct climb *climb, struct hunt *hunt, int64_t slot) {
  struct lrmoeWork *work = climb->work;
  for (int32_t k = 0; k < climb->numLarge && !isOver(climb, hunt); k++) {
    struct step step = {{{slot, climb->large[k]}}, 1, 0};
    if (!standsOn(work, climb->large[k], rankOf(work, slot)))
      try(climb, &step, &hunt->best);
  }
}

static void tryExchanges(struct climb *climb, struct hunt *hunt, int64_t slot) {
  struct lrmoeWork *work = climb->work;
  int32_t expert = work->trial.experts[slot];
  for (int64_t other = 0; other < slot && !isOver(climb, hunt); other++) {
    int32_t its = work->trial.experts[other];
    struct step step = {{{slot, its}, {other, expert}}, 2, 0};
    if (!isUsed(work, other) || !mayChange(work, other, hunt->now) ||
        standsOn(work, its, rankOf(work, slot)) ||
        standsOn(work, expert, rankOf(work, other)))
      continue;
    try(climb, &step, &hunt->best);
  }
}

/* ---- The climb ---------------------------------------------------------- */

/* The next step; none: it has no changes. */
static struct step chooseStep(struct climb *climb, int32_t now,
                              int64_t excess) {
  struct lrmoeWork *work = climb->work;
  int64_t numSlots = (int64_t)work->numRanks * work->slots;
  struct hunt hunt = {now, excess, {.excess = INT64_MAX}};
  lrmoeSplitMarkCut(work, climb->instances, climb->instances->kept,
                    climb->target);
  listLarge(climb);
  for (int64_t slot = 0; slot < numSlots && !isOver(climb, &hunt); slot++)
    if (mayChange(work, slot, now)) tryExperts(climb, &hunt, slot);
  for (int64_t slot = 1; slot < numSlots && !isOver(climb, &hunt); slot++)
    if (isUsed(work, slot) && mayChange(work, slot, now))
      tryExchanges(climb, &hunt, slot);
  return hunt.best;
}

/* Brings the trial, a copy of the best placement, to the target; 0 if that
 * takes more tries than there are. */
static int reach(struct climb *climb) {
  struct lrmoeWork *work = climb->work;
  int64_t numSlots = (int64_t)work->numRanks * work->slots;
  climb->tries = numSlots > maxWork / maxTries ? maxWork / numSlots : maxTries;
  lrmoePlacementCopy(work, &work->best, &work->trial);
  memset(work->restUntil, 0, (size_t)numSlots * sizeof *work->restUntil);
  for (int32_t now = 0; now < maxTries && climb->tries > 0; now++) {
    int64_t excess = splitTrial(climb, INT64_MAX);
    if (!excess) return 1;
    keepShares(climb);
    struct step step = chooseStep(climb, now, excess);
    for (int i = 0; i < step.numChanges; i++) {
      apply(work, step.changes[i]);
      work->restUntil[step.changes[i].slot] = now + 1 + numRests;
    }
  }
  return 0;
}

static void sumHomes(struct climb *climb) {
  struct lrmoeWork *work = climb->work;
  memset(work->homeLoads, 0, (size_t)work->numRanks * sizeof(int64_t));
  for (int32_t e = 0; e < work->numExperts; e++)
    work->homeLoads[work->homes[e]] += climb->weights[e];
}

static int64_t highest(const struct lrmoeWork *work) {
  int64_t most = 0;
  for (int32_t g = 0; g < work->numRanks; g++)
    if (work->loads[g] > most) most = work->loads[g];
  return most;
}

int64_t lrmoePlacementImprove(struct lrmoeWork *work, const int64_t *weights,
                              struct lrmoePeak found, int64_t goal,
                              struct lrmoeInstances *instances) {
  struct climb climb = {
      .work = work, .weights = weights, .instances = instances};
  int64_t low = goal - 1, high = found.peak;
  if (!work->slots) return high;
  sumHomes(&climb);
  for (int i = 0; i < maxTargets && high > low + 1; i++) {
    climb.target = low + (high - low) / 2;
    if (!reach(&climb)) {
      low = climb.target;
      continue;
    }
    keepShares(&climb);
    high = highest(work);
    lrmoePlacementCopy(work, &work->trial, &work->best);
  }
  return high;
}
