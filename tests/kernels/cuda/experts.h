/* Random experts on both sides: instances with rows that stayed and rows that
 * moved, which share weights and gradients. */
#ifndef LRMOE_TESTS_KERNELS_CUDA_EXPERTS_H
#define LRMOE_TESTS_KERNELS_CUDA_EXPERTS_H

#include "mirror.h"

enum {
  maxExperts = 5,
  maxEntries = 2 * maxExperts
};

struct entry {
  int expert;
  int64_t numRows;
  int isUnscaled;       /* forward */
  int isRecomputed;     /* backward: no saved FC1 output */
  int isDense;          /* x and g are read without an index */
  struct mirror *rows;  /* [numRows] of the tokens */
  struct mirror *saved; /* [numRows, W] forward's, and backward's input */
  struct mirror *savedIndex;
  struct mirror *alpha;
  struct mirror *phiNorm;
  struct mirror *y;
  struct mirror *dx;
  struct mirror *dAlpha;
};

struct experts {
  struct lrmoeExpertShape shape;
  int64_t fc1Width;
  int64_t numTokens;
  int numExperts;
  int numEntries;
  int hasGradients;
  struct mirror *x;
  struct mirror *g;
  struct mirror *w1[maxExperts];
  struct mirror *w2[maxExperts];
  struct mirror *dw1[maxExperts];
  struct mirror *dw2[maxExperts];
  struct entry entries[maxEntries];
  struct lrmoeExpertContext *contexts[numSides];
};

/* Rows of an entry: 0 to maxRows. */
struct experts expertsMake(struct naiveRandom *random,
                           const struct lrmoeExpertShape *shape,
                           int64_t maxRows, const char *gemm);
void expertsClose(struct experts *experts);

/* Each runs on one side; results go to the mirrors. */
void expertsForward(struct experts *experts, enum side side,
                    lrmoeStream_t stream);
void expertsBackward(struct experts *experts, enum side side,
                     lrmoeStream_t stream);
/* The device's, in two phases; the first says how it went. */
lrmoeResult_t expertsTrySplit(struct experts *experts, void *event,
                              lrmoeStream_t stream);
void expertsBackwardSplit(struct experts *experts, void *event,
                          lrmoeStream_t stream);
void expertsAlpha(struct experts *experts, enum side side,
                  lrmoeStream_t stream);

/* The device gets the host's saved rows, so that backward starts alike. */
void expertsShareSaved(struct experts *experts);

/* Both sides agree up to the type's rounding. */
void assertForward(const struct experts *experts);
void assertBackward(const struct experts *experts);
void assertAlpha(const struct experts *experts);

#endif
