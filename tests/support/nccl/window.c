/* Windows of the stand-in: see standin.h.
 *
 * Over the CPU transport's memory they are the CPU transport's.  Over the
 * emulated device ranks reach each other's memory if they are threads of one
 * process.  Then a window is what NCCL of 2.28 shows to device code, where
 * addresses allow it, and for 2.29 and later a table behind
 * ncclGetPeerDevicePointer.  Where ranks cannot reach each other NCCL 2.28
 * gives a handle that is no window without a word, and so does this. */
#include "base/alloc.h"
#include "standin.h"

#include <unistd.h>

struct card {
  int64_t process;
  char *base;
};

struct standinWindow {
  struct standinWindow *next;
  struct ncclWindow_vidmem *handle;
  void *shown; /* device memory, or NULL */
  int rank;
  int numRanks;
  int isReached; /* all ranks can be */
  size_t bytes;
  struct card cards[];
};

/* The first fields of 2.28's ncclWindow_vidmem. */
struct shown228 {
  void *winHost;
  char *lsaFlatBase;
  int lsaRank;
  int worldRank;
  uint32_t stride4G;
};

static const uint64_t strideUnit = (uint64_t)1 << 32;

/* Of all communicators of the process, under standinMutex. */
static struct standinWindow *windows;

/* ---- Making ---- */

static lrmoeResult_t exchange(struct standinComm *comm, void *buffer,
                              struct standinWindow *made) {
  const struct card own = {(int64_t)getpid(), buffer};
  LRMOE_CHECK(lrmoeCpuTransport.allGather(&own, made->cards, sizeof own,
                                          lrmoeUint8, comm->cpu, NULL));
  made->isReached = 1;
  for (int r = 0; r < made->numRanks; r++)
    made->isReached &= made->cards[r].process == own.process;
  return lrmoeSuccess;
}

/* Ranks at equal distances, as the struct of 2.28 says it; 0: they are not. */
static uint32_t strideOf(const struct standinWindow *window) {
  uint64_t stride = strideUnit;
  if (window->numRanks > 1)
    stride = (uint64_t)(window->cards[1].base - window->cards[0].base);
  for (int r = 0; r < window->numRanks; r++)
    if (window->cards[r].base - window->cards[0].base !=
        (int64_t)(stride * (uint64_t)r))
      return 0;
  return stride % strideUnit ? 0 : (uint32_t)(stride / strideUnit);
}

static lrmoeResult_t show(struct standinWindow *window) {
  uint32_t stride = strideOf(window);
  if (!window->isReached || !stride) return lrmoeSuccess;
  const struct shown228 shown = {window, window->cards[0].base, window->rank,
                                 window->rank, stride};
  LRMOE_CHECK(standinHostMemAlloc(&window->shown, sizeof shown));
  standinHostAccessBegin();
  *(struct shown228 *)window->shown = shown;
  standinHostAccessEnd();
  return lrmoeSuccess;
}

static void freeWindow(struct standinWindow *window) {
  if (window->shown) standinHostMemFree(window->shown);
  lrmoeFree(window);
}

static void publish(struct standinComm *comm, struct standinWindow *made) {
  made->handle = made->shown ? made->shown : (void *)made;
  pthread_mutex_lock(&standinMutex);
  made->next = windows;
  windows = made;
  comm->teamRanks = made->isReached ? made->numRanks : 1;
  pthread_mutex_unlock(&standinMutex);
}

static lrmoeResult_t registerOnDevice(struct standinComm *comm, void *buffer,
                                      struct standinWindow **window) {
  struct standinWindow *made = NULL;
  size_t room =
      sizeof *made + (size_t)comm->cpu->numRanks * sizeof made->cards[0];
  LRMOE_CHECK(lrmoeAllocate(1, room, (void **)&made));
  made->rank = comm->cpu->rank;
  made->numRanks = comm->cpu->numRanks;
  lrmoeResult_t result = exchange(comm, buffer, made);
  if (result == lrmoeSuccess) result = show(made);
  if (result != lrmoeSuccess) {
    freeWindow(made);
    return result;
  }
  publish(comm, made);
  *window = made;
  return lrmoeSuccess;
}

lrmoeResult_t standinWindowRegister(struct standinComm *comm, void *buffer,
                                    size_t bytes,
                                    struct ncclWindow_vidmem **window,
                                    int flags) {
  struct standinWindow *made = NULL;
  if (!standinHostHasStreams())
    return lrmoeCpuTransport.commWindowRegister(comm->cpu, buffer, bytes,
                                                window, flags);
  LRMOE_CHECK(registerOnDevice(comm, buffer, &made));
  made->bytes = bytes;
  *window = made->handle;
  return lrmoeSuccess;
}

/* ---- Their end, and pointers ---- */

static struct standinWindow **linkOf(const struct ncclWindow_vidmem *handle) {
  struct standinWindow **link = &windows;
  while (*link && (*link)->handle != handle)
    link = &(*link)->next;
  return link;
}

lrmoeResult_t standinWindowDeregister(struct standinComm *comm,
                                      struct ncclWindow_vidmem *window) {
  if (!standinHostHasStreams())
    return lrmoeCpuTransport.commWindowDeregister(comm->cpu, window);
  pthread_mutex_lock(&standinMutex);
  struct standinWindow **link = linkOf(window);
  struct standinWindow *found = *link;
  if (found) *link = found->next;
  pthread_mutex_unlock(&standinMutex);
  LRMOE_REQUIRE(found, "no such window");
  freeWindow(found);
  return lrmoeSuccess;
}

lrmoeResult_t standinWindowPointer(struct ncclWindow_vidmem *window,
                                   size_t offset, int peer, void **pointer) {
  if (!standinHostHasStreams())
    return lrmoeCpuTransport.getPeerPointer(window, offset, peer, pointer);
  pthread_mutex_lock(&standinMutex);
  const struct standinWindow *found = *linkOf(window);
  pthread_mutex_unlock(&standinMutex);
  LRMOE_REQUIRE(found && peer >= 0 && peer < found->numRanks,
                "no such window, or peer %d", peer);
  *pointer = found->cards[peer].process == (int64_t)getpid()
                 ? found->cards[peer].base + offset
                 : NULL;
  return lrmoeSuccess;
}

void *standinWindowAt(const struct ncclWindow_vidmem *window, int rank,
                      size_t offset, size_t bytes) {
  pthread_mutex_lock(&standinMutex);
  const struct standinWindow *found = *linkOf(window);
  char *base = found && rank < found->numRanks && offset <= found->bytes &&
                       bytes <= found->bytes - offset
                   ? found->cards[rank].base
                   : NULL;
  pthread_mutex_unlock(&standinMutex);
  return base ? base + offset : NULL;
}
