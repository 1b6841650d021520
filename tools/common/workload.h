/* Routing for benchmarks: which experts each token chooses.
 *
 *   balanced     every expert equally often
 *   lognormal:S  popularity exp(S * z), z standard normal per expert
 *   zipf:S       popularity 1 / i^S, i the expert's place in a random order
 *   a load CSV   popularity in proportion to the counts of one (step, layer)
 *
 * Everything follows from (seed, rank), so that any rank can make any rank's
 * routing; the seed is printed by the programs.  Sequences are the same for
 * every run of one build; exp and log of another C library may differ in the
 * last bit and with it, rarely, a choice.
 *
 * How k distinct experts are drawn.  Popularity is first made into inclusion
 * shares p[e] = k * w[e] / sum(w), cut at 1 with the excess spread over the
 * others in proportion (a token can choose an expert once only).  Then per
 * token: experts in random order laid end to end, each p[e] long, and the k
 * experts hit by u, u + 1, ..., u + k - 1, u uniform in [0, 1).  That is
 * systematic sampling in random order (Madow 1949; Hartley and Rao 1962): the
 * expected load of every expert is exactly T * p[e], which drawing one by one
 * (or Gumbel top-k) does not give: those flatten the load.  Shares are whole
 * multiples of 2^-32, so no rounding can make an expert hit twice.  An expert
 * of weight 0 is chosen only when fewer than k have a weight.
 *
 * balanced deals instead: experts are shuffled into a deck, tokens take k
 * cards each, and a new deck follows when one is used up (arranged so that a
 * token across two decks has no expert twice).  Loads of one rank differ by
 * one at most after any number of tokens, and where k divides E a token's set
 * is uniform over all sets of k, so that the number of distinct ranks of a
 * token is that of uniform top-k. */
#ifndef LRMOE_TOOLS_WORKLOAD_H
#define LRMOE_TOOLS_WORKLOAD_H

#include "tools/common/fail.h"

#include <stdint.h>

enum {
  toolMaxTopk = 64
};

struct toolWorkloadConfig {
  const char *routing; /* text of --routing; not used with load */
  const char *load;    /* CSV file of --load, or NULL */
  int64_t step;        /* of the CSV, negative: the first */
  int64_t layer;
  uint64_t seed;
  int32_t numExperts; /* 0 with load: as many as the file has */
  int32_t topk;
};

struct toolWorkload {
  uint64_t seed;
  int32_t numExperts;
  int32_t topk;
  int isBalanced;
  uint64_t *shares; /* [E] p in units of 2^-32 */
};

/* Fails with toolBadInput for a routing that is not one of the above, more
 * slots than experts, a file that cannot be read or whose experts are not
 * numExperts. */
enum toolExit toolWorkloadCreate(const struct toolWorkloadConfig *config,
                                 struct toolWorkload *workload,
                                 struct toolError *error);
void toolWorkloadFree(struct toolWorkload *workload);

/* The next of "KIND[,KIND...]" in name, cut to its room, with *list behind it;
 * 0 at the end of the list.  For options that name several routings. */
int toolRoutingNext(const char **list, char name[64]);

/* Routing of one rank: topkIdx [T, k], no expert twice in a row, and
 * topkWeights [T, k], positive, each row adding up to 1 (exponential draws,
 * normalised: uniform over all such rows).  `round` gives another routing of
 * the same kind.  lrmoe functions take both arrays as they are. */
enum toolExit toolWorkloadRoute(const struct toolWorkload *workload, int rank,
                                int64_t round, int64_t numTokens,
                                int64_t *topkIdx, float *topkWeights);

/* Numbers for tensors and the like, by SplitMix64 (Steele et al. 2014). */
struct toolRandom {
  uint64_t state;
};
struct toolRandom toolRandomMake(uint64_t seed, uint64_t stream);
uint64_t toolRandomNext(struct toolRandom *random);
uint64_t toolRandomBelow(struct toolRandom *random, uint64_t bound);
double toolRandomUniform(struct toolRandom *random); /* in (0, 1) */
double toolRandomNormal(struct toolRandom *random);

#endif
