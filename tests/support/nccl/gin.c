/* The network of the stand-in that devices put into: see gin.h.
 *
 * As NCCL's it promises little.  A put is queued with others of its source,
 * peer and context, and moved later, in that order: some at a time, by the
 * emulator's random numbers, when the peer looks at its signals.  The source is
 * read then, so that memory which is used again too early gives wrong rows,
 * and a signal is seen after what was put before it in its context.  Signals
 * are a context's own.  What makes an order for who looks for races between
 * streams is that a peer sees a put, and nothing else.
 *
 * Ranks are threads of one process; else there is no such network. */
#include "gin.h"

#include "base/alloc.h"
#include "control.h"
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  numContexts = 3
};

struct message {
  struct message *next;
  struct standinGinPut put;
};

struct queue {
  struct message *first;
  struct message **last;
};

struct network {
  pthread_mutex_t mutex;
  int numUsers;
  int numRanks;
  int numSignals;
  uint64_t random; /* 0: the order of the queues */
  int next;
  struct queue *queues; /* [to, from, context] */
  uint64_t *signals;    /* [rank, context, numSignals] */
};

/* Of all communicators of the process, under standinMutex. */
struct user {
  struct user *next;
  const struct standinComm *comm;
  struct network *network;
};

static struct user *users;
static int isAbsent;
static _Thread_local int isRefused;

void lrmoeStandinGinAbsent(int value) {
  __atomic_store_n(&isAbsent, value, __ATOMIC_SEQ_CST);
}

void lrmoeStandinGinRefuse(int value) {
  isRefused = value;
}

/* ---- The network ---- */

static struct queue *queueOf(const struct network *network, int to, int from,
                             int context) {
  return &network
              ->queues[(to * network->numRanks + from) * numContexts + context];
}

static uint64_t *signalOf(const struct network *network, int rank, int context,
                          uint32_t signal) {
  return &network->signals[(int64_t)(rank * numContexts + context) *
                               network->numSignals +
                           signal];
}

static int numQueues(const struct network *network) {
  return network->numRanks * numContexts;
}

static void freeNetwork(struct network *network) {
  int count = network->queues ? network->numRanks * numQueues(network) : 0;
  for (int i = 0; i < count; i++)
    while (network->queues[i].first) {
      struct message *message = network->queues[i].first;
      network->queues[i].first = message->next;
      lrmoeFree(message);
    }
  pthread_mutex_destroy(&network->mutex);
  lrmoeFree(network->queues);
  lrmoeFree(network->signals);
  lrmoeFree(network);
}

/* What it holds is not 0: NCCL does not clear signals either. */
static lrmoeResult_t makeNetwork(int numRanks, int numSignals,
                                 struct network **network) {
  struct network *made = NULL;
  int64_t count = (int64_t)numRanks * numContexts * numSignals;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &made));
  pthread_mutex_init(&made->mutex, NULL);
  made->numUsers = made->numRanks = numRanks;
  made->numSignals = numSignals;
  made->random = standinHostSeed();
  lrmoeResult_t result =
      LRMOE_ALLOCATE(numRanks * numRanks * numContexts, &made->queues);
  if (result == lrmoeSuccess) result = LRMOE_ALLOCATE(count, &made->signals);
  if (result != lrmoeSuccess) {
    freeNetwork(made);
    return result;
  }
  memset(made->signals, 0x5a, (size_t)count * sizeof *made->signals);
  for (int i = 0; i < numRanks * numRanks * numContexts; i++)
    made->queues[i].last = &made->queues[i].first;
  *network = made;
  return lrmoeSuccess;
}

/* ---- What kernels call ---- */

static uint64_t draw(struct network *network) {
  network->random ^= network->random << 13;
  network->random ^= network->random >> 7;
  network->random ^= network->random << 17;
  return network->random;
}

