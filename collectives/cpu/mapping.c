/* The table of mapped files: see mapping.h. */
#include "collectives/cpu/mapping.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t processMutex = PTHREAD_MUTEX_INITIALIZER;
static struct lrmoeMapping *mappings;
static atomic_uint forkGeneration;
static pthread_once_t forkOnce = PTHREAD_ONCE_INIT;
static void (*forgetHeapInChild)(void);

void lrmoeProcessLock(void) {
  pthread_mutex_lock(&processMutex);
}

void lrmoeProcessUnlock(void) {
  pthread_mutex_unlock(&processMutex);
}

unsigned lrmoeForkGeneration(void) {
  return atomic_load_explicit(&forkGeneration, memory_order_relaxed);
}

static void entryFree(struct lrmoeMapping *entry) {
  for (int i = 0; i < entry->numFds; i++)
    close(entry->fds[i]);
  lrmoeFree(entry->fds);
  lrmoeFree(entry);
}

/* The mappings themselves are not inherited; record locks stay with the
 * parent, whatever a child closes. */
static void forgetInChild(void) {
  while (mappings) {
    struct lrmoeMapping *entry = mappings;
    mappings = entry->next;
    entryFree(entry);
  }
  if (forgetHeapInChild) forgetHeapInChild();
  atomic_fetch_add(&forkGeneration, 1);
  lrmoeProcessUnlock();
}

static void registerFork(void) {
  pthread_atfork(lrmoeProcessLock, lrmoeProcessUnlock, forgetInChild);
}

void lrmoeForkRegister(void (*forgetHeap)(void)) {
  if (forgetHeap) forgetHeapInChild = forgetHeap;
  pthread_once(&forkOnce, registerFork);
}

static struct lrmoeMapping *entryFind(const uint64_t token[2]) {
  struct lrmoeMapping *entry = mappings;
  while (entry && memcmp(entry->token, token, sizeof entry->token) != 0)
    entry = entry->next;
  return entry;
}

static lrmoeResult_t entryMap(const struct lrmoeMappingArgs *args,
                              struct lrmoeMapping *entry) {
  if (args->fd < 0)
    return LRMOE_FAIL(lrmoeSystemError,
                      "a memfd did not come through the "
                      "socket: too many open files (ulimit -n)?");
  if (args->maxFds) LRMOE_CHECK(LRMOE_ALLOCATE(args->maxFds, &entry->fds));
  entry->maxFds = args->maxFds;
  memcpy(entry->token, args->token, sizeof entry->token);
  entry->bytes = args->bytes;
  void *base = mmap(NULL, args->bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, args->fd, 0);
  if (base == MAP_FAILED)
    return LRMOE_FAIL(lrmoeSystemError,
                      "cannot map %zu B of shared memory: %s (address space; "
                      "see LRMOE_HEAP_BYTES)",
                      args->bytes, strerror(errno));
  madvise(base, args->bytes, MADV_DONTFORK);
  madvise(base, args->bytes, MADV_HUGEPAGE); /* where the system lets shmem */
  entry->base = base;
  return lrmoeSuccess;
}

static lrmoeResult_t entryMake(const struct lrmoeMappingArgs *args,
                               struct lrmoeMapping **made) {
  struct lrmoeMapping *entry = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &entry));
  lrmoeResult_t result = entryMap(args, entry);
  if (result != lrmoeSuccess) {
    entryFree(entry);
    return result;
  }
  entry->next = mappings;
  mappings = entry;
  *made = entry;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMappingOpen(const struct lrmoeMappingArgs *args,
                               struct lrmoeMapping **mapping) {
  lrmoeProcessLock();
  lrmoeForkRegister(NULL);
  lrmoeResult_t result = lrmoeSuccess;
  struct lrmoeMapping *entry = entryFind(args->token);
  if (!entry) result = entryMake(args, &entry);
  int isKept =
      result == lrmoeSuccess && args->fd >= 0 && entry->numFds < entry->maxFds;
  if (isKept) entry->fds[entry->numFds++] = args->fd;
  if (!isKept && args->fd >= 0) close(args->fd);
  if (result == lrmoeSuccess) {
    entry->numUsers++;
    *mapping = entry;
  }
  lrmoeProcessUnlock();
  return result;
}

void lrmoeMappingClose(struct lrmoeMapping *mapping) {
  if (!mapping) return;
  lrmoeProcessLock();
  if (--mapping->numUsers == 0) {
    struct lrmoeMapping **link = &mappings;
    while (*link != mapping)
      link = &(*link)->next;
    *link = mapping->next;
    munmap(mapping->base, mapping->bytes);
    entryFree(mapping);
  }
  lrmoeProcessUnlock();
}
