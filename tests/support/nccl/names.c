/* NCCL's names over the stand-in.
 *
 * Three libraries come from this file: as of 2.28; with STANDIN_OLD as of 2.27
 * and without all that may be missing, the names with p too; with STANDIN_NEW
 * as of 2.30, which knows pointers into peers' windows.
 * LRMOE_STANDIN_NCCL_VERSION=CODE sets another version. */
#include "names.h"

#include "standin.h"

#include <stdlib.h>

#ifdef STANDIN_OLD
#define NAME(symbol)    symbol
#define STANDIN_VERSION 22703
#else
#define NAME(symbol) p##symbol
#ifdef STANDIN_NEW
#define STANDIN_VERSION 23007
#else
#define STANDIN_VERSION 22809
#endif
#endif

/* A type needs no parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define DECLARE(type, field, symbol, parameters) type NAME(symbol) parameters;
LRMOE_NCCL_REQUIRED(DECLARE)
LRMOE_NCCL_OPTIONAL(DECLARE)
STANDIN_MORE(DECLARE)
/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- Library ---- */

lrmoeResult_t NAME(ncclGetVersion)(int *version) {
  const char *text = getenv("LRMOE_STANDIN_NCCL_VERSION");
  LRMOE_REQUIRE(version, "version is NULL");
  *version = text && *text ? atoi(text) : STANDIN_VERSION;
  return lrmoeSuccess;
}

const char *NAME(ncclGetErrorString)(lrmoeResult_t result) {
  return lrmoeGetErrorString(result);
}

const char *NAME(ncclGetLastError)(lrmoeNcclComm_t comm) {
  (void)comm; /* nor does NCCL look at it */
  return lrmoeGetLastError();
}

/* ---- Communicators ---- */

lrmoeResult_t NAME(ncclGetUniqueId)(lrmoeUniqueId *id) {
  return standinResult(lrmoeCpuTransport.getUniqueId(id));
}

lrmoeResult_t NAME(ncclCommInitRank)(lrmoeNcclComm_t *comm, int numRanks,
                                     lrmoeUniqueId id, int rank) {
  struct standinInit init = {numRanks, id, rank, 0};
  return standinResult(standinCommInit(&init, comm));
}

lrmoeResult_t NAME(ncclCommInitRankConfig)(lrmoeNcclComm_t *comm, int numRanks,
                                           lrmoeUniqueId id, int rank,
                                           lrmoeNcclConfig_t *config) {
  struct standinInit init = {numRanks, id, rank, 0};
  LRMOE_REQUIRE(!config || config->magic == LRMOE_NCCL_CONFIG_MAGIC,
                "the config is not initialised");
  LRMOE_REQUIRE(!config ||
                    config->size >= offsetof(lrmoeNcclConfig_t, cgaClusterSize),
                "the config has %zu B", config ? config->size : 0);
  init.isNonblocking = config && config->blocking == 0;
  return standinResult(standinCommInit(&init, comm));
}

lrmoeResult_t NAME(ncclCommSplit)(lrmoeNcclComm_t comm, int color, int key,
                                  lrmoeNcclComm_t *newComm,
                                  lrmoeNcclConfig_t *config) {
  (void)config; /* the child inherits */
  return standinResult(standinCommSplit(comm, color, key, newComm));
}

lrmoeResult_t NAME(ncclCommDestroy)(lrmoeNcclComm_t comm) {
  return standinResult(standinCommDestroy(comm));
}

lrmoeResult_t NAME(ncclCommAbort)(lrmoeNcclComm_t comm) {
  return standinResult(standinCommAbort(comm));
}

lrmoeResult_t NAME(ncclCommGetAsyncError)(lrmoeNcclComm_t comm,
                                          lrmoeResult_t *error) {
  return standinCommState(comm, error);
}