static const char *put(const struct standinDevComm *comm,
                       const struct standinGinPut *wanted) {
  struct network *network = comm->network;
  struct message *made = NULL;
  if (comm->magic != standinGinMagic) return "the communicator is gone";
  if (wanted->peer < 0 || wanted->peer >= comm->nRanks) return "no such peer";
  if (wanted->hasSignal && wanted->signal >= (uint32_t)network->numSignals)
    return "no such signal";
  if (wanted->from && (!standinWindowAt(wanted->from, comm->rank,
                                        wanted->fromOffset, wanted->bytes) ||
                       !standinWindowAt(wanted->to, wanted->peer,
                                        wanted->toOffset, wanted->bytes)))
    return "the rows are not in windows";
  if (LRMOE_ALLOCATE(1, &made) != lrmoeSuccess) return "out of memory";
  made->put = *wanted;
  pthread_mutex_lock(&network->mutex);
  struct queue *queue =
      queueOf(network, wanted->peer, comm->rank, wanted->context);
  standinHostRelease(queue);
  *queue->last = made;
  queue->last = &made->next;
  pthread_mutex_unlock(&network->mutex);
  return NULL;
}

static void mustBe(const void *address) {
  if (address) return;
  fprintf(stderr, "stand-in: a window went before what was put into it\n");
  abort();
}

static void move(const struct standinGinPut *one, int from) {
  if (!one->bytes) return;
  const void *source =
      standinWindowAt(one->from, from, one->fromOffset, one->bytes);
  void *target = standinWindowAt(one->to, one->peer, one->toOffset, one->bytes);
  mustBe(source);
  mustBe(target);
  standinHostTouch(source, one->bytes, 0);
  standinHostTouch(target, one->bytes, 1);
  memcpy(target, source, one->bytes);
}

/* The first message of a queue, which is not empty. */
static void deliver(struct network *network, struct queue *queue, int from) {
  struct message *message = queue->first;
  const struct standinGinPut *one = &message->put;
  queue->first = message->next;
  if (!queue->first) queue->last = &queue->first;
  standinHostAcquire(queue);
  move(one, from);
  if (one->hasSignal)
    *signalOf(network, one->peer, one->context, one->signal) += one->value;
  lrmoeFree(message);
}

/* Of what is on its way to a rank one message, or by chance none. */
static void progress(struct network *network, int rank) {
  int count = numQueues(network);
  if (network->random && draw(network) % 2) return;
  int first = network->random ? (int)(draw(network) % (uint64_t)count)
                              : network->next++ % count;
  for (int i = 0; i < count; i++) {
    int at = (first + i) % count;
    struct queue *queue = queueOf(network, rank, 0, 0) + at;
    if (!queue->first) continue;
    deliver(network, queue, at / numContexts);
    return;
  }
}

static uint64_t readSignal(const struct standinDevComm *comm, int context,
                           uint32_t signal) {
  struct network *network = comm->network;
  pthread_mutex_lock(&network->mutex);
  progress(network, comm->rank);
  uint64_t value = *signalOf(network, comm->rank, context, signal);
  pthread_mutex_unlock(&network->mutex);
  return value;
}

static void resetSignal(const struct standinDevComm *comm, int context,
                        uint32_t signal) {
  struct network *network = comm->network;
  pthread_mutex_lock(&network->mutex);
  *signalOf(network, comm->rank, context, signal) = 0;
  pthread_mutex_unlock(&network->mutex);
}

static const struct standinGinCalls calls = {put, readSignal, resetSignal};

/* ---- Device communicators ---- */

struct ginCard {
  int64_t process;
  int64_t numSignals;
  struct network *network;
};

static int isPossible(const struct ginCard *cards, int numRanks) {
  int isGood =
      standinHostHasStreams() && !__atomic_load_n(&isAbsent, __ATOMIC_SEQ_CST);
  for (int r = 0; r < numRanks; r++)
    isGood &= cards[r].process == (int64_t)getpid() &&
              cards[r].numSignals == cards[0].numSignals;
  return isGood;
}

