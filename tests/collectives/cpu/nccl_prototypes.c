/* Checks when it is compiled: every NCCL function fits its field of the
 * transport table.  NCCL's types stand in for those of lrmoe.h. */
#include <nccl.h>

#include <stddef.h>
#include <stdint.h>

#define LRMOE_H         /* leave the public header out */
#define lrmoeResult_t   ncclResult_t
#define lrmoeUniqueId   ncclUniqueId
#define lrmoeDataType_t ncclDataType_t
#define lrmoeRedOp_t    ncclRedOp_t
#define lrmoeStream_t   cudaStream_t

#include "collectives/transport.h"

extern const struct lrmoeTransport testNcclTransport;

const struct lrmoeTransport testNcclTransport = {
    .name = "nccl",
    .getUniqueId = ncclGetUniqueId,
    .commInitRank = ncclCommInitRank,
    .commDestroy = ncclCommDestroy,
    .commAbort = ncclCommAbort,
    .commGetAsyncError = ncclCommGetAsyncError,
    .commCount = ncclCommCount,
    .commUserRank = ncclCommUserRank,
    .memAlloc = ncclMemAlloc,
    .memFree = ncclMemFree,
#if NCCL_VERSION_CODE >= 22700
    .commWindowRegister = ncclCommWindowRegister,
    .commWindowDeregister = ncclCommWindowDeregister,
#endif
#if NCCL_VERSION_CODE >= 22900
    .getPeerPointer = ncclGetPeerDevicePointer,
#endif
    .groupStart = ncclGroupStart,
    .groupEnd = ncclGroupEnd,
    .send = ncclSend,
    .recv = ncclRecv,
    .allGather = ncclAllGather,
    .allReduce = ncclAllReduce,
    .reduceScatter = ncclReduceScatter,
    .broadcast = ncclBroadcast,
#if NCCL_VERSION_CODE >= 22800
    .allToAll = ncclAlltoAll,
#endif
};
