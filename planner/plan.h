/* The plan: pure data.
 *
 * Invariants (design 3, checked by lrmoePlanVerify):
 *   1. F[e][.] sums to n[e], X[e][.] to K[e], 0 <= K[e] <= n[e];
 *   2. one instance of an expert on a rank at most, one of them at home;
 *   3. both are zero where no instance stands (they are listed by instance);
 *   4. the pairs of all experts add up to an int64.
 * The bounds come from the planner, which knows the spare slots; of policies
 * without a choice (lrmoePlanHasChoice) the peaks are their own bounds. */
#ifndef LRMOE_PLANNER_PLAN_H
#define LRMOE_PLANNER_PLAN_H

#include "base/result.h"

/* So that sizes of arrays are computed in size_t without overflow. */
enum {
  lrmoeMaxRanks = 1 << 16,
  lrmoeMaxExperts = 1 << 20,
  lrmoeMaxSlots = 1 << 10 /* spare ones of a rank: instances fit an int32 */
};

/* One block of memory holds the struct and its arrays, demand only where the
 * plan has a copy of it.  Those from memory to instanceRanks are what is hashed
 * and saved (memory only of plans with a model); the rest follows. */
struct lrmoePlan {
  uint64_t hash;
  int64_t pairs;
  int64_t kept;
  int64_t peakForward;
  int64_t peakKept;
  int64_t boundForward; /* proven lower bounds of the two peaks */
  int64_t boundKept;
  int64_t boundRetained;     /* proven upper bound of kept; 0: not sought */
  int64_t movesIn;           /* kept pairs that move in the worst case */
  int64_t peakMovesIn;       /* and the most of them into one rank */
  int64_t *rankForward;      /* [G] pairs that a rank executes in forward */
  int64_t *rankKept;         /* [G] and in backward */
  int64_t *rankMovesIn;      /* [G] of them moved here, in the worst case */
  lrmoeRankMemory_t *memory; /* [G] */
  int64_t *totals;           /* [E] n */
  const int64_t *demand;     /* [G, E] NULL: made from totals */
  int64_t *quotas;           /* [E] */
  int64_t *forwardPairs;     /* [numInstances] */
  int64_t *keptPairs;        /* [numInstances] */
  int32_t *homes;            /* [E] */
  int32_t *instanceOffsets;  /* [E + 1] */
  int32_t *instanceRanks;    /* [numInstances] */
  int32_t numRanks;
  int32_t numExperts;
  int32_t numInstances;
  int32_t homesMoved;     /* experts whose home is not the planner's */
  int32_t changesForward; /* 1: demand is not what the planner was given */
  int32_t hasModel;       /* 1: memory, commNs, crossNodeBytes and slack hold */
  int32_t constraintRank;
  lrmoeConstraint_t constraint;
  int64_t constraintSlack;
  int64_t commNs;
  int64_t crossNodeBytes;
  lrmoePolicy_t policy;
};

/* Where a plan has its demand. */
enum lrmoeDemandUse {
  lrmoeDemandCopied = 0,
  lrmoeDemandBorrowed = 1, /* it is the caller's */
  lrmoeDemandUnknown = 2   /* there are totals only */
};

/* What a plan begins with. */
struct lrmoePlanShape {
  int32_t numRanks;      /* 1 <= numRanks <= lrmoeMaxRanks */
  int32_t numExperts;    /* 1 <= numExperts <= lrmoeMaxExperts */
  int32_t numInstances;  /* that there is room for */
  const int64_t *demand; /* [G, E] */
  enum lrmoeDemandUse use;
};

/* A plan with its demand; the other arrays are zero. */
lrmoeResult_t lrmoePlanAllocate(const struct lrmoePlanShape *shape,
                                struct lrmoePlan **plan);

/* Bytes from demand to the end of instanceRanks. */
size_t lrmoePlanArrayBytes(int32_t numRanks, int32_t numExperts,
                           int32_t numInstances);

/* Whether a policy chooses where instances stand. */
static inline int lrmoePlanHasChoice(lrmoePolicy_t policy) {
  return policy != lrmoePolicyFixed && policy != lrmoePolicyBalanced &&
         policy != lrmoePolicyLocal;
}

/* As it is written in lrmoe.h; static storage. */
const char *lrmoePolicyName(lrmoePolicy_t policy);

/* Fills in sums, peaks and moves from the arrays and bounds of a plan that is
 * verified. */
void lrmoePlanSum(struct lrmoePlan *plan);

/* The same, and the hash: nothing changes afterwards. */
void lrmoePlanFinish(struct lrmoePlan *plan);

/* The hash alone, of a plan that is summed up and whose demand has this one. */
void lrmoePlanSeal(struct lrmoePlan *plan, uint64_t demandHash);

/* Of [G, E], a row after the other: the last row's, begun at the hash of those
 * before it; the first begins at 0. */
uint64_t lrmoeDemandRowHash(uint64_t before, const int64_t *row,
                            int32_t numExperts);

/* What is saved, in this order; parts may be empty. */
struct lrmoePlanPart {
  const void *data;
  size_t bytes;
};
enum {
  lrmoeNumPlanParts = 3 /* memory, demand, the other arrays */
};
void lrmoePlanParts(const struct lrmoePlan *plan,
                    struct lrmoePlanPart parts[lrmoeNumPlanParts]);

/* lrmoeInternalError naming the invariant that is broken, and where. */
lrmoeResult_t lrmoePlanVerify(const struct lrmoePlan *plan);

/* The same where the demand is known to be sound and to add up to pairs [E]:
 * without reading it again, which in large groups costs most. */
lrmoeResult_t lrmoePlanVerifyShares(const struct lrmoePlan *plan,
                                    const int64_t *pairs);

/* The same with another result, for plans that come from outside. */
lrmoeResult_t lrmoePlanVerifyAs(const struct lrmoePlan *plan,
                                lrmoeResult_t broken);

#endif
