/* Calls, groups and works of the stand-in: see standin.h. */
#include "base/alloc.h"
#include "collectives/cpu/failure.h"
#include "collectives/cpu/group.h"
#include "control.h"
#include "standin.h"

struct callOf {
  struct standinComm *comm; /* a user of it */
  struct lrmoeCall call;
};

struct member {
  struct standinComm *comm;
  int64_t ticket;
};

/* The calls of one group. */
struct work {
  lrmoeStream_t stream;
  struct callOf *calls;
  int64_t numCalls;
  int64_t maxCalls;
  struct member *members; /* its communicators, each once */
  int64_t numMembers;
};

/* Of one thread. */
static _Thread_local struct {
  int depth;
  lrmoeResult_t result; /* of the first call that failed */
  struct work *work;
} group;

static _Thread_local lrmoeResult_t failNext;

void lrmoeStandinFailNext(int result) {
  failNext = (lrmoeResult_t)result;
}

int standinGroupIsOpen(void) {
  return group.depth > 0;
}

/* Ends a work that never ran (numServed 0), or one that did, for others in the
 * same moment. */
static void freeWork(struct work *work, int numServed) {
  struct standinComm *dead = NULL;
  int isBusy = numServed && !standinHostHasStreams();
  pthread_mutex_lock(&standinMutex);
  for (int64_t i = 0; i < work->numMembers; i++) {
    struct standinComm *comm = work->members[i].comm;
    comm->numServed += numServed;
    comm->numBusy -= isBusy && comm->isNonblocking;
  }
  for (int64_t i = 0; i < work->numCalls; i++)
    standinGiveLocked(work->calls[i].comm, &dead);
  pthread_cond_broadcast(&standinChanged);
  pthread_mutex_unlock(&standinMutex);
  standinBury(dead);
  lrmoeFree(work->calls);
  lrmoeFree(work->members);
  lrmoeFree(work);
}

/* ---- Running ---- */

/* Works got their tickets under the mutex, so that nobody waits in a circle. */
static void awaitTurn(const struct work *work) {
  pthread_mutex_lock(&standinMutex);
  for (int64_t i = 0; i < work->numMembers; i++)
    while (work->members[i].comm->numServed < work->members[i].ticket)
      pthread_cond_wait(&standinChanged, &standinMutex);
  pthread_mutex_unlock(&standinMutex);
}

static void touch(const struct callOf *one) {
  const struct lrmoeCall *call = &one->call;
  size_t bytes = call->count * lrmoeTypeBytes(call->type);
  size_t all = bytes * (size_t)one->comm->cpu->numRanks;
  int sendsAll =
      call->kind == lrmoeCallAllToAll || call->kind == lrmoeCallReduceScatter;
  int recvsAll =
      call->kind == lrmoeCallAllToAll || call->kind == lrmoeCallAllGather;
  if (call->send) standinHostTouch(call->send, sendsAll ? all : bytes, 0);
  if (call->recv) standinHostTouch(call->recv, recvsAll ? all : bytes, 1);
}

/* The channel of a message of some bytes, the same for both ends; of another
 * communicator it may be too: then a race may be missed, never made up.
 * Collectives order nothing here, for in what is tested hosts wait for them. */
static const void *channelOf(const struct callOf *one,
                             enum lrmoeCallKind kind) {
  const struct ncclComm *cpu = one->comm->cpu;
  if (one->call.kind != kind || !one->call.count) return NULL;
  const struct lrmoeLane *lane = &cpu->lanes[one->call.peer];
  const void *channel = kind == lrmoeCallSend ? lane->out : lane->in;
  return (const void *)((intptr_t)channel - (intptr_t)cpu->segment);
}

