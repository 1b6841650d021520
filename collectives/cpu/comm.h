/* The communicator of the CPU transport, private to one rank. */
#ifndef LRMOE_COLLECTIVES_CPU_COMM_H
#define LRMOE_COLLECTIVES_CPU_COMM_H

#include "base/alloc.h"
#include "collectives/call.h"
#include "collectives/cpu/heap.h"
#include "collectives/cpu/mapping.h"
#include "collectives/cpu/segment.h"

#include <pthread.h>

enum {
  lrmoeNoMessage = -1
};

/* One message of a round: to or from one peer. */
struct lrmoeMessage {
  char *data; /* only read when sent */
  uint64_t bytes;
  uint64_t moved; /* bytes copied so far */
  lrmoeDataType_t type;
  int isStarted;
  int64_t next; /* in its lane's queue; lrmoeNoMessage ends it */
};

struct lrmoeQueue {
  int64_t first; /* lrmoeNoMessage: empty */
  int64_t last;
};

/* What this rank knows of one peer. */
struct lrmoeLane {
  struct lrmoeChannel *out; /* to the peer */
  struct lrmoeChannel *in;
  char *outRing;
  char *inRing;
  struct lrmoeMapping *heap; /* of the peer's process */
  int isSameProcess;
  struct lrmoeQueue sends; /* not yet wholly handed over */
  struct lrmoeQueue recvs; /* not yet received */
  uint64_t numPosted;      /* copies of the channels' counters, which only */
  uint64_t numDone;        /* this rank advances */
  uint64_t numTaken;
  uint64_t numMoves; /* times that something moved here */
  uint64_t produced;
  uint64_t ringStart; /* the ring was empty here: all before is consumed */
};

struct ncclComm {
  int rank;
  int numRanks;
  int64_t timeoutMs;
  unsigned forkGeneration;
  int numSpins;
  int numYields;
  const struct lrmoeHeap *heap;
  struct lrmoeMapping *segmentMapping;
  int segmentFd; /* owned by the mapping */
  struct lrmoeSegment *segment;
  struct lrmoeSeat *seat;
  struct lrmoeLane *lanes; /* [numRanks], itself included */
  pthread_mutex_t reasonMutex;

  /* The group in progress (group.c). */
  struct lrmoeCall *calls;
  int64_t numCalls;
  int64_t maxCalls;
  struct lrmoeMessage *messages;
  int64_t numMessages;
  int64_t maxMessages;
  int64_t numOpen; /* messages of this round that are not done */
  int64_t round;
  int64_t numRounds;
  struct lrmoeBuffer scratch;
  struct ncclComm *nextInGroup;
  int isInGroup;
  int isDone;
  lrmoeResult_t result;

  /* Waiting (wait.c, liveness.c). */
  int hasMoved;       /* something did since the last tick */
  int64_t progressNs; /* a time before which something moved */
  int64_t tickNs;     /* when peers were last looked at */
  int nextChecked;
  int isLeaving;
  atomic_int isTold;     /* the caller knows that comm is broken */
  int isForsaken;        /* left before the others did */
  int suspect;           /* a peer that seems gone, -1: none */
  uint64_t suspectMoves; /* of its lane, when it first did */

  struct ncclWindow_vidmem *windows;
};

struct ncclWindow_vidmem;

/* lrmoeSuccess if comm may be used: it was made by this process and is
 * whole. */
lrmoeResult_t lrmoeCommUsable(struct ncclComm *comm);

/* Behind the table's getUniqueId, commDestroy, commAbort and
 * commGetAsyncError. */
lrmoeResult_t lrmoeCommMakeId(lrmoeUniqueId *id);
lrmoeResult_t lrmoeCommLeave(struct ncclComm *comm);
lrmoeResult_t lrmoeCommBreakOff(struct ncclComm *comm);
lrmoeResult_t lrmoeCommState(struct ncclComm *comm, lrmoeResult_t *error);

#endif
