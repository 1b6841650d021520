/* Who executes a kept pair: the CPU's labels, whatever the order of threads,
 * and where no rule leaves a choice, the rule's. */
#include "kernels/labels.h"
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

enum {
  maxRanks = 70,
  maxExperts = 3
};

/* Room for the tables; all of one width, so that either side's are found. */
enum table {
  cellFirsts,
  cellCounts,
  cellSources,
  cellOwners,
  cellExperts,
  instanceFirsts,
  instanceCells,
  sourceCells,
  shares,
  ranks,
  domains,
  hosts,
  numTables
};

static const int64_t tableWords = 2 * maxExperts * maxRanks + 1;

struct labelCase {
  struct lrmoeLabels sizes; /* counts; pointers are filled in by side */
  int64_t numPairs;
  struct mirror *tables;
  struct mirror *flags;
  struct mirror *missing;
  struct mirror *work;
};

static int64_t *tableOf(const struct labelCase *c, enum table table) {
  return (int64_t *)c->tables->at[onHost] + table * tableWords;
}

/* Splits `total` at random. */
static void split(struct naiveRandom *random, int64_t total, int64_t count,
                  int64_t *parts) {
  memset(parts, 0, (size_t)count * sizeof *parts);
  int64_t each = total / count / 2 + 1;
  while (total > 0) {
    int64_t part = total < each ? total : each;
    parts[naiveRandomBelow(random, count)] += part;
    total -= part;
  }
}

/* Cells of an expert whose pairs sources and instances have split. */
static void addCells(struct labelCase *c, int64_t e, const int64_t *sources,
                     const int64_t *instances) {
  struct lrmoeLabels *sizes = &c->sizes;
  int64_t first = tableOf(c, instanceFirsts)[e];
  int64_t count = tableOf(c, instanceFirsts)[e + 1] - first;
  int64_t i = 0;
  int64_t room = instances[0];
  for (int64_t s = 0; s < sizes->numRanks; s++) {
    tableOf(c, sourceCells)[e * sizes->numRanks + s] = sizes->numCells;
    for (int64_t left = sources[s]; left > 0;) {
      while (room == 0 && i + 1 < count)
        room = instances[++i];
      int64_t pairs = left < room ? left : room;
      int64_t cell = sizes->numCells++;
      tableOf(c, cellFirsts)[cell] = c->numPairs;
      tableOf(c, cellCounts)[cell] = pairs;
      tableOf(c, cellSources)[cell] = s;
      tableOf(c, cellOwners)[cell] = first + i;
      tableOf(c, cellExperts)[cell] = e;
      tableOf(c, instanceCells)[first + i + 1]++;
      if (pairs > sizes->maxPairs) sizes->maxPairs = pairs;
      c->numPairs += pairs;
      left -= pairs;
      room -= pairs;
    }
  }
}

static void addExpert(struct naiveRandom *random, struct labelCase *c,
                      int64_t e, int64_t numPairs) {
  int64_t numRanks = c->sizes.numRanks;
  int64_t count = 1 + naiveRandomBelow(random, numRanks);
  int64_t first = c->sizes.numInstances;
  int64_t sources[maxRanks];
  int64_t instances[maxRanks];
  int64_t start = naiveRandomBelow(random, numRanks);
  for (int64_t i = 0; i < count; i++)
    tableOf(c, ranks)[first + i] = (start + i) % numRanks;
  c->sizes.numInstances += count;
  tableOf(c, instanceFirsts)[e + 1] = first + count;
  split(random, numPairs, numRanks, sources);
  split(random, numPairs, count, instances);
  addCells(c, e, sources, instances);
}

