/* Communicators of the stand-in: see standin.h. */
#include "base/alloc.h"
#include "collectives/cpu/failure.h"
#include "control.h"
#include "standin.h"

#include <stdio.h>

pthread_mutex_t standinMutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standinChanged = PTHREAD_COND_INITIALIZER;

static struct standinComm *alive;
static int64_t numMisuses;
static _Thread_local int64_t ownTimeoutMs;

lrmoeResult_t standinResult(lrmoeResult_t result) {
  if (result <= lrmoeInProgress) return result;
  if (result == lrmoeOutOfMemory) return lrmoeSystemError; /* as NCCL says */
  return result == lrmoeUnsupported ? lrmoeInvalidUsage : lrmoeInternalError;
}

int64_t lrmoeStandinMisuses(void) {
  pthread_mutex_lock(&standinMutex);
  int64_t count = numMisuses;
  numMisuses = 0;
  pthread_mutex_unlock(&standinMutex);
  return count;
}

void lrmoeStandinTimeoutMs(int64_t timeoutMs) {
  ownTimeoutMs = timeoutMs;
}

int64_t lrmoeStandinFailAt(int64_t n) {
  return lrmoeCpuFailAt(n);
}

int64_t lrmoeStandinAllocFailAt(int64_t n) {
  return lrmoeAllocFailAt(n);
}

/* ---- Handles ---- */

static struct ncclComm *handleOf(struct standinComm *comm) {
  return (struct ncclComm *)(void *)comm;
}

static struct standinComm **linkOf(struct ncclComm *handle) {
  struct standinComm **link = &alive;
  while (*link && handleOf(*link) != handle)
    link = &(*link)->next;
  return link;
}

/* NULL, with the error recorded, for what is not the handle of a communicator
 * that is alive. */
static struct standinComm *findLocked(struct ncclComm *handle) {
  struct standinComm *found = handle ? *linkOf(handle) : NULL;
  if (found) return found;
  numMisuses += handle != NULL;
  LRMOE_FAIL(lrmoeInvalidArgument,
             "%p is not a communicator, or it was destroyed or aborted",
             (void *)handle);
  return NULL;
}

static void removeLocked(struct standinComm *comm) {
  struct standinComm **link = linkOf(handleOf(comm));
  if (*link) *link = comm->next;
}

void standinNote(struct standinComm *comm, lrmoeResult_t result) {
  if (comm->result != lrmoeSuccess) return;
  comm->result = result;
  snprintf(comm->text, sizeof comm->text, "%s", lrmoeGetLastError());
}

static lrmoeResult_t usableLocked(const struct standinComm *comm) {
  LRMOE_REQUIRE(!comm->numBusy, "a call on the communicator is in progress");
  if (comm->result == lrmoeSuccess) return lrmoeSuccess;
  return LRMOE_FAIL(comm->result, "%s", comm->text);
}

lrmoeResult_t standinTake(struct ncclComm *handle, struct standinComm **comm) {
  pthread_mutex_lock(&standinMutex);
  struct standinComm *found = findLocked(handle);
  lrmoeResult_t result = found ? usableLocked(found) : lrmoeInvalidArgument;
  if (found && result == lrmoeSuccess) {
    found->numUsers++;
    *comm = found;
  }
  pthread_mutex_unlock(&standinMutex);
  return result;
}

void standinGiveLocked(struct standinComm *comm, struct standinComm **dead) {
  if (--comm->numUsers) return;
  comm->next = *dead;
  *dead = comm;
}

void standinBury(struct standinComm *dead) {
  while (dead) {
    struct standinComm *comm = dead;
    dead = comm->next;
    if (comm->cpu) lrmoeCpuTransport.commDestroy(comm->cpu);
    lrmoeFree(comm);
  }
}

void standinGive(struct standinComm *comm) {
  struct standinComm *dead = NULL;
  pthread_mutex_lock(&standinMutex);
  standinGiveLocked(comm, &dead);
  pthread_mutex_unlock(&standinMutex);
  standinBury(dead);
}

