/* As much of nccl.h as the programs under test use, for machines without it. */
#ifndef LRMOE_TESTS_PLUGIN_NCCL_NAMES_H
#define LRMOE_TESTS_PLUGIN_NCCL_NAMES_H

#include <stddef.h>

typedef struct ncclComm *ncclComm_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
typedef int ncclResult_t;
typedef int ncclDataType_t;

enum {
  ncclSuccess = 0,
  ncclUint8 = 1,
  ncclInt64 = 4,
  ncclFloat32 = 7,
  ncclBfloat16 = 9
};

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int numRanks, ncclUniqueId id,
                              int rank);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                           ncclComm_t *newComm, void *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type,
                      int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                           ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count,
                          ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream);

#endif