/* Keeps pairs at random, and gives instances as many in other proportions. */
static void keepPairs(struct naiveRandom *random, struct labelCase *c,
                      int isFixed) {
  uint8_t *flags = c->flags->at[onHost];
  const struct lrmoeLabels *sizes = &c->sizes;
  int64_t kept[maxExperts] = {0};
  for (int64_t cell = 0; cell < sizes->numCells; cell++)
    for (int64_t q = 0; q < tableOf(c, cellCounts)[cell]; q++) {
      uint8_t flag = naiveRandomBelow(random, 10) < 6;
      flags[tableOf(c, cellFirsts)[cell] + q] = flag;
      kept[tableOf(c, cellExperts)[cell]] += flag;
    }
  for (int64_t e = 0; e < sizes->numExperts; e++) {
    const int64_t *first = tableOf(c, instanceFirsts) + e;
    split(random, kept[e], first[1] - first[0], tableOf(c, shares) + first[0]);
    for (int64_t i = first[0]; i < first[1] && isFixed && e == 0; i++)
      tableOf(c, shares)[i] = INT64_MAX;
  }
}

static struct labelCase makeCase(struct naiveRandom *random, int64_t numRanks,
                                 int64_t numPairs) {
  struct labelCase c = {0};
  c.sizes.numRanks = numRanks;
  c.sizes.numExperts = 1 + naiveRandomBelow(random, maxExperts);
  c.tables = mirrorRoom((size_t)(numTables * tableWords) * sizeof(int64_t));
  memset(c.tables->at[onHost], 0, c.tables->bytes);
  for (int64_t e = 0; e < c.sizes.numExperts; e++)
    addExpert(random, &c, e, e == 1 ? 0 : numPairs);
  int64_t numExperts = c.sizes.numExperts;
  tableOf(&c, sourceCells)[numExperts * numRanks] = c.sizes.numCells;
  for (int64_t i = 0; i < c.sizes.numInstances; i++)
    tableOf(&c, instanceCells)[i + 1] += tableOf(&c, instanceCells)[i];
  for (int64_t r = 0; r < numRanks; r++) {
    tableOf(&c, domains)[r] = r / 2;
    tableOf(&c, hosts)[r] = r / 5; /* a domain may lie on two */
  }
  c.flags = mirrorRoom((size_t)c.numPairs);
  c.missing = mirrorRoom((size_t)numExperts * sizeof(int64_t));
  c.work = mirrorRoom((size_t)lrmoeLabelWords(&c.sizes) * sizeof(int64_t));
  return c;
}

static struct lrmoeLabels argsOf(const struct labelCase *c, enum side side) {
  const int64_t *at = c->tables->at[side];
  struct lrmoeLabels args = c->sizes;
  args.cellFirsts = at + cellFirsts * tableWords;
  args.cellCounts = at + cellCounts * tableWords;
  args.cellSources = at + cellSources * tableWords;
  args.cellOwners = at + cellOwners * tableWords;
  args.cellExperts = at + cellExperts * tableWords;
  args.instanceFirsts = at + instanceFirsts * tableWords;
  args.instanceCells = at + instanceCells * tableWords;
  args.sourceCells = at + sourceCells * tableWords;
  args.shares = at + shares * tableWords;
  args.ranks = at + ranks * tableWords;
  args.domains = at + domains * tableWords;
  args.hosts = at + hosts * tableWords;
  args.flags = c->flags->at[side];
  args.missing = c->missing->at[side];
  args.work = c->work->at[side];
  return args;
}

/* Each instance executes its share, and what is kept is executed. */
static void checkShares(const struct labelCase *c, int isFixed) {
  const uint8_t *labels = c->flags->at[onHost];
  const int64_t *missing = c->missing->at[onHost];
  int64_t given[2 * maxExperts * maxRanks] = {0};
  for (int64_t cell = 0; cell < c->sizes.numCells; cell++) {
    int64_t e = tableOf(c, cellExperts)[cell];
    for (int64_t q = 0; q < tableOf(c, cellCounts)[cell]; q++) {
      uint8_t label = labels[tableOf(c, cellFirsts)[cell] + q];
      if (label == lrmoeLabelStayed)
        given[tableOf(c, cellOwners)[cell]]++;
      else if (label >= lrmoeLabelMoved)
        given[tableOf(c, instanceFirsts)[e] + label - lrmoeLabelMoved]++;
    }
  }
  for (int64_t e = 0; e < c->sizes.numExperts; e++) {
    const int64_t *first = tableOf(c, instanceFirsts) + e;
    ck_assert_int_eq(missing[e], 0);
    for (int64_t i = first[0]; i < first[1] && !(isFixed && e == 0); i++)
      ck_assert_int_eq(given[i], tableOf(c, shares)[i]);
  }
}

