/* Optima by enumeration, for problems of a few ranks and experts.  Hosts of an
 * expert are a set of ranks, bit g for rank g. */
#ifndef LRMOE_TESTS_PLANNER_BRUTE_H
#define LRMOE_TESTS_PLANNER_BRUTE_H

#include <stdint.h>

struct bruteProblem {
  int numRanks;
  int numExperts;
  int slots;
  const int32_t *homes; /* [E] */
  const int64_t *loads; /* [E] */
};

/* The least peak with these hosts [E], by trying every split. */
int64_t bruteSplitPeak(const struct bruteProblem *problem,
                       const unsigned *hosts);

/* The same by Hall's condition: over all sets of ranks, the mean of the loads
 * that can go nowhere else. */
int64_t bruteCutPeak(const struct bruteProblem *problem, const unsigned *hosts);

/* The least number of pairs above `limit` with these hosts: the most, over all
 * sets of ranks, that can go nowhere else. */
int64_t bruteExcess(const struct bruteProblem *problem, const unsigned *hosts,
                    int64_t limit);

/* The least peak over all placements that fit the slots. */
int64_t brutePeak(const struct bruteProblem *problem);

#endif
