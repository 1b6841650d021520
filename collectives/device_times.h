/* When work ran on a device, for LRMOE_TRACE: timed events around the calls
 * that enqueue it.
 *
 * Events are read when many have come and at the end; the host waits for them
 * then, and once before the first of each batch to learn how the device's clock
 * stands to its own.  Nothing of this happens without LRMOE_TRACE.  Times are
 * never an error of what is timed: those that cannot be had are left out. */
#ifndef LRMOE_COLLECTIVES_DEVICE_TIMES_H
#define LRMOE_COLLECTIVES_DEVICE_TIMES_H

#include "base/trace.h"
#include "kernels/backend.h"

struct lrmoeDeviceTimes;

/* *times = NULL: the backend has no timers. */
lrmoeResult_t lrmoeDeviceTimesOpen(const struct lrmoeBackend *backend,
                                   struct lrmoeTrace *trace,
                                   struct lrmoeDeviceTimes **times);

/* Work that is enqueued from here on; a ticket for End, or -1. */
int lrmoeDeviceTimesBegin(struct lrmoeDeviceTimes *times, const char *name,
                          lrmoeStream_t stream);

/* No more of it; bytes as in lrmoeTraceEvent. */
void lrmoeDeviceTimesEnd(struct lrmoeDeviceTimes *times, int ticket,
                         int64_t bytes);

/* Reads what is left, and frees; NULL is legal. */
void lrmoeDeviceTimesClose(struct lrmoeDeviceTimes *times);

#endif
