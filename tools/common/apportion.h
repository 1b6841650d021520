/* Whole numbers in proportion to weights: the largest-remainder rule. */
#ifndef LRMOE_TOOLS_APPORTION_H
#define LRMOE_TOOLS_APPORTION_H

#include "tools/common/fail.h"

#include <stdint.h>

/* parts [count] that add up to total >= 0, in proportion to weights [count]:
 * the quotients rounded down, and one more for those with the largest
 * remainders, the lower index first.  All zero where the weights are.  Exact:
 * in integers.  Weights may add up to 2^63 - 1; weights and parts may be the
 * same array. */
enum toolExit toolApportion(const int64_t *weights, int64_t count,
                            int64_t total, int64_t *parts,
                            struct toolError *error);

#endif
