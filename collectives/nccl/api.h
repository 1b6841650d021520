/* The functions of NCCL that this library calls: names and prototypes, facts
 * of its ABI.  Where nccl.h is installed tests/collectives/nccl/prototypes.c
 * checks them at compile time.
 *
 * X(result, field, symbol, parameters); each function also has the name
 * p + symbol, which interposers leave alone. */
#ifndef LRMOE_COLLECTIVES_NCCL_API_H
#define LRMOE_COLLECTIVES_NCCL_API_H

#include "collectives/nccl/config.h"
#include "collectives/transport.h"

/* ncclComm_t and ncclWindow_t; NCCL's const is one of the pointer. */
typedef struct ncclComm *lrmoeNcclComm_t;
typedef struct ncclWindow_vidmem *lrmoeNcclWindow_t;

/* ncclTeam_t. */
struct lrmoeNcclTeam {
  int numRanks;
  int rank;
  int stride;
};

/* Without these it is not an NCCL that can be used. */
#define LRMOE_NCCL_REQUIRED(X)                                                 \
  X(lrmoeResult_t, getVersion, ncclGetVersion, (int *version))                 \
  X(const char *, getErrorString, ncclGetErrorString, (lrmoeResult_t result))  \
  X(const char *, getLastError, ncclGetLastError, (lrmoeNcclComm_t comm))      \
  X(lrmoeResult_t, getUniqueId, ncclGetUniqueId, (lrmoeUniqueId * id))         \
  X(lrmoeResult_t, commInitRankConfig, ncclCommInitRankConfig,                 \
    (lrmoeNcclComm_t * comm, int numRanks, lrmoeUniqueId id, int rank,         \
     lrmoeNcclConfig_t *config))                                               \
  X(lrmoeResult_t, commSplit, ncclCommSplit,                                   \
    (lrmoeNcclComm_t comm, int color, int key, lrmoeNcclComm_t *newComm,       \
     lrmoeNcclConfig_t *config))                                               \
  X(lrmoeResult_t, commDestroy, ncclCommDestroy, (lrmoeNcclComm_t comm))       \
  X(lrmoeResult_t, commAbort, ncclCommAbort, (lrmoeNcclComm_t comm))           \
  X(lrmoeResult_t, commGetAsyncError, ncclCommGetAsyncError,                   \
    (lrmoeNcclComm_t comm, lrmoeResult_t * error))                             \
  X(lrmoeResult_t, commCount, ncclCommCount,                                   \
    (const lrmoeNcclComm_t comm, int *count))                                  \
  X(lrmoeResult_t, commUserRank, ncclCommUserRank,                             \
    (const lrmoeNcclComm_t comm, int *rank))                                   \
  X(lrmoeResult_t, groupStart, ncclGroupStart, (void))                         \
  X(lrmoeResult_t, groupEnd, ncclGroupEnd, (void))                             \
  X(lrmoeResult_t, send, ncclSend,                                             \
    (const void *buffer, size_t count, lrmoeDataType_t type, int peer,         \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))                              \
  X(lrmoeResult_t, recv, ncclRecv,                                             \
    (void *buffer, size_t count, lrmoeDataType_t type, int peer,               \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))                              \
  X(lrmoeResult_t, allGather, ncclAllGather,                                   \
    (const void *from, void *to, size_t sendCount, lrmoeDataType_t type,       \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))                              \
  X(lrmoeResult_t, allReduce, ncclAllReduce,                                   \
    (const void *from, void *to, size_t count, lrmoeDataType_t type,           \
     lrmoeRedOp_t op, lrmoeNcclComm_t comm, lrmoeStream_t stream))             \
  X(lrmoeResult_t, reduceScatter, ncclReduceScatter,                           \
    (const void *from, void *to, size_t recvCount, lrmoeDataType_t type,       \
     lrmoeRedOp_t op, lrmoeNcclComm_t comm, lrmoeStream_t stream))             \
  X(lrmoeResult_t, broadcast, ncclBroadcast,                                   \
    (const void *from, void *to, size_t count, lrmoeDataType_t type, int root, \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))

/* These may be missing: NULL.  By the release that brought them. */
#define LRMOE_NCCL_OPTIONAL_227(X)                                         \
  X(lrmoeResult_t, commFinalize, ncclCommFinalize, (lrmoeNcclComm_t comm)) \
  X(lrmoeResult_t, memAlloc, ncclMemAlloc, (void **pointer, size_t bytes)) \
  X(lrmoeResult_t, memFree, ncclMemFree, (void *pointer))                  \
  X(lrmoeResult_t, commWindowRegister, ncclCommWindowRegister,             \
    (lrmoeNcclComm_t comm, void *buffer, size_t bytes,                     \
     lrmoeNcclWindow_t *window, int flags))                                \
  X(lrmoeResult_t, commWindowDeregister, ncclCommWindowDeregister,         \
    (lrmoeNcclComm_t comm, lrmoeNcclWindow_t window))

#define LRMOE_NCCL_OPTIONAL_228(X)                                   \
  X(lrmoeResult_t, allToAll, ncclAlltoAll,                           \
    (const void *from, void *to, size_t count, lrmoeDataType_t type, \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))

#define LRMOE_NCCL_OPTIONAL_229(X)                           \
  X(lrmoeResult_t, getPeerPointer, ncclGetPeerDevicePointer, \
    (lrmoeNcclWindow_t window, size_t offset, int peer, void **pointer))

/* Of nccl_device.h, which C cannot read: 2.28 and later. */
#define LRMOE_NCCL_OPTIONAL_DEVICE(X)                                   \
  X(struct lrmoeNcclTeam, teamLsa, ncclTeamLsa, (lrmoeNcclComm_t comm)) \
  X(lrmoeResult_t, devCommCreate, ncclDevCommCreate,                    \
    (lrmoeNcclComm_t comm, const void *needs, void *devComm))           \
  X(lrmoeResult_t, devCommDestroy, ncclDevCommDestroy,                  \
    (lrmoeNcclComm_t comm, const void *devComm))

#define LRMOE_NCCL_OPTIONAL(X) \
  LRMOE_NCCL_OPTIONAL_227(X)   \
  LRMOE_NCCL_OPTIONAL_228(X)   \
  LRMOE_NCCL_OPTIONAL_229(X)   \
  LRMOE_NCCL_OPTIONAL_DEVICE(X)

/* A type needs no parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
struct lrmoeNcclApi {
#define LRMOE_NCCL_FIELD(type, field, symbol, parameters) \
  type(*field) parameters;
  LRMOE_NCCL_REQUIRED(LRMOE_NCCL_FIELD)
  LRMOE_NCCL_OPTIONAL(LRMOE_NCCL_FIELD)
#undef LRMOE_NCCL_FIELD
};
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
