/* Reductions of elements. */
#ifndef LRMOE_COLLECTIVES_CPU_REDUCE_H
#define LRMOE_COLLECTIVES_CPU_REDUCE_H

#include "base/result.h"

struct lrmoeReduceArgs {
  void *to;
  /* Operands in rank order; `own` stands for rank `ownRank`'s, the others lie
   * `strideBytes` apart from `others`, each at the place of its rank. */
  const char *others;
  size_t strideBytes;
  const void *own;
  int ownRank;
  int numRanks;
  size_t count;
  lrmoeDataType_t type;
  lrmoeRedOp_t op;
};

/* to[i] = op over the ranks, in rank order, of operand[i]. */
void lrmoeReduce(const struct lrmoeReduceArgs *args);

#endif
