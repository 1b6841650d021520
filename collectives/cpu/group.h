/* Groups: calls that are collected, then progress together. */
#ifndef LRMOE_COLLECTIVES_CPU_GROUP_H
#define LRMOE_COLLECTIVES_CPU_GROUP_H

#include "collectives/cpu/comm.h"

lrmoeResult_t lrmoeCpuGroupStart(void);
lrmoeResult_t lrmoeCpuGroupEnd(void);

/* Whether comm may be used and the arguments of a call on it are right. */
lrmoeResult_t lrmoeGroupCheck(struct ncclComm *comm,
                              const struct lrmoeCall *call);

/* Adds a call to this thread's group, or runs it at once outside one. */
lrmoeResult_t lrmoeGroupCall(struct ncclComm *comm,
                             const struct lrmoeCall *call);

#endif
