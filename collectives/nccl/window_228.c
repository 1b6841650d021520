/* Pointers into peers' windows, as of NCCL 2.28: see window.h.
 *
 * A window is a struct on the device, from which device code computes them:
 * ranks whose memory a kernel can reach (the "LSA team", consecutive ranks) lie
 * at equal distances.  Where ranks cannot reach each other NCCL gives the
 * handle of a local registration instead, without a word; it is no device
 * memory. */
#include "base/alloc.h"
#include "collectives/nccl/window.h"
#include "kernels/backend.h"

#include <pthread.h>
#include <stdint.h>

/* The first fields of 2.28's ncclWindow_vidmem. */
struct window228 {
  void *winHost;
  char *lsaFlatBase; /* of the team's first rank */
  int lsaRank;
  int worldRank;
  uint32_t stride4G; /* between ranks, in units of 4 GiB */
};

struct noted {
  struct noted *next;
  const struct ncclWindow_vidmem *window;
  int teamRanks;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct noted *windows;

int lrmoeNcclWindow228Is(const struct lrmoeNccl *nccl) {
  return nccl->version >= 22800 && nccl->version < 22900 && nccl->api.teamLsa;
}

lrmoeResult_t lrmoeNcclWindow228Note(const struct lrmoeNcclComm *comm,
                                     struct ncclWindow_vidmem *window) {
  struct noted *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->window = window;
  made->teamRanks = comm->api->teamLsa(comm->nccl).numRanks;
  pthread_mutex_lock(&mutex);
  made->next = windows;
  windows = made;
  pthread_mutex_unlock(&mutex);
  return lrmoeSuccess;
}

void lrmoeNcclWindow228Forget(const struct ncclWindow_vidmem *window) {
  pthread_mutex_lock(&mutex);
  struct noted **link = &windows;
  while (*link && (*link)->window != window)
    link = &(*link)->next;
  struct noted *found = *link;
  if (found) *link = found->next;
  pthread_mutex_unlock(&mutex);
  lrmoeFree(found);
}

/* 0: a window that nobody noted. */
static int teamOf(const struct ncclWindow_vidmem *window) {
  int teamRanks = 0;
  pthread_mutex_lock(&mutex);
  for (const struct noted *noted = windows; noted; noted = noted->next)
    if (noted->window == window) teamRanks = noted->teamRanks;
  pthread_mutex_unlock(&mutex);
  return teamRanks;
}

static lrmoeResult_t failUnreachable(int peer) {
  return LRMOE_FAIL(lrmoeUnsupported,
                    "NCCL 2.28: the memory of rank %d cannot be addressed",
                    peer);
}

lrmoeResult_t lrmoeNcclWindow228Pointer(struct ncclWindow_vidmem *window,
                                        size_t offset, int peer,
                                        void **pointer) {
  const struct lrmoeBackend *backend = NULL;
  struct window228 seen;
  LRMOE_REQUIRE(window && pointer, "window or pointer is NULL");
  int teamRanks = teamOf(window);
  if (!teamRanks || lrmoeBackendLoad("cuda", &backend) != lrmoeSuccess)
    return failUnreachable(peer);
  LRMOE_RUN(backend, peek, window, sizeof seen, &seen);
  int lsaPeer = peer - (seen.worldRank - seen.lsaRank);
  if (lsaPeer < 0 || lsaPeer >= teamRanks) return failUnreachable(peer);
  *pointer = seen.lsaFlatBase +
             (((uint64_t)seen.stride4G << 32) * (uint64_t)lsaPeer) + offset;
  return lrmoeSuccess;
}
