/* Gradients against central differences. */
#ifndef LRMOE_TESTS_TRAIN_DIFFERENCE_H
#define LRMOE_TESTS_TRAIN_DIFFERENCE_H

#include <stdint.h>

/* Numbers that a loss depends on, and the gradient to be checked. */
struct difference {
  const char *name;
  float *values;
  const float *gradient;
  int64_t count;
  double (*loss)(void *user);
  void *user;
};

/* Changes each value in turn by a hundredth up and down; asserts that the
 * loss changes as the gradient says, to 1 % of the gradient's largest entry. */
void differenceCheck(const struct difference *d);

/* count numbers of deviation 1, always the same for a stream; free() them. */
float *differenceNumbers(int64_t count, uint64_t stream);

/* Sum of a b in double. */
double differenceDot(const float *a, const float *b, int64_t count);

#endif
