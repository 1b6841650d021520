/* See difference.h. */
#include "difference.h"

#include "support/suite.h"
#include "tools/common/tensor.h"

#include <math.h>
#include <stdlib.h>

static const float change = 0.01f;

void differenceCheck(const struct difference *d) {
  double most = 0;
  for (int64_t i = 0; i < d->count; i++)
    most = fmax(most, fabs((double)d->gradient[i]));
  ck_assert_msg(most > 0, "%s: no gradient", d->name);
  for (int64_t i = 0; i < d->count; i++) {
    float value = d->values[i];
    d->values[i] = value + change;
    double up = d->loss(d->user);
    double span = (double)d->values[i];
    d->values[i] = value - change;
    double down = d->loss(d->user);
    span -= (double)d->values[i];
    d->values[i] = value;
    double numeric = (up - down) / span;
    ck_assert_msg(fabs(numeric - (double)d->gradient[i]) <= 0.01 * most,
                  "%s %lld: %g, not %g", d->name, (long long)i,
                  (double)d->gradient[i], numeric);
  }
}

float *differenceNumbers(int64_t count, uint64_t stream) {
  float *numbers = malloc((size_t)count * sizeof *numbers);
  struct toolRandom random = toolRandomMake(7, stream);
  ck_assert_ptr_nonnull(numbers);
  toolTensorRandom(lrmoeFloat32, count, 1, &random, numbers);
  return numbers;
}

double differenceDot(const float *a, const float *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += (double)a[i] * (double)b[i];
  return sum;
}
