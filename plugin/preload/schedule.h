/* The order of a group's messages. */
#ifndef LRMOE_PLUGIN_PRELOAD_SCHEDULE_H
#define LRMOE_PLUGIN_PRELOAD_SCHEDULE_H

#include "plugin/preload/group.h"

/* Sorts messages by the step in which the topology's order turns to their peer,
 * a send before the receive of its step.  Those between the same two ranks keep
 * their order, which is what NCCL matches them by, so that ranks need not agree
 * on anything. */
void lrmoePreloadSort(struct lrmoePreloadCall *calls, int64_t numCalls);

#endif
