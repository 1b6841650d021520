/* Which instance executes each kept pair, on the device: tables of cells for
 * kernels/labels.h, where the rule is.
 *
 * Labelled are the experts whose pairs may move; with saved state none all of
 * them, since every kept pair comes with x. */
#include "collectives/device_layout.h"
#include "collectives/route.h"
#include "collectives/select.h"

static int isLabelled(const struct lrmoeStep *step, int32_t e) {
  return step->layer->savedState == lrmoeSavedNone ||
         lrmoeSelectMayMove(step, e);
}

int64_t lrmoeDeviceNumLabelled(const struct lrmoeStep *step) {
  int64_t count = 0;
  for (int32_t e = 0; e < step->plan->numExperts; e++)
    count += isLabelled(step, e);
  return count;
}

int32_t lrmoeDeviceLabelled(const struct lrmoeStep *step, int64_t n) {
  int32_t e = 0;
  while (n > 0 || !isLabelled(step, e))
    n -= isLabelled(step, e++);
  return e;
}

/* Tables while they are filled in, and how much of them there can be. */
struct cells {
  int64_t most; /* cells */
  int64_t numInstances;
  int64_t words;
  int64_t *table;            /* cellFirsts, cellCounts, cellSources, cellOwners,
                     cellExperts [most each], instanceFirsts, instanceCells,
                     sourceCells, shares, ranks, domains, hosts */
  struct lrmoeLabels labels; /* pointers into the table */
};

static void measure(const struct lrmoeStep *step, struct cells *cells) {
  const struct lrmoePlan *plan = step->plan;
  int64_t numRanks = plan->numRanks;
  int64_t numExperts = lrmoeDeviceNumLabelled(step);
  for (int32_t e = 0; e < plan->numExperts; e++)
    if (isLabelled(step, e))
      cells->numInstances +=
          plan->instanceOffsets[e + 1] - plan->instanceOffsets[e];
  cells->most = numExperts * numRanks + cells->numInstances;
  cells->words = 5 * cells->most + numExperts + 1 + cells->numInstances + 1 +
                 numExperts * numRanks + 1 + 2 * cells->numInstances +
                 2 * numRanks;
  cells->labels.numExperts = numExperts;
  cells->labels.numInstances = cells->numInstances;
  cells->labels.numRanks = numRanks;
}

/* Points the tables into a block, on the host or on the device. */
static void pointTo(struct cells *cells, const int64_t *block) {
  struct lrmoeLabels *labels = &cells->labels;
  labels->cellFirsts = block;
  labels->cellCounts = labels->cellFirsts + cells->most;
  labels->cellSources = labels->cellCounts + cells->most;
  labels->cellOwners = labels->cellSources + cells->most;
  labels->cellExperts = labels->cellOwners + cells->most;
  labels->instanceFirsts = labels->cellExperts + cells->most;
  labels->instanceCells = labels->instanceFirsts + labels->numExperts + 1;
  labels->sourceCells = labels->instanceCells + labels->numInstances + 1;
  labels->shares =
      labels->sourceCells + labels->numExperts * labels->numRanks + 1;
  labels->ranks = labels->shares + labels->numInstances;
  labels->domains = labels->ranks + labels->numInstances;
  labels->hosts = labels->domains + labels->numRanks;
}

/* The same place in the host's table, to be written. */
static int64_t *in(const struct cells *cells, const int64_t *at) {
  return cells->table + (at - cells->labels.cellFirsts);
}

/* A labelled expert. */
struct labelled {
  int32_t e;
  int64_t number;    /* among those that are labelled */
  int64_t flagFirst; /* its flags */
  int64_t first;     /* its instances */
};

/* What source s and instance i of an expert have in common. */
static void addCell(const struct lrmoeStep *step, struct cells *cells,
                    int32_t s, int32_t i, const struct labelled *expert) {
  struct lrmoeLabels *labels = &cells->labels;
  int32_t e = expert->e;
  int64_t owner = expert->first + i - step->plan->instanceOffsets[e];
  struct lrmoeRange range = lrmoeRouteRange(step, s, e, i);
  int64_t count = range.high - range.low;
  int64_t c = labels->numCells;
  if (count == 0) return;
  in(cells, labels->cellFirsts)[c] =
      expert->flagFirst +
      step->sourceBase[(int64_t)s * step->plan->numExperts + e] + range.low;
  in(cells, labels->cellCounts)[c] = count;
  in(cells, labels->cellSources)[c] = s;
  in(cells, labels->cellOwners)[c] = owner;
  in(cells, labels->cellExperts)[c] = expert->number;
  in(cells, labels->instanceCells)[owner + 1]++;
  if (count > labels->maxPairs) labels->maxPairs = count;
  labels->numCells++;
}

