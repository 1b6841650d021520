/* The transport seam: the NCCL calls that LRMoE uses, as a table.
 *
 * Every field of the first part has NCCL's own prototype (our enums share
 * NCCL's values): one filler, collectives/nccl/, calls the real functions and
 * the other, collectives/cpu/, implements them between processes of one
 * machine.  Where nccl.h is installed tests/collectives/cpu/nccl_prototypes.c
 * checks the prototypes at compile time.
 *
 * A `struct ncclComm *` is what the filler's commInit gave: opaque, and for
 * the NCCL filler not NCCL's own pointer.
 *
 * Semantics are NCCL's (see the group calls in lrmoe.h). */
#ifndef LRMOE_COLLECTIVES_TRANSPORT_H
#define LRMOE_COLLECTIVES_TRANSPORT_H

#include "lrmoe.h"

struct ncclComm;
struct ncclWindow_vidmem;

struct lrmoeTransport {
  const char *name;
  lrmoeResult_t (*getUniqueId)(lrmoeUniqueId *id);
  lrmoeResult_t (*commInitRank)(struct ncclComm **comm, int numRanks,
                                lrmoeUniqueId id, int rank);
  lrmoeResult_t (*commDestroy)(struct ncclComm *comm);
  lrmoeResult_t (*commAbort)(struct ncclComm *comm);
  lrmoeResult_t (*commGetAsyncError)(struct ncclComm *comm,
                                     lrmoeResult_t *error);
  lrmoeResult_t (*commCount)(struct ncclComm *comm, int *count);
  lrmoeResult_t (*commUserRank)(struct ncclComm *comm, int *rank);
  lrmoeResult_t (*memAlloc)(void **pointer, size_t bytes);
  lrmoeResult_t (*memFree)(void *pointer);
  lrmoeResult_t (*commWindowRegister)(struct ncclComm *comm, void *buffer,
                                      size_t bytes,
                                      struct ncclWindow_vidmem **window,
                                      int flags);
  lrmoeResult_t (*commWindowDeregister)(struct ncclComm *comm,
                                        struct ncclWindow_vidmem *window);
  /* As NCCL 2.29's ncclGetPeerDevicePointer; NULL where there is none. */
  lrmoeResult_t (*getPeerPointer)(struct ncclWindow_vidmem *window,
                                  size_t offset, int peer, void **pointer);
  lrmoeResult_t (*groupStart)(void);
  lrmoeResult_t (*groupEnd)(void);
  lrmoeResult_t (*send)(const void *buffer, size_t count, lrmoeDataType_t type,
                        int peer, struct ncclComm *comm, lrmoeStream_t stream);
  lrmoeResult_t (*recv)(void *buffer, size_t count, lrmoeDataType_t type,
                        int peer, struct ncclComm *comm, lrmoeStream_t stream);
  lrmoeResult_t (*allGather)(const void *send, void *recv, size_t sendCount,
                             lrmoeDataType_t type, struct ncclComm *comm,
                             lrmoeStream_t stream);
  lrmoeResult_t (*allReduce)(const void *send, void *recv, size_t count,
                             lrmoeDataType_t type, lrmoeRedOp_t op,
                             struct ncclComm *comm, lrmoeStream_t stream);
  lrmoeResult_t (*reduceScatter)(const void *send, void *recv, size_t recvCount,
                                 lrmoeDataType_t type, lrmoeRedOp_t op,
                                 struct ncclComm *comm, lrmoeStream_t stream);
  lrmoeResult_t (*broadcast)(const void *send, void *recv, size_t count,
                             lrmoeDataType_t type, int root,
                             struct ncclComm *comm, lrmoeStream_t stream);
  lrmoeResult_t (*allToAll)(const void *send, void *recv, size_t count,
                            lrmoeDataType_t type, struct ncclComm *comm,
                            lrmoeStream_t stream);

  /* What NCCL has no prototype for.  commInit joins with a time-out of one's
   * own in ms (0: LRMOE_TIMEOUT_MS), which a split hands on. */
  lrmoeResult_t (*commInit)(int numRanks, const lrmoeUniqueId *id, int rank,
                            int64_t timeoutMs, struct ncclComm **comm);
  lrmoeResult_t (*commSplit)(struct ncclComm *comm, int color, int key,
                             struct ncclComm **newComm);
  /* Marks the communicator as broken by this rank, for the reason in the last
   * error, so that every later call fails with it. */
  void (*commBreak)(struct ncclComm *comm);
  /* `stop` is called before the communicator's windows go with its abort, by
   * the thread that carries it out; NULL: windows outlive it. */
  void (*commGuard)(struct ncclComm *comm, void (*stop)(void *user),
                    void *user);
  /* Device communicators, from which devices hand rows to NICs
   * (kernels/gin.h has what `needs` and `devComm` are); all four or none.
   * Version: the NCCL_VERSION_CODE that kernels must be compiled for.  Probe:
   * collective; fails, and leaves comm whole, where open would fail, which is
   * for good. */
  int (*ginVersion)(void);
  lrmoeResult_t (*ginProbe)(struct ncclComm *comm, const void *needs,
                            void *devComm);
  lrmoeResult_t (*ginOpen)(struct ncclComm *comm, const void *needs,
                           void *devComm);
  lrmoeResult_t (*ginClose)(struct ncclComm *comm, const void *devComm);
  int hasStreams; /* 0: streams are NULL and a call is finished at its return */
};

/* Flags of commWindowRegister: NCCL's value for a window that every rank can
 * address. */
enum {
  lrmoeWindowSymmetric = 1
};

/* The table that LRMOE_BACKEND chooses; loads NCCL if need be. */
lrmoeResult_t lrmoeTransportChoose(const struct lrmoeTransport **transport);

/* The CPU filler (collectives/cpu/). */
extern const struct lrmoeTransport lrmoeCpuTransport;

/* The NCCL filler (collectives/nccl/): loads NCCL on the first call.  Where
 * mustBeHere is not 0 only an NCCL that the process has already will do. */
lrmoeResult_t lrmoeNcclTransportGet(int mustBeHere,
                                    const struct lrmoeTransport **transport);

/* The same table once it is loaded, before that NULL. */
const struct lrmoeTransport *lrmoeNcclTransportLoaded(void);

/* A handle of the NCCL filler's on a communicator of the program, which LRMoE
 * neither destroys nor, unless commAbort is called, aborts. */
lrmoeResult_t lrmoeNcclCommBorrow(struct ncclComm *nccl, int64_t timeoutMs,
                                  struct ncclComm **comm);

/* The CPU filler's own calls behind commInit, commSplit and commBreak. */
lrmoeResult_t lrmoeCpuCommInit(int numRanks, const lrmoeUniqueId *id, int rank,
                               int64_t timeoutMs, struct ncclComm **comm);
lrmoeResult_t lrmoeCpuCommSplit(struct ncclComm *comm, int color, int key,
                                struct ncclComm **newComm);

/* Peers fail with lrmoeRemoteError, naming this rank. */
void lrmoeCpuCommBreak(struct ncclComm *comm);

/* For tests: the n-th transport call from now (1 = the next send, recv, copy
 * or wait) fails once on this process; 0 turns it off.  Returns the number of
 * such calls since the last call. */
int64_t lrmoeCpuFailAt(int64_t n);

/* Whether pointer lies in a block of the CPU filler's memAlloc. */
int lrmoeCpuMemHolds(const void *pointer);

/* Bytes of one element; 0 for an unknown type. */
size_t lrmoeTypeBytes(lrmoeDataType_t type);

#endif
