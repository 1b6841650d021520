/* Routes: which pair goes where, as indices.  Local, integers only. */
#ifndef LRMOE_COLLECTIVES_ROUTE_H
#define LRMOE_COLLECTIVES_ROUTE_H

#include "collectives/step.h"

/* Ordinals [low, high) of (source, expert) that plan instance `instance`
 * executes in forward: by prefix of F over the pairs of the expert in
 * ascending pair id (design 3, step 4). */
struct lrmoeRange {
  int64_t low;
  int64_t high;
};
struct lrmoeRange lrmoeRouteRange(const struct lrmoeStep *step, int32_t source,
                                  int32_t expert, int32_t instance);

/* Fills in the source's and the executor's part of the step from the plan. */
lrmoeResult_t lrmoeRoutePrepare(struct lrmoeStep *step);

/* Distinct (token, executor) rows of the pairs with dest[pair] >= 0, by
 * executor and then token.  tokens has room for numTokens * min(k, G). */
struct lrmoeRowRoute {
  const int32_t *dest; /* [T, perToken] */
  int32_t perToken;
  int64_t *offsets; /* [G + 1] out */
  int64_t *tokens;  /* [rows] out */
};
lrmoeResult_t lrmoeRouteRows(struct lrmoeStep *step,
                             const struct lrmoeRowRoute *route);

/* Rows that belong to out rows, row i to target[i]: rows that are added up, or
 * the places that a row goes to. */
struct lrmoeLists {
  enum lrmoeStepBlock block; /* for the lists */
  int64_t numRows;
  const int64_t *target; /* device [numRows] */
  int64_t numOut;
};

/* Lists each out row's rows in row order, on the backend: *offsets [numOut +
 * 1], then the list [numRows]. */
lrmoeResult_t lrmoeListsMake(struct lrmoeStep *step,
                             const struct lrmoeLists *lists, int64_t **offsets);

/* Out rows [first, last) of lists. */
struct lrmoeSums {
  const int64_t *offsets; /* device, whole lists */
  int64_t numOut;
  int64_t first;
  int64_t last;
};

/* out [last - first, H] = sums of rows in list order, each times its weight
 * (NULL: 1); device pointers, layer type. */
lrmoeResult_t lrmoeSumListed(struct lrmoeStep *step,
                             const struct lrmoeSums *sums, const void *rows,
                             const float *weights, void *out);

/* Lists and sums, all out rows. */
lrmoeResult_t lrmoeSumRows(struct lrmoeStep *step,
                           const struct lrmoeLists *lists, const void *rows,
                           const float *weights, void *out);

#endif
