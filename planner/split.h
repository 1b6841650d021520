/* The best split of pairs over given instances: see split.c. */
#ifndef LRMOE_PLANNER_SPLIT_H
#define LRMOE_PLANNER_SPLIT_H

#include "planner/work.h"

/* Changes `shares` [instances->count], whose sums per expert stay as they
 * are, until the highest load of a rank is the least that these instances
 * allow, and returns it; work->loads are the loads.  `bound` is a proven lower
 * bound of it. */
int64_t lrmoeSplit(struct lrmoeWork *work,
                   const struct lrmoeInstances *instances, int64_t *shares,
                   int64_t bound);

/* The same for ranks that begin at base [G], NULL: 0. */
int64_t lrmoeSplitOver(struct lrmoeWork *work,
                       const struct lrmoeInstances *instances, int64_t *shares,
                       const int64_t *base, int64_t bound);

/* Changes shares until no rank, begun at base, is above `limit`; 0 if no split
 * does that: then work->rankStamps[g] == work->stamp says which ranks g make a
 * cut that holds too much. */
int lrmoeSplitFits(struct lrmoeWork *work,
                   const struct lrmoeInstances *instances, int64_t *shares,
                   const int64_t *base, int64_t limit);

/* Moves as many pairs as can be off the ranks above `limit`; returns how many
 * are left there, the least that any split leaves, or once they are `enough`
 * some number from there on. */
struct lrmoeSplitGoal {
  const int64_t *base; /* [G] */
  int64_t limit;
  int64_t enough;
};
int64_t lrmoeSplitExcess(struct lrmoeWork *work,
                         const struct lrmoeInstances *instances,
                         int64_t *shares, const struct lrmoeSplitGoal *goal);

/* After that, if it left some: work->inCut says which ranks they cannot
 * leave. */
void lrmoeSplitMarkCut(struct lrmoeWork *work,
                       const struct lrmoeInstances *instances,
                       const int64_t *shares, int64_t limit);

/* More pairs of the expert of an instance, for shares and loads as
 * lrmoeSplitFits leaves them; 0 if they do not fit: then shares and loads are
 * spoilt. */
struct lrmoeSplitMore {
  int32_t instance;
  int64_t pairs;
  int64_t limit;
};
int lrmoeSplitAdd(struct lrmoeWork *work,
                  const struct lrmoeInstances *instances, int64_t *shares,
                  const struct lrmoeSplitMore *more);

/* Scales shares of totals `from` [E] to totals `to` [E], rounding towards the
 * homes: where a split of `to` begins. */
void lrmoeSharesScale(const struct lrmoeWork *work,
                      const struct lrmoeInstances *instances,
                      const int64_t *from, const int64_t *to,
                      const int64_t *fromShares, int64_t *toShares);

#endif