static void addExpert(const struct lrmoeStep *step, struct cells *cells,
                      const struct labelled *expert) {
  const struct lrmoePlan *plan = step->plan;
  struct lrmoeLabels *labels = &cells->labels;
  int32_t e = expert->e;
  int32_t first = plan->instanceOffsets[e];
  int32_t end = plan->instanceOffsets[e + 1];
  int mayMove = lrmoeSelectMayMove(step, e);
  int64_t *shares = in(cells, labels->shares) + expert->first;
  int64_t *ranks = in(cells, labels->ranks) + expert->first;
  for (int32_t i = first; i < end; i++) {
    in(cells, labels->instanceCells)[expert->first + i - first + 1] = 0;
    shares[i - first] = mayMove ? plan->keptPairs[i] : INT64_MAX;
    ranks[i - first] = plan->instanceRanks[i];
  }
  for (int32_t s = 0; s < plan->numRanks; s++) {
    in(cells, labels->sourceCells)[expert->number * plan->numRanks + s] =
        labels->numCells;
    for (int32_t i = first; i < end; i++)
      addCell(step, cells, s, i, expert);
  }
  in(cells, labels->instanceFirsts)[expert->number + 1] =
      expert->first + end - first;
}

static void fill(const struct lrmoeStep *step, struct cells *cells) {
  const struct lrmoePlan *plan = step->plan;
  const struct lrmoePlanner *planner = step->layer->planner;
  struct lrmoeLabels *labels = &cells->labels;
  struct labelled expert = {0, 0, 0, 0};
  in(cells, labels->instanceFirsts)[0] = 0;
  in(cells, labels->instanceCells)[0] = 0;
  for (int32_t e = 0; e < plan->numExperts; e++) {
    expert.e = e;
    if (isLabelled(step, e)) {
      addExpert(step, cells, &expert);
      expert.first += plan->instanceOffsets[e + 1] - plan->instanceOffsets[e];
      expert.number++;
    }
    expert.flagFirst += lrmoeSelectNumPairs(step, e);
  }
  int64_t *ends = in(cells, labels->instanceCells);
  for (int64_t i = 0; i < labels->numInstances; i++)
    ends[i + 1] += ends[i];
  in(cells, labels->sourceCells)[labels->numExperts * plan->numRanks] =
      labels->numCells;
  for (int32_t r = 0; r < plan->numRanks; r++) {
    in(cells, labels->domains)[r] = planner->domains[r];
    in(cells, labels->hosts)[r] = planner->hosts[r];
  }
}

lrmoeResult_t lrmoeDeviceLabel(struct lrmoeStep *step,
                               const struct lrmoeDeviceLayout *at) {
  struct cells cells = {0};
  int64_t *device = NULL;
  if (!at->numLabelled) return lrmoeSuccess;
  measure(step, &cells);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayLabels, cells.words, &cells.table));
  pointTo(&cells, cells.table);
  fill(step, &cells);
  LRMOE_CHECK(
      LRMOE_UPLOAD(step, lrmoeArrayLabels, cells.words, cells.table, &device));
  pointTo(&cells, device);
  cells.labels.comesWithX = step->layer->savedState == lrmoeSavedNone;
  cells.labels.flags = step->route.flags;
  cells.labels.missing = at->missing;
  int64_t bytes =
      lrmoeLabelWords(&cells.labels) * (int64_t)sizeof *cells.labels.work;
  LRMOE_CHECK(
      lrmoeStepReserveBlock(step, lrmoeBlockLabels, bytes, &cells.labels.work));
  lrmoeMeterAdd(&step->meter, bytes);
  LRMOE_RUN(step->layer->backend, labelPairs, &cells.labels, step->stream);
  return lrmoeSuccess;
}