/* Rank 0 makes the network of all; NULL: there is none. */
static lrmoeResult_t meetNetwork(struct standinComm *comm, int numSignals,
                                 struct network **network) {
  int numRanks = comm->cpu->numRanks;
  struct ginCard *cards = NULL;
  struct ginCard own = {(int64_t)getpid(), numSignals, NULL};
  LRMOE_CHECK(LRMOE_ALLOCATE(numRanks, &cards));
  lrmoeResult_t result = lrmoeCpuTransport.allGather(
      &own, cards, sizeof own, lrmoeUint8, comm->cpu, NULL);
  int isGood = result == lrmoeSuccess && isPossible(cards, numRanks);
  if (isGood && comm->cpu->rank == 0)
    result = makeNetwork(numRanks, numSignals, &own.network);
  if (isGood && result == lrmoeSuccess)
    result = lrmoeCpuTransport.allGather(&own, cards, sizeof own, lrmoeUint8,
                                         comm->cpu, NULL);
  *network = isGood && result == lrmoeSuccess ? cards[0].network : NULL;
  /* As NCCL does at the end: nobody gives up while others are inside. */
  if (*network)
    lrmoeCpuTransport.allGather(&own, cards, sizeof own, lrmoeUint8, comm->cpu,
                                NULL);
  lrmoeFree(cards);
  return result;
}

static void leave(struct network *network) {
  pthread_mutex_lock(&network->mutex);
  int isLast = --network->numUsers == 0;
  pthread_mutex_unlock(&network->mutex);
  if (isLast) freeNetwork(network);
}

static lrmoeResult_t join(struct standinComm *comm, struct network *network,
                          struct standinDevComm *devComm) {
  struct user *made = NULL;
  if (!network || isRefused || LRMOE_ALLOCATE(1, &made) != lrmoeSuccess) {
    if (network) leave(network);
    return LRMOE_FAIL(lrmoeInvalidUsage, "GIN is not supported");
  }
  *devComm = (struct standinDevComm){
      standinGinMagic, comm->cpu->rank, comm->cpu->numRanks,
      numContexts,     &calls,          network};
  pthread_mutex_lock(&standinMutex);
  *made = (struct user){users, comm, network};
  users = made;
  pthread_mutex_unlock(&standinMutex);
  return lrmoeSuccess;
}

/* As in NCCL a failure stays with a non-blocking communicator. */
lrmoeResult_t standinDevCommCreate(struct standinComm *comm, const void *needs,
                                   void *devComm) {
  const struct standinDevCommNeeds *wanted = needs;
  struct network *network = NULL;
  lrmoeResult_t result = lrmoeSuccess;
  if (wanted->magic == standinGinMagic)
    result = meetNetwork(comm, wanted->ginSignalCount, &network);
  if (result == lrmoeSuccess) result = join(comm, network, devComm);
  pthread_mutex_lock(&standinMutex);
  if (result != lrmoeSuccess && comm->isNonblocking)
    standinNote(comm, standinResult(result));
  pthread_mutex_unlock(&standinMutex);
  return result;
}

/* Those of a communicator; all of them, or of one network. */
static struct user *takeUser(const struct standinComm *comm,
                             const struct network *network) {
  struct user **link = &users;
  while (*link &&
         ((*link)->comm != comm || (network && (*link)->network != network)))
    link = &(*link)->next;
  struct user *found = *link;
  if (found) *link = found->next;
  return found;
}

lrmoeResult_t standinDevCommDestroy(struct standinComm *comm,
                                    const void *devComm) {
  const struct standinDevComm *gone = devComm;
  pthread_mutex_lock(&standinMutex);
  struct user *found = takeUser(comm, gone->network);
  pthread_mutex_unlock(&standinMutex);
  LRMOE_REQUIRE(found, "no such device communicator");
  leave(found->network);
  lrmoeFree(found);
  return lrmoeSuccess;
}

void standinDevCommsForget(const struct standinComm *comm) {
  struct user *found = NULL;
  do {
    pthread_mutex_lock(&standinMutex);
    found = takeUser(comm, NULL);
    pthread_mutex_unlock(&standinMutex);
    if (found) leave(found->network);
    lrmoeFree(found);
  } while (found);
}