lrmoeResult_t NAME(ncclCommCount)(const lrmoeNcclComm_t comm, int *count) {
  struct standinComm *taken = NULL;
  LRMOE_CHECK(standinTake(comm, &taken));
  lrmoeResult_t result = lrmoeCpuTransport.commCount(taken->cpu, count);
  standinGive(taken);
  return result;
}

lrmoeResult_t NAME(ncclCommUserRank)(const lrmoeNcclComm_t comm, int *rank) {
  struct standinComm *taken = NULL;
  LRMOE_CHECK(standinTake(comm, &taken));
  lrmoeResult_t result = lrmoeCpuTransport.commUserRank(taken->cpu, rank);
  standinGive(taken);
  return result;
}

lrmoeResult_t NAME(ncclCommCuDevice)(const lrmoeNcclComm_t comm, int *device) {
  struct standinComm *taken = NULL;
  LRMOE_REQUIRE(device, "device is NULL");
  LRMOE_CHECK(standinTake(comm, &taken));
  *device = taken->device;
  standinGive(taken);
  return lrmoeSuccess;
}

#ifndef STANDIN_OLD

lrmoeResult_t NAME(ncclCommFinalize)(lrmoeNcclComm_t comm) {
  struct standinComm *taken = NULL;
  LRMOE_CHECK(standinTake(comm, &taken));
  standinQuiesce(taken);
  standinGive(taken);
  return lrmoeSuccess;
}

/* ---- Memory and windows ---- */

lrmoeResult_t NAME(ncclMemAlloc)(void **pointer, size_t bytes) {
  return standinResult(standinHostMemAlloc(pointer, bytes));
}

lrmoeResult_t NAME(ncclMemFree)(void *pointer) {
  return standinResult(standinHostMemFree(pointer));
}

lrmoeResult_t NAME(ncclCommWindowRegister)(lrmoeNcclComm_t comm, void *buffer,
                                           size_t bytes,
                                           lrmoeNcclWindow_t *window,
                                           int flags) {
  struct standinComm *taken = NULL;
  LRMOE_CHECK(standinTake(comm, &taken));
  standinQuiesce(taken);
  lrmoeResult_t result =
      standinWindowRegister(taken, buffer, bytes, window, flags);
  standinGive(taken);
  return standinResult(result);
}

lrmoeResult_t NAME(ncclCommWindowDeregister)(lrmoeNcclComm_t comm,
                                             lrmoeNcclWindow_t window) {
  struct standinComm *taken = NULL;
  LRMOE_CHECK(standinTake(comm, &taken));
  lrmoeResult_t result = standinWindowDeregister(taken, window);
  standinGive(taken);
  return standinResult(result);
}

struct lrmoeNcclTeam NAME(ncclTeamLsa)(lrmoeNcclComm_t comm) {
  struct standinComm *taken = NULL;
  struct lrmoeNcclTeam team = {1, 0, 1};
  if (standinTake(comm, &taken) != lrmoeSuccess || !taken) return team;
  if (taken->teamRanks > 1)
    team = (struct lrmoeNcclTeam){taken->teamRanks, taken->cpu->rank, 1};
  standinGive(taken);
  return team;
}

/* ---- Device communicators ---- */

lrmoeResult_t NAME(ncclDevCommCreate)(lrmoeNcclComm_t comm, const void *needs,
                                      void *devComm) {
  struct standinComm *taken = NULL;
  LRMOE_REQUIRE(needs && devComm, "needs or devComm is NULL");
  LRMOE_CHECK(standinTake(comm, &taken));
  standinQuiesce(taken);
  lrmoeResult_t result = standinDevCommCreate(taken, needs, devComm);
  standinGive(taken);
  return standinResult(result);
}

lrmoeResult_t NAME(ncclDevCommDestroy)(lrmoeNcclComm_t comm,
                                       const void *devComm) {
  struct standinComm *taken = NULL;
  LRMOE_REQUIRE(devComm, "devComm is NULL");
  LRMOE_CHECK(standinTake(comm, &taken));
  lrmoeResult_t result = standinDevCommDestroy(taken, devComm);
  standinGive(taken);
  return standinResult(result);
}