static lrmoeResult_t execute(const struct work *work) {
  standinHostAccessBegin();
  for (int64_t i = 0; i < work->numCalls; i++) {
    const void *channel = channelOf(&work->calls[i], lrmoeCallSend);
    touch(&work->calls[i]);
    if (channel) standinHostRelease(channel);
  }
  lrmoeCpuGroupStart();
  for (int64_t i = 0; i < work->numCalls; i++)
    lrmoeGroupCall(work->calls[i].comm->cpu, &work->calls[i].call);
  lrmoeResult_t result = lrmoeCpuGroupEnd();
  for (int64_t i = 0; i < work->numCalls; i++) {
    const void *channel = channelOf(&work->calls[i], lrmoeCallRecv);
    if (channel) standinHostAcquire(channel);
  }
  standinHostAccessEnd();
  return standinResult(result);
}

/* Gives each communicator that is broken its error; all of them, if none says
 * that it is. */
static void blame(const struct work *work, lrmoeResult_t result) {
  int numBroken = 0;
  for (int64_t i = 0; i < work->numMembers; i++) {
    struct standinComm *comm = work->members[i].comm;
    lrmoeResult_t own = lrmoeFailureCheck(comm->cpu);
    numBroken += own != lrmoeSuccess;
    pthread_mutex_lock(&standinMutex);
    if (own != lrmoeSuccess) standinNote(comm, standinResult(own));
    pthread_mutex_unlock(&standinMutex);
  }
  pthread_mutex_lock(&standinMutex);
  for (int64_t i = 0; i < work->numMembers && !numBroken; i++)
    standinNote(work->members[i].comm, result);
  pthread_mutex_unlock(&standinMutex);
}

static void finish(struct work *work, lrmoeResult_t result) {
  if (result != lrmoeSuccess) blame(work, result);
  freeWork(work, 1);
}

static lrmoeResult_t run(struct work *work) {
  awaitTurn(work);
  lrmoeResult_t result = execute(work);
  finish(work, result);
  return result;
}

static void runOnStream(void *argument) {
  run(argument);
}

static void *runApart(void *argument) {
  run(argument);
  return NULL;
}

/* ---- Handing over ---- */

static struct member *memberOf(struct work *work, struct standinComm *comm) {
  for (int64_t i = 0; i < work->numMembers; i++)
    if (work->members[i].comm == comm) return &work->members[i];
  return NULL;
}

/* Collects the communicators; whether one is non-blocking. */
static int enlist(struct work *work) {
  int isNonblocking = 0;
  pthread_mutex_lock(&standinMutex);
  for (int64_t i = 0; i < work->numCalls; i++) {
    struct standinComm *comm = work->calls[i].comm;
    if (memberOf(work, comm)) continue;
    work->members[work->numMembers++] =
        (struct member){comm, comm->numTickets++};
    isNonblocking |= comm->isNonblocking;
    if (comm->isNonblocking && !standinHostHasStreams()) comm->numBusy++;
  }
  pthread_mutex_unlock(&standinMutex);
  return isNonblocking;
}

/* A stream that takes no work breaks the communicators.  Their earlier works
 * may run only when this very thread waits for the stream, so nothing is
 * awaited here; works that come later fail, in whatever order they run. */
static lrmoeResult_t handToStream(struct work *work) {
  int error = standinHostEnqueue(work->stream, runOnStream, work);
  if (!error) return lrmoeSuccess;
  lrmoeResult_t result =
      LRMOE_FAIL(lrmoeUnhandledCudaError,
                 "the stream takes no work: CUDA error %d", error);
  for (int64_t i = 0; i < work->numMembers; i++)
    lrmoeFailureBreak(work->members[i].comm->cpu, result);
  finish(work, result);
  return result;
}

/* The first communicator of the work knows that a call is inside. */
static lrmoeResult_t handOver(struct work *work, int isNonblocking) {
  pthread_t thread;
  struct standinComm *comm = work->calls[0].comm;
  lrmoeResult_t result = lrmoeInProgress;
  standinInside(comm, 1);
  if (standinHostHasStreams())
    result = handToStream(work);
  else if (!isNonblocking || pthread_create(&thread, NULL, runApart, work))
    result = run(work);
  else
    pthread_detach(thread);
  standinInside(comm, -1);
  return result;
}

