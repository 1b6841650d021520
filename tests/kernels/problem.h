/* A random expert with inputs, gradients and room for results, and its
 * forward and backward pass in double. */
#ifndef LRMOE_TESTS_KERNELS_PROBLEM_H
#define LRMOE_TESTS_KERNELS_PROBLEM_H

#include "kernels/expert_cpu.h"
#include "naive.h"

struct problem {
  struct lrmoeExpertShape shape;
  int64_t numRows;
  int64_t numTokens; /* rows of x, g and y */
  int64_t fc1Width;
  void *x;        /* [numTokens, H] */
  void *g;        /* [numTokens, H] */
  int64_t *token; /* [numRows] row of x, g and y */
  float *alpha;   /* [numRows] */
  void *w1;
  void *w2;
  /* Results. */
  void *saved;
  float *phiNorm;
  float *y;
  float *dw1;
  float *dw2;
  float *dx; /* [numRows, H] */
  float *dAlpha;
  void *rows; /* [numRows, H] y or dx as the kernels give it */
};

struct problem problemMake(struct naiveRandom *random,
                           const struct lrmoeExpertShape *shape,
                           int64_t numRows);
void problemFree(struct problem *problem);

/* Runs the kernels; results are zeroed first.  dw1 and dw2 may be NULL. */
lrmoeResult_t problemForward(struct problem *problem,
                             struct lrmoeExpertContext *context);
lrmoeResult_t problemBackward(struct problem *problem,
                              struct lrmoeExpertContext *context);

/* The same in double, with fc1 and phi rounded to the type (not in fp32). */
struct naiveResults {
  double *y;
  double *phiNorm;
  double *dx;
  double *dAlpha;
  double *dw1;
  double *dw2;
};

struct naiveResults problemNaive(const struct problem *problem);
void naiveResultsFree(struct naiveResults *results);

/* sum over rows of <g, alpha expert(x)> in double, nothing rounded. */
double problemLoss(const struct problem *problem);

#endif
