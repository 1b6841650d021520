/* Exact products over a divisor, without wider integers. */
#ifndef LRMOE_PLANNER_SCALE_H
#define LRMOE_PLANNER_SCALE_H

#include <stdint.h>

/* Floor of part * value / whole, with what remains in *rest, for
 * 0 <= part <= whole, whole >= 1 and value >= 0: at most value.  By long
 * division where the product has no room. */
static inline int64_t lrmoeScale(int64_t part, int64_t value, int64_t whole,
                                 int64_t *rest) {
  if (part <= INT32_MAX && value <= INT32_MAX) {
    *rest = part * value % whole;
    return part * value / whole;
  }
  uint64_t quotient = 0, left = 0;
  uint64_t add = (uint64_t)part, divisor = (uint64_t)whole;
  for (int bit = 62; bit >= 0; bit--) {
    left <<= 1;
    quotient <<= 1;
    if (left >= divisor) left -= divisor, quotient++;
    if ((uint64_t)value >> bit & 1) left += add;
    if (left >= divisor) left -= divisor, quotient++;
  }
  *rest = (int64_t)left;
  return (int64_t)quotient;
}

#endif
