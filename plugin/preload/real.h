/* The functions of the process's NCCL that the shim calls or forwards to. */
#ifndef LRMOE_PLUGIN_PRELOAD_REAL_H
#define LRMOE_PLUGIN_PRELOAD_REAL_H

#include "collectives/nccl/api.h"

/* X(field, symbol, parameters), all with an ncclResult_t.  The first two lists
 * are interposed, the third is only called.  What is new in 2.28, or
 * not in all of them, may be missing: NULL. */
#define PRELOAD_INTERPOSED(X)                                           \
  X(commInitRank, ncclCommInitRank,                                     \
    (lrmoeNcclComm_t * comm, int numRanks, lrmoeUniqueId id, int rank)) \
  X(commInitRankConfig, ncclCommInitRankConfig,                         \
    (lrmoeNcclComm_t * comm, int numRanks, lrmoeUniqueId id, int rank,  \
     lrmoeNcclConfig_t *config))                                        \
  X(commDestroy, ncclCommDestroy, (lrmoeNcclComm_t comm))               \
  X(commAbort, ncclCommAbort, (lrmoeNcclComm_t comm))                   \
  X(groupStart, ncclGroupStart, (void))                                 \
  X(groupEnd, ncclGroupEnd, (void))                                     \
  X(send, ncclSend,                                                     \
    (const void *buffer, size_t count, lrmoeDataType_t type, int peer,  \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))                       \
  X(recv, ncclRecv,                                                     \
    (void *buffer, size_t count, lrmoeDataType_t type, int peer,        \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))

#define PRELOAD_INTERPOSED_228(X)                                              \
  X(commSplit, ncclCommSplit,                                                  \
    (lrmoeNcclComm_t comm, int color, int key, lrmoeNcclComm_t *newComm,       \
     lrmoeNcclConfig_t *config))                                               \
  X(allToAll, ncclAlltoAll,                                                    \
    (const void *from, void *to, size_t count, lrmoeDataType_t type,           \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))                              \
  X(gather, ncclGather,                                                        \
    (const void *from, void *to, size_t count, lrmoeDataType_t type, int root, \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))                              \
  X(scatter, ncclScatter,                                                      \
    (const void *from, void *to, size_t count, lrmoeDataType_t type, int root, \
     lrmoeNcclComm_t comm, lrmoeStream_t stream))

#define PRELOAD_CALLED(X)                                              \
  X(commCount, ncclCommCount, (lrmoeNcclComm_t comm, int *count))      \
  X(commUserRank, ncclCommUserRank, (lrmoeNcclComm_t comm, int *rank)) \
  X(commGetAsyncError, ncclCommGetAsyncError,                          \
    (lrmoeNcclComm_t comm, lrmoeResult_t * error))

/* A field needs no parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
struct lrmoePreloadReal {
#define PRELOAD_FIELD(field, symbol, parameters) \
  lrmoeResult_t(*field) parameters;
  PRELOAD_INTERPOSED(PRELOAD_FIELD)
  PRELOAD_INTERPOSED_228(PRELOAD_FIELD)
  PRELOAD_CALLED(PRELOAD_FIELD)
#undef PRELOAD_FIELD
};
/* NOLINTEND(bugprone-macro-parentheses) */

/* The NCCL behind this library, however it was loaded; NULL, with a warning,
 * where there is none. */
const struct lrmoePreloadReal *lrmoePreloadReal(void);

#endif