void standinInside(struct standinComm *comm, int change) {
  struct standinComm *dead = NULL;
  pthread_mutex_lock(&standinMutex);
  comm->numInside += change;
  if (change > 0)
    comm->numUsers++;
  else
    standinGiveLocked(comm, &dead);
  pthread_mutex_unlock(&standinMutex);
  standinBury(dead);
}

void standinQuiesce(struct standinComm *comm) {
  pthread_mutex_lock(&standinMutex);
  while (comm->numServed < comm->numTickets)
    pthread_cond_wait(&standinChanged, &standinMutex);
  pthread_mutex_unlock(&standinMutex);
}

static lrmoeResult_t makeComm(int isNonblocking, struct standinComm **comm) {
  struct standinComm *made = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  made->isNonblocking = isNonblocking;
  made->device = standinHostDevice();
  made->numUsers = 1;
  *comm = made;
  return lrmoeSuccess;
}

static void publish(struct standinComm *comm) {
  pthread_mutex_lock(&standinMutex);
  comm->next = alive;
  alive = comm;
  pthread_mutex_unlock(&standinMutex);
}

static lrmoeResult_t outsideGroup(void) {
  if (!standinGroupIsOpen()) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeInvalidUsage,
                    "the stand-in makes, splits and destroys communicators "
                    "outside of groups only");
}

/* ---- Joining ---- */

struct joining {
  struct standinComm *comm;
  struct standinInit init;
  int64_t timeoutMs;
};

static lrmoeResult_t join(const struct joining *joining) {
  struct ncclComm *cpu = NULL;
  struct standinComm *comm = joining->comm;
  lrmoeResult_t result =
      lrmoeCpuCommInit(joining->init.numRanks, &joining->init.id,
                       joining->init.rank, joining->timeoutMs, &cpu);
  pthread_mutex_lock(&standinMutex);
  comm->cpu = cpu;
  if (result != lrmoeSuccess) standinNote(comm, standinResult(result));
  int isAborted = comm->isAborted;
  pthread_mutex_unlock(&standinMutex);
  if (cpu && isAborted) lrmoeCpuTransport.commAbort(cpu);
  return standinResult(result);
}

static void *joinMain(void *argument) {
  struct joining *joining = argument;
  struct standinComm *comm = joining->comm, *dead = NULL;
  join(joining);
  lrmoeFree(joining);
  pthread_mutex_lock(&standinMutex);
  comm->numBusy--;
  standinGiveLocked(comm, &dead);
  pthread_cond_broadcast(&standinChanged);
  pthread_mutex_unlock(&standinMutex);
  standinBury(dead);
  return NULL;
}

/* Its thread is a user of comm. */
static lrmoeResult_t joinApart(const struct joining *joining) {
  struct joining *copy = NULL;
  pthread_t thread;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &copy));
  *copy = *joining;
  joining->comm->numBusy = 1;
  joining->comm->numUsers = 2;
  publish(joining->comm);
  if (pthread_create(&thread, NULL, joinMain, copy)) {
    joinMain(copy);
    return lrmoeSuccess;
  }
  pthread_detach(thread);
  return lrmoeInProgress;
}

lrmoeResult_t standinCommInit(const struct standinInit *init,
                              struct ncclComm **handle) {
  struct standinComm *made = NULL;
  LRMOE_REQUIRE(handle, "comm is NULL");
  LRMOE_REQUIRE(init->numRanks >= 1 && init->rank >= 0 &&
                    init->rank < init->numRanks,
                "rank is %d, of %d", init->rank, init->numRanks);
  LRMOE_CHECK(outsideGroup());
  LRMOE_CHECK(makeComm(init->isNonblocking, &made));
  struct joining joining = {made, *init, ownTimeoutMs};
  lrmoeResult_t result = lrmoeSuccess;
  if (init->isNonblocking) {
    result = joinApart(&joining);
  } else {
    result = join(&joining);
    if (result == lrmoeSuccess) publish(made);
  }
  if (result != lrmoeSuccess && result != lrmoeInProgress)
    standinGive(made);
  else
    *handle = handleOf(made);
  return result;
}

