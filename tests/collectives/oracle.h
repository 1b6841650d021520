/* The oracle: a whole layer, all ranks, in one process and in double.
 *
 * It knows nothing of routes, windows or messages: it walks over (rank, token,
 * slot), computes every pair densely, and masks the backward with kept flags.
 * Inputs come from a seed, so that every rank can make every rank's. */
#ifndef LRMOE_TESTS_ORACLE_H
#define LRMOE_TESTS_ORACLE_H

#include "lrmoe.h"

enum {
  oracleMaxRanks = 16
};

struct oracleCase {
  uint64_t seed;
  uint64_t dataSeed; /* of routing, x and g; 0: seed.  Weights are seed's */
  int numRanks;
  int64_t numTokens[oracleMaxRanks];
  int32_t numExperts;
  int32_t topk;
  int64_t hidden;
  int64_t ffn;
  lrmoeDataType_t type;
  lrmoeActivation_t activation;
  int64_t retainPpm;
  lrmoeBackwardConfig_t backward;
  int isFused;
  int hotExpert;        /* -1, or all tokens choose it in slot 0 */
  int unusedExpert;     /* -1, or nobody chooses it */
  double noneShare;     /* of slots that are -1 */
  double equalScores;   /* 1: all g rows and weights are the same */
  int numPoison;        /* tokens per rank whose g is Inf or NaN */
  int isHomesMixed;     /* homes not contiguous */
  int numSlots;         /* > 0: plans with random replicas and shares */
  lrmoePolicy_t policy; /* not fixed: with replicas of this policy instead */
  lrmoeWeightConvention_t convention;
  lrmoeSavedState_t savedState;
  lrmoeRouterGrad_t routerGrad;
  int64_t gatherRanks; /* > 0: LRMOE_GATHER_RANKS of the layer */
  int ranksPerNode;    /* > 0: ranks are said to be on hosts of so many */
  int overlapsReturn;  /* of the layer, as ... */
  int packsX;
  lrmoeWire_t forwardWire;
};

/* Zeros for the caller to free; aborts without memory. */
/* Conversion by the row kernels, which have exhaustive tests of their own. */
void oracleConvert(lrmoeDataType_t from, const void *in, lrmoeDataType_t to,
                   int64_t count, void *out);

void *oracleZeroed(int64_t count, size_t bytes);

int64_t oracleMostTokens(const struct oracleCase *spec);
int64_t oracleFc1Rows(const struct oracleCase *spec);

/* The data of one rank. */
struct oracleRank {
  int64_t *topkIdx; /* [T, k] */
  float *weights;   /* [T, k] */
  void *x;          /* [T, H] in the case's type */
  void *g;
  float *xf; /* the same, as fp32 */
  float *gf;
};

struct oracleWeights { /* of one expert */
  void *w1;
  void *w2;
  float *w1f;
  float *w2f;
};

struct oracle {
  struct oracleCase spec;
  struct oracleRank *ranks;      /* [G] */
  struct oracleWeights *experts; /* [E] */
  int32_t *homes;                /* [E] */
};

struct oracle *oracleMake(const struct oracleCase *spec);
void oracleFree(struct oracle *oracle);

/* Results for one rank's tokens and one rank's experts. */
struct oracleResult {
  double *y;        /* [T, H] */
  double *dx;       /* [T, H] */
  double *dWeights; /* [T, k] */
  double *terms;    /* [T, k] of d(alpha) = <g, output>, the sum of |g| |output|
                       over elements: what rounding of outputs is relative to */
  double **dw1;     /* [E], NULL where the home is elsewhere */
  double **dw2;
};

/* kept[r] = flags [T, k] of rank r. */
struct oracleResult *oracleCompute(const struct oracle *oracle, int rank,
                                   uint8_t *const *kept);
void oracleResultFree(const struct oracle *oracle, struct oracleResult *result);

/* The score that the case's metric gives a pair, in double; random: 0. */
double oracleScore(const struct oracle *oracle, int rank, int64_t pair);

/* Pairs that a stable selection keeps: keys [n] listed in ascending pair id. */
void oracleSelect(int64_t numPairs, const uint32_t *keys, int64_t quota,
                  uint8_t *kept);

/* Uniform in [0, 1), from (seed, stream, index). */
double oracleUniform(uint64_t seed, uint64_t stream, uint64_t index);

/* A case that named ones change: three ranks, seven experts, top-3, bf16. */
struct oracleCase oraclePlainCase(void);

/* A random case of small shape, on 1 to 9 ranks. */
struct oracleCase oracleRandomCase(uint64_t seed);

/* A whole number in [low, high], from (seed, stream). */
int64_t oraclePick(uint64_t seed, uint64_t stream, int64_t low, int64_t high);

#endif
