/* What the parts of dispatch, and combine, share. */
#ifndef LRMOE_COLLECTIVES_DISPATCH_H
#define LRMOE_COLLECTIVES_DISPATCH_H

#include "collectives/node.h"

/* Forward's rows, without the memory that they are in. */
struct lrmoeWay lrmoeDispatchWay(const struct lrmoeStep *step);

/* Tells executors, and relays, what the rows are: on return the host knows. */
lrmoeResult_t lrmoeDispatchMeta(struct lrmoeStep *step);

#endif