START_TEST(labelsAreTheCpus) {
  static const int64_t numRanks[] = {1, 2, 3, 9, 33, maxRanks};
  static const int64_t numPairs[] = {0, 1, 40, 900, 3000};
  struct naiveRandom random = {(uint64_t)_i + 1};
  chooseOrder(_i % numOrders);
  struct labelCase c = makeCase(&random, numRanks[_i % 6], numPairs[_i % 5]);
  int isFixed = _i % 4 == 3;
  keepPairs(&random, &c, isFixed);
  mirrorPut(c.tables);
  mirrorPut(c.flags);
  for (enum side side = onHost; side < numSides; side++) {
    struct lrmoeLabels args = argsOf(&c, side);
    args.comesWithX = _i % 3 == 2;
    ASSERT_RUN(side, labelPairs, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(c.flags, "labels");
  assertSameBytes(c.missing, "missing");
  checkShares(&c, isFixed);
  mirrorFreeAll();
}
END_TEST

/* Shares that are too small leave pairs without a place. */
START_TEST(missingPlacesAreCounted) {
  struct naiveRandom random = {(uint64_t)_i + 1};
  struct labelCase c = makeCase(&random, 3, 100);
  keepPairs(&random, &c, 0);
  memset(tableOf(&c, shares), 0, (size_t)tableWords * sizeof(int64_t));
  mirrorPut(c.tables);
  mirrorPut(c.flags);
  int64_t numKept = 0;
  for (int64_t i = 0; i < 100; i++)
    numKept += ((uint8_t *)c.flags->at[onHost])[i];
  for (enum side side = onHost; side < numSides; side++) {
    struct lrmoeLabels args = argsOf(&c, side);
    ASSERT_RUN(side, labelPairs, &args, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameBytes(c.missing, "missing");
  ck_assert_int_eq(((int64_t *)c.missing->at[onHost])[0], numKept);
  mirrorFreeAll();
}
END_TEST

/* Five ranks, of which 0 and 1 share a domain, 2 and 3 a host with them; the
 * first instance keeps two, and two of rank 1 leave: near first. */
START_TEST(nearComesFirst) {
  uint8_t flags[] = {1, 1, 1, 0, 1, 1, 1};
  const int64_t firsts[] = {0, 2};
  const int64_t counts[] = {2, 5};
  const int64_t sources[] = {0, 1};
  const int64_t zeros[] = {0, 0, 0, 0, 0};
  const int64_t instances[] = {0, 4};
  const int64_t instanceEnds[] = {0, 2, 2, 2, 2};
  const int64_t sourceEnds[] = {0, 1, 2, 2, 2, 2};
  const int64_t wanted[] = {2, 1, 1, 2};
  const int64_t at[] = {0, 4, 2, 1};
  const int64_t domain[] = {0, 0, 1, 2, 3};
  const int64_t host[] = {0, 0, 0, 0, 1};
  int64_t missing = -1;
  int64_t work[100];
  const struct lrmoeLabels args = {.numRanks = 5,
                                   .numExperts = 1,
                                   .numInstances = 4,
                                   .numCells = 2,
                                   .maxPairs = 5,
                                   .cellFirsts = firsts,
                                   .cellCounts = counts,
                                   .cellSources = sources,
                                   .cellOwners = zeros,
                                   .cellExperts = zeros,
                                   .instanceFirsts = instances,
                                   .instanceCells = instanceEnds,
                                   .sourceCells = sourceEnds,
                                   .shares = wanted,
                                   .ranks = at,
                                   .domains = domain,
                                   .hosts = host,
                                   .flags = flags,
                                   .missing = &missing,
                                   .work = work};
  lrmoeLabelPairs(&args);
  ck_assert_mem_eq(flags, ((uint8_t[]){1, 1, 5, 0, 5, 4, 3}), sizeof flags);
  ck_assert_int_eq(missing, 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda_labels");
  TCase *tests = tcase_create("labels");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, labelsAreTheCpus, 0, 60);
  tcase_add_loop_test(tests, missingPlacesAreCounted, 0, 3);
  tcase_add_test(tests, nearComesFirst);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
