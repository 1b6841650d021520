/* Device communicators of NCCL (2.28 and later): see transport.h.
 *
 * NCCL does not say whether NICs can be used by devices but by failing to make
 * one, and a failure ends a non-blocking communicator, such as ours are.  So it
 * is tried on a communicator that is made for it, once for each that asks. */
#include "collectives/nccl/gin.h"

#include "collectives/nccl/call.h"
#include "collectives/nccl/group.h"

int lrmoeNcclGinVersion(void) {
  const struct lrmoeNccl *nccl = lrmoeNcclLoaded();
  int isThere = nccl->api.devCommCreate && nccl->api.devCommDestroy;
  return isThere ? nccl->version : 0;
}

lrmoeResult_t lrmoeNcclGinOpen(struct ncclComm *handle, const void *needs,
                               void *devComm) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  LRMOE_REQUIRE(comm && needs && devComm, "comm, needs or devComm is NULL");
  LRMOE_CHECK(lrmoeNcclOutside());
  LRMOE_CHECK(lrmoeNcclCommEnter(comm));
  return lrmoeNcclLeave(comm, "ncclDevCommCreate",
                        comm->api->devCommCreate(comm->nccl, needs, devComm));
}

/* The abort of a communicator has freed it. */
lrmoeResult_t lrmoeNcclGinClose(struct ncclComm *handle, const void *devComm) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  LRMOE_REQUIRE(comm && devComm, "comm or devComm is NULL");
  if (!lrmoeNcclCommHold(comm)) return lrmoeSuccess;
  lrmoeResult_t got = comm->api->devCommDestroy(comm->nccl, devComm);
  lrmoeNcclCommExit(comm);
  if (got == lrmoeSuccess) return got;
  return lrmoeNcclFail(comm->api, "ncclDevCommDestroy", got);
}

/* A peer may have given up before this rank's trial is whole. */
static int canOpen(struct ncclComm *handle, const void *needs, void *devComm) {
  struct ncclComm *trial = NULL;
  int rank = lrmoeNcclCommOf(handle)->rank;
  if (lrmoeNcclCommSplit(handle, 0, rank, &trial) != lrmoeSuccess) return 0;
  int isGood = lrmoeNcclGinOpen(trial, needs, devComm) == lrmoeSuccess &&
               lrmoeNcclGinClose(trial, devComm) == lrmoeSuccess;
  lrmoeNcclCommDestroy(trial);
  return isGood;
}

lrmoeResult_t lrmoeNcclGinProbe(struct ncclComm *handle, const void *needs,
                                void *devComm) {
  struct lrmoeNcclComm *comm = lrmoeNcclCommOf(handle);
  LRMOE_REQUIRE(comm, "comm is NULL");
  if (comm->gin == lrmoeNcclGinUnknown)
    comm->gin =
        canOpen(handle, needs, devComm) ? lrmoeNcclGinGood : lrmoeNcclGinNone;
  LRMOE_CHECK(lrmoeNcclCommCheck(comm));
  if (comm->gin == lrmoeNcclGinGood) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeUnsupported,
                    "NCCL finds no NIC that devices can use on every rank");
}
