/* What a backward leaves, as bytes that two ways of it can be compared by. */
#ifndef LRMOE_TESTS_LEFT_H
#define LRMOE_TESTS_LEFT_H

#include "driver.h"

struct left {
  char *bytes;
  int64_t count;
  int64_t room;
};

void leftAppend(struct left *left, const void *data, int64_t count);

/* The row of g of every pair, and weights: where rows lie may differ.  0, or 1
 * after a complaint. */
int leftAppendHandoff(struct left *left, const struct driver *d);

/* part is how all begins. */
int leftIsSame(const struct left *all, const struct left *part);

#endif
