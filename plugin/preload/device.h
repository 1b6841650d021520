/* Exchanges of rows in a device's memory, by way of the CUDA module. */
#ifndef LRMOE_PLUGIN_PRELOAD_DEVICE_H
#define LRMOE_PLUGIN_PRELOAD_DEVICE_H

#include "kernels/backend.h"
#include "plugin/preload/elide.h"

/* Where the buffers of an exchange are. */
enum lrmoeMemoryKind {
  lrmoeMemoryHost,
  lrmoeMemoryDevice,
  lrmoeMemoryMixed,  /* of both, or a stream that is captured */
  lrmoeMemoryUnknown /* or of a device that cannot be used: it is warned of */
};
enum lrmoeMemoryKind lrmoeDeviceKind(struct lrmoePreloadComm *comm,
                                     const struct lrmoePreloadCall *calls,
                                     int64_t numCalls);

/* Before the ranks publish: room for all that may come.  0: there is none. */
int lrmoeDevicePrepare(struct lrmoeElision *elision);

/* For all rows sent, message by message: marks of those with a bit, or keys by
 * the hint.  The host waits for the stream; NULL: a failure. */
const uint8_t *lrmoeDeviceMarks(struct lrmoeElision *elision);
const uint32_t *lrmoeDeviceKeys(struct lrmoeElision *elision);

/* As lrmoeCrossIssue and lrmoeCrossFinish. */
lrmoeResult_t lrmoeDeviceIssue(const struct lrmoePreloadReal *real,
                               const struct lrmoeElision *elision);
lrmoeResult_t lrmoeDeviceFinish(const struct lrmoeElision *elision);

/* When NCCL has let go of the communicator. */
void lrmoeDeviceFree(struct lrmoePreloadDevice *device);

#endif