static lrmoeResult_t split(struct standinComm *parent, int color, int key,
                           struct ncclComm **newHandle) {
  struct standinComm *made = NULL;
  struct ncclComm *cpu = NULL;
  lrmoeResult_t result = makeComm(parent->isNonblocking, &made);
  if (result != lrmoeSuccess) {
    lrmoeCpuCommBreak(parent->cpu);
    return result;
  }
  result = lrmoeCpuCommSplit(parent->cpu, color, key, &cpu);
  made->cpu = cpu;
  if (cpu)
    publish(made);
  else
    standinGive(made);
  if (result == lrmoeSuccess) *newHandle = cpu ? handleOf(made) : NULL;
  return result;
}

lrmoeResult_t standinCommSplit(struct ncclComm *handle, int color, int key,
                               struct ncclComm **newHandle) {
  struct standinComm *parent = NULL;
  LRMOE_REQUIRE(newHandle, "newcomm is NULL");
  LRMOE_CHECK(outsideGroup());
  LRMOE_CHECK(standinTake(handle, &parent));
  if (!parent) return lrmoeInternalError;
  standinQuiesce(parent);
  lrmoeResult_t result = split(parent, color, key, newHandle);
  standinGive(parent);
  return result;
}

/* ---- Leaving ---- */

lrmoeResult_t standinCommDestroy(struct ncclComm *handle) {
  lrmoeResult_t result = lrmoeSuccess;
  if (!handle) return lrmoeSuccess;
  LRMOE_CHECK(outsideGroup());
  pthread_mutex_lock(&standinMutex);
  struct standinComm *comm = findLocked(handle);
  if (comm) removeLocked(comm);
  pthread_mutex_unlock(&standinMutex);
  if (!comm) return lrmoeInvalidArgument;
  standinDevCommsForget(comm);
  standinQuiesce(comm);
  pthread_mutex_lock(&standinMutex);
  struct ncclComm *cpu = comm->numUsers == 1 ? comm->cpu : NULL;
  if (cpu) comm->cpu = NULL;
  pthread_mutex_unlock(&standinMutex);
  if (cpu) result = lrmoeCpuTransport.commDestroy(cpu);
  standinGive(comm);
  return result;
}

/* Calls under way fail, and the last of them frees.  Those that are not on a
 * stream have let go of their buffers when this returns. */
lrmoeResult_t standinCommAbort(struct ncclComm *handle) {
  lrmoeResult_t result = lrmoeSuccess;
  pthread_mutex_lock(&standinMutex);
  struct standinComm *comm = findLocked(handle);
  if (comm) {
    removeLocked(comm);
    comm->isAborted = 1;
    numMisuses += comm->isNonblocking && comm->numInside;
    if (comm->cpu) result = lrmoeCpuTransport.commAbort(comm->cpu);
  }
  pthread_mutex_unlock(&standinMutex);
  if (!comm) return lrmoeInvalidArgument;
  standinDevCommsForget(comm);
  if (!standinHostHasStreams()) standinQuiesce(comm);
  standinGive(comm);
  return result;
}

/* ---- State ---- */

lrmoeResult_t standinCommState(struct ncclComm *handle, lrmoeResult_t *error) {
  struct ncclComm *cpu = NULL;
  lrmoeResult_t state = lrmoeSuccess, result = lrmoeSuccess;
  LRMOE_REQUIRE(error, "asyncError is NULL");
  pthread_mutex_lock(&standinMutex);
  struct standinComm *comm = findLocked(handle);
  if (comm) {
    state = comm->numBusy ? lrmoeInProgress : usableLocked(comm);
    comm->numUsers++;
    cpu = state == lrmoeSuccess ? comm->cpu : NULL;
  }
  pthread_mutex_unlock(&standinMutex);
  if (!comm) return lrmoeInvalidArgument;
  if (cpu) result = lrmoeCpuTransport.commGetAsyncError(cpu, &state);
  standinGive(comm);
  if (result == lrmoeSuccess) *error = standinResult(state);
  return result;
}
