/* Communicators come: joined, split off, borrowed.
 *
 * Own communicators are non-blocking ones, which is NCCL's way to have a
 * time-out: a call returns, this side asks how it went, and aborts what takes
 * too long. */
#include "collectives/nccl/call.h"
#include "collectives/nccl/comm.h"
#include "collectives/nccl/group.h"

/* Waits until NCCL's communicator has come to be, for the call `name`, and
 * finds its place. */
static lrmoeResult_t complete(struct lrmoeNcclComm *comm, const char *name) {
  LRMOE_CHECK(lrmoeNcclWait(comm, name));
  LRMOE_CHECK(lrmoeNcclCommEnter(comm));
  lrmoeResult_t got = comm->api->commUserRank(comm->nccl, &comm->rank);
  if (got == lrmoeSuccess)
    got = comm->api->commCount(comm->nccl, &comm->numRanks);
  return lrmoeNcclLeave(comm, "ncclCommCount", got);
}

/* Drops a communicator that did not come to be. */
static void drop(struct lrmoeNcclComm *comm) {
  if (comm->nccl) lrmoeNcclCommBreak(lrmoeNcclCommHandle(comm));
  lrmoeNcclCommFree(comm);
}

static lrmoeResult_t initRank(struct lrmoeNcclComm *comm, int numRanks,
                              const lrmoeUniqueId *id, int rank) {
  lrmoeNcclConfig_t config = LRMOE_NCCL_CONFIG(0);
  static const char name[] = "ncclCommInitRankConfig";
  lrmoeResult_t got =
      comm->api->commInitRankConfig(&comm->nccl, numRanks, *id, rank, &config);
  if (got != lrmoeSuccess && got != lrmoeInProgress)
    return lrmoeNcclFail(comm->api, name, got);
  return complete(comm, name);
}

lrmoeResult_t lrmoeNcclCommInit(int numRanks, const lrmoeUniqueId *id, int rank,
                                int64_t timeoutMs, struct ncclComm **handle) {
  const struct lrmoeNccl *nccl = NULL;
  struct lrmoeNcclComm *made = NULL;
  LRMOE_REQUIRE(id && handle, "id or comm is NULL");
  LRMOE_REQUIRE(timeoutMs >= 0, "the time-out is %lld ms",
                (long long)timeoutMs);
  LRMOE_CHECK(lrmoeNcclOutside());
  LRMOE_CHECK(lrmoeNcclLoad(0, &nccl));
  LRMOE_CHECK(lrmoeNcclCommMake(nccl, timeoutMs, &made));
  lrmoeResult_t result = initRank(made, numRanks, id, rank);
  if (result != lrmoeSuccess) {
    drop(made);
    return result;
  }
  *handle = lrmoeNcclCommHandle(made);
  return lrmoeSuccess;
}

/* NCCL fills the new pointer in when the parent is done; the child has a state
 * of its own. */
static lrmoeResult_t split(struct lrmoeNcclComm *parent, int color, int key,
                           struct lrmoeNcclComm *made) {
  const int noColor = -1;
  static const char name[] = "ncclCommSplit";
  LRMOE_CHECK(lrmoeNcclCommEnter(parent));
  LRMOE_CHECK(lrmoeNcclLeave(parent, name,
                             parent->api->commSplit(parent->nccl,
                                                    color < 0 ? noColor : color,
                                                    key, &made->nccl, NULL)));
  return made->nccl ? complete(made, name) : lrmoeSuccess;
}

lrmoeResult_t lrmoeNcclCommSplit(struct ncclComm *handle, int color, int key,
                                 struct ncclComm **newHandle) {
  LRMOE_REQUIRE(handle && newHandle, "comm or newComm is NULL");
  struct lrmoeNcclComm *parent = lrmoeNcclCommOf(handle), *made = NULL;
  LRMOE_CHECK(lrmoeNcclOutside());
  LRMOE_CHECK(lrmoeNcclCommCheck(parent));
  lrmoeResult_t result =
      lrmoeNcclCommMake(lrmoeNcclLoaded(), parent->timeoutMs, &made);
  if (result != lrmoeSuccess) { /* the peers are in NCCL's call already */
    lrmoeNcclCommBreak(handle);
    return result;
  }
  result = split(parent, color, key, made);
  if (result == lrmoeSuccess && made->nccl) {
    *newHandle = lrmoeNcclCommHandle(made);
    return lrmoeSuccess;
  }
  drop(made);
  if (result == lrmoeSuccess) *newHandle = NULL; /* of no color */
  return result;
}

lrmoeResult_t lrmoeNcclCommBorrow(struct ncclComm *nccl, int64_t timeoutMs,
                                  struct ncclComm **comm) {
  const struct lrmoeNccl *loaded = NULL;
  struct lrmoeNcclComm *made = NULL;
  LRMOE_CHECK(lrmoeNcclOutside());
  LRMOE_CHECK(lrmoeNcclLoad(1, &loaded));
  LRMOE_CHECK(lrmoeNcclCommMake(loaded, timeoutMs, &made));
  made->nccl = nccl;
  made->isBorrowed = 1;
  lrmoeResult_t result = complete(made, "ncclCommGetAsyncError");
  if (result != lrmoeSuccess) {
    lrmoeNcclCommFree(made);
    return result;
  }
  *comm = lrmoeNcclCommHandle(made);
  return lrmoeSuccess;
}