#endif
#ifdef STANDIN_NEW

lrmoeResult_t NAME(ncclGetPeerDevicePointer)(lrmoeNcclWindow_t window,
                                             size_t offset, int peer,
                                             void **pointer) {
  return standinResult(standinWindowPointer(window, offset, peer, pointer));
}

#endif

/* ---- Groups, messages, collectives ---- */

lrmoeResult_t NAME(ncclGroupStart)(void) {
  return standinGroupStart();
}

lrmoeResult_t NAME(ncclGroupEnd)(void) {
  return standinGroupEnd();
}

lrmoeResult_t NAME(ncclSend)(const void *buffer, size_t count,
                             lrmoeDataType_t type, int peer,
                             lrmoeNcclComm_t comm, lrmoeStream_t stream) {
  struct lrmoeCall call = lrmoeCallOfSend(buffer, count, type, peer);
  return standinCall(comm, &call, stream);
}

lrmoeResult_t NAME(ncclRecv)(void *buffer, size_t count, lrmoeDataType_t type,
                             int peer, lrmoeNcclComm_t comm,
                             lrmoeStream_t stream) {
  struct lrmoeCall call = lrmoeCallOfRecv(buffer, count, type, peer);
  return standinCall(comm, &call, stream);
}

lrmoeResult_t NAME(ncclAllGather)(const void *from, void *to, size_t sendCount,
                                  lrmoeDataType_t type, lrmoeNcclComm_t comm,
                                  lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallAllGather, from, to, sendCount, type);
  return standinCall(comm, &call, stream);
}

/* NCCL's parameters. NOLINTBEGIN(readability-function-size) */

lrmoeResult_t NAME(ncclAllReduce)(const void *from, void *to, size_t count,
                                  lrmoeDataType_t type, lrmoeRedOp_t op,
                                  lrmoeNcclComm_t comm, lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallAllReduce, from, to, count, type);
  call.op = op;
  return standinCall(comm, &call, stream);
}

lrmoeResult_t NAME(ncclReduceScatter)(const void *from, void *to,
                                      size_t recvCount, lrmoeDataType_t type,
                                      lrmoeRedOp_t op, lrmoeNcclComm_t comm,
                                      lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallReduceScatter, from, to, recvCount, type);
  call.op = op;
  return standinCall(comm, &call, stream);
}

lrmoeResult_t NAME(ncclBroadcast)(const void *from, void *to, size_t count,
                                  lrmoeDataType_t type, int root,
                                  lrmoeNcclComm_t comm, lrmoeStream_t stream) {
  struct lrmoeCall call =
      lrmoeCallOf(lrmoeCallBroadcast, from, to, count, type);
  call.peer = root;
  return standinCall(comm, &call, stream);
}

/* NOLINTEND(readability-function-size) */

#ifndef STANDIN_OLD

lrmoeResult_t NAME(ncclAlltoAll)(const void *from, void *to, size_t count,
                                 lrmoeDataType_t type, lrmoeNcclComm_t comm,
                                 lrmoeStream_t stream) {
  struct lrmoeCall call = lrmoeCallOf(lrmoeCallAllToAll, from, to, count, type);
  return standinCall(comm, &call, stream);
}

/* ---- The names without p: weak twins, as in NCCL ---- */

#define TWIN(type, field, symbol, parameters) \
  extern type symbol parameters __attribute__((weak, alias("p" #symbol)));
LRMOE_NCCL_REQUIRED(TWIN)
LRMOE_NCCL_OPTIONAL_227(TWIN)
LRMOE_NCCL_OPTIONAL_228(TWIN)
STANDIN_MORE(TWIN)
#ifdef STANDIN_NEW
LRMOE_NCCL_OPTIONAL_229(TWIN)
#endif

#endif