static lrmoeResult_t submit(struct work *work) {
  lrmoeResult_t result = LRMOE_ALLOCATE(work->numCalls, &work->members);
  if (result != lrmoeSuccess) {
    for (int64_t i = 0; i < work->numCalls; i++)
      lrmoeFailureBreak(work->calls[i].comm->cpu, result);
    freeWork(work, 0);
    return standinResult(result);
  }
  int isNonblocking = enlist(work);
  return handOver(work, isNonblocking);
}

/* ---- Groups ---- */

/* As in NCCL any failure, of a call or of the group that it is in, stays with a
 * non-blocking communicator. */
static void condemn(struct standinComm *comm, lrmoeResult_t result) {
  pthread_mutex_lock(&standinMutex);
  if (comm->isNonblocking) standinNote(comm, result);
  pthread_mutex_unlock(&standinMutex);
}

lrmoeResult_t standinGroupStart(void) {
  if (group.depth++ == 0) group.result = lrmoeSuccess;
  return lrmoeSuccess;
}

lrmoeResult_t standinGroupEnd(void) {
  if (!group.depth)
    return LRMOE_FAIL(lrmoeInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth) return group.result;
  struct work *work = group.work;
  group.work = NULL;
  if (!work) return group.result;
  if (group.result == lrmoeSuccess) return submit(work);
  for (int64_t i = 0; i < work->numCalls; i++)
    condemn(work->calls[i].comm, group.result);
  freeWork(work, 0);
  return group.result;
}

/* ---- Collecting ---- */

static lrmoeResult_t openWork(lrmoeStream_t stream) {
  if (!group.work) {
    LRMOE_CHECK(LRMOE_ALLOCATE(1, &group.work));
    group.work->stream = stream;
  }
  if (group.work->stream != stream && standinHostHasStreams())
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "the stand-in takes groups on one stream only");
  return lrmoeSuccess;
}

static lrmoeResult_t addCall(struct standinComm *comm,
                             const struct lrmoeCall *call) {
  struct work *work = group.work;
  LRMOE_CHECK(LRMOE_GROW(work->numCalls, 16, &work->maxCalls, &work->calls));
  work->calls[work->numCalls++] = (struct callOf){comm, *call};
  return lrmoeSuccess;
}

/* As in the CPU transport: a rank whose arguments are right and that cannot go
 * on tells the others. */
static lrmoeResult_t collect(struct standinComm *comm,
                             const struct lrmoeCall *call,
                             lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeGroupCheck(comm->cpu, call));
  lrmoeResult_t result = openWork(stream);
  if (result == lrmoeInvalidUsage) return result;
  if (result == lrmoeSuccess) result = addCall(comm, call);
  if (result != lrmoeSuccess) lrmoeFailureBreak(comm->cpu, result);
  return result;
}

static lrmoeResult_t takeAndCollect(struct ncclComm *handle,
                                    const struct lrmoeCall *call,
                                    lrmoeStream_t stream) {
  struct standinComm *comm = NULL;
  lrmoeResult_t result = failNext;
  LRMOE_CHECK(standinTake(handle, &comm));
  failNext = lrmoeSuccess;
  if (result != lrmoeSuccess)
    LRMOE_FAIL(result, "injected failure");
  else
    result = standinResult(collect(comm, call, stream));
  if (result == lrmoeSuccess) return lrmoeSuccess;
  condemn(comm, result);
  standinGive(comm);
  return result;
}

lrmoeResult_t standinCall(struct ncclComm *handle, const struct lrmoeCall *call,
                          lrmoeStream_t stream) {
  standinGroupStart();
  lrmoeResult_t result = takeAndCollect(handle, call, stream);
  if (group.result == lrmoeSuccess) group.result = result;
  lrmoeResult_t ended = standinGroupEnd();
  return result != lrmoeSuccess ? result : ended;
}
