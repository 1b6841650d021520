/* Messages: see p2p.h.
 *
 * The sender posts a description of each message in the channel, in order; the
 * receiver takes them in order, each for its next receive from that peer.  A
 * message comes
 *   from the sender's shared heap, which the receiver has mapped: one copy;
 *   from any memory, where both ranks are threads of one process: one copy;
 *   else through the ring of the channel: two copies, overlapped by pieces.
 * The pieces that fit the ring are written before the post is published, so a
 * small message costs one look.
 *
 * A send is done when its receive is: errors then surface in the call that is
 * at fault, on both ends, and a finished call leaves nobody reading the
 * caller's buffers. */
#include "collectives/cpu/p2p.h"

#include "collectives/cpu/copy.h"
#include "collectives/cpu/failure.h"
#include "collectives/cpu/fault.h"
#include "collectives/cpu/liveness.h"
#include "collectives/cpu/wait.h"

#include <sched.h>
#include <string.h>

/* Most bytes copied between two looks at the other lanes. */
static const uint64_t maxCopyBytes = 1 << 20;

/* ---- Queues ---- */

lrmoeResult_t lrmoeMessagesReserve(struct ncclComm *comm, int64_t count) {
  int64_t wanted = comm->numMessages + count;
  if (wanted <= comm->maxMessages) return lrmoeSuccess;
  int64_t room = wanted + wanted / 2;
  struct lrmoeMessage *grown = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(room, &grown));
  if (comm->numMessages)
    memcpy(grown, comm->messages, (size_t)comm->numMessages * sizeof *grown);
  lrmoeFree(comm->messages);
  comm->messages = grown;
  comm->maxMessages = room;
  return lrmoeSuccess;
}

void lrmoeMessagesClear(struct ncclComm *comm) {
  comm->numMessages = 0;
  comm->numOpen = 0;
  for (int i = 0; i < comm->numRanks; i++) {
    comm->lanes[i].sends.first = lrmoeNoMessage;
    comm->lanes[i].recvs.first = lrmoeNoMessage;
  }
}

static lrmoeResult_t enqueue(struct ncclComm *comm, struct lrmoeQueue *queue,
                             struct lrmoeMessage message) {
  LRMOE_CHECK(lrmoeMessagesReserve(comm, 1));
  int64_t index = comm->numMessages++;
  message.next = lrmoeNoMessage;
  comm->messages[index] = message;
  if (queue->first == lrmoeNoMessage)
    queue->first = index;
  else
    comm->messages[queue->last].next = index;
  queue->last = index;
  comm->numOpen++;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMessageSend(struct ncclComm *comm, int peer,
                               const void *data, uint64_t bytes,
                               lrmoeDataType_t type) {
  LRMOE_FAULT_POINT("send");
  struct lrmoeMessage message = {
      .data = (char *)(uintptr_t)data, .bytes = bytes, .type = type};
  return enqueue(comm, &comm->lanes[peer].sends, message);
}

lrmoeResult_t lrmoeMessageRecv(struct ncclComm *comm, int peer, void *data,
                               uint64_t bytes, lrmoeDataType_t type) {
  LRMOE_FAULT_POINT("recv");
  struct lrmoeMessage message = {.data = data, .bytes = bytes, .type = type};
  return enqueue(comm, &comm->lanes[peer].recvs, message);
}

/* ---- Sender ---- */

/* An empty ring begins again at its first byte: small messages then always
 * use the same few lines. */
static uint64_t beginRing(struct ncclComm *comm, struct lrmoeLane *lane) {
  uint64_t ringBytes = (uint64_t)comm->segment->ringBytes;
  uint64_t consumed = atomic_load(&lane->out->consumed);
  if (consumed < lane->ringStart) consumed = lane->ringStart;
  if (consumed == lane->produced) {
    lane->produced = (lane->produced + ringBytes - 1) / ringBytes * ringBytes;
    lane->ringStart = lane->produced;
  }
  return lane->produced;
}

static void describe(struct ncclComm *comm, struct lrmoeLane *lane,
                     const struct lrmoeMessage *message) {
  struct lrmoePost *post = &lane->out->posts[lane->numPosted % lrmoeMaxPosts];
  post->bytes = message->bytes;
  post->type = message->type;
  if (lane->isSameProcess) {
    post->kind = lrmoePostDirect;
    post->where = (uint64_t)(uintptr_t)message->data;
  } else if (lrmoeHeapHolds(comm->heap, message->data, message->bytes)) {
    post->kind = lrmoePostHeap;
    post->where = (uint64_t)(message->data - comm->heap->base);
  } else {
    post->kind = lrmoePostRing;
    post->where = beginRing(comm, lane);
  }
}

/* Writes what fits, at most a quarter of the ring, so that the receiver can
 * begin; whether anything was written. */
static int fillRing(struct ncclComm *comm, struct lrmoeLane *lane,
                    struct lrmoeMessage *message) {
  uint64_t ringBytes = (uint64_t)comm->segment->ringBytes;
  uint64_t consumed = atomic_load(&lane->out->consumed);
  if (consumed < lane->ringStart) consumed = lane->ringStart;
  uint64_t left = message->bytes - message->moved;
  uint64_t part = ringBytes - (lane->produced - consumed);
  if (part > ringBytes / 4) part = ringBytes / 4;
  if (part > left) part = left;
  if (!part) return 0;
  uint64_t at = lane->produced & (ringBytes - 1);
  uint64_t head = part < ringBytes - at ? part : ringBytes - at;
  const char *data = message->data + message->moved;
  lrmoeCopy(lane->outRing + at, data, head);
  lrmoeCopy(lane->outRing, data + head, part - head);
  message->moved += part;
  lane->produced += part;
  atomic_store(&lane->out->produced, lane->produced);
  return 1;
}

/* Posts and writes the messages of one lane as far as there is room. */
static int progressSends(struct ncclComm *comm, int peer) {
  struct lrmoeLane *lane = &comm->lanes[peer];
  int moved = 0;
  if (lane->sends.first == lrmoeNoMessage && lane->numDone == lane->numPosted)
    return 0;
  uint64_t numDone = atomic_load(&lane->out->numTaken);
  comm->numOpen -= (int64_t)(numDone - lane->numDone);
  moved |= numDone != lane->numDone;
  lane->numDone = numDone;
  while (lane->sends.first != lrmoeNoMessage) {
    struct lrmoeMessage *message = &comm->messages[lane->sends.first];
    int isNew = !message->isStarted;
    if (isNew && lane->numPosted - numDone == lrmoeMaxPosts) break;
    if (isNew) describe(comm, lane, message);
    uint64_t index = (lane->numPosted - (isNew ? 0 : 1)) % lrmoeMaxPosts;
    int isRing = lane->out->posts[index].kind == lrmoePostRing;
    int wrote = isRing && fillRing(comm, lane, message);
    if (isNew) {
      message->isStarted = 1;
      atomic_store(&lane->out->numPosted, ++lane->numPosted);
    }
    if (isNew || wrote) lrmoeBellRing(comm, peer);
    moved |= isNew || wrote;
    if (isRing && message->moved < message->bytes) break;
    lane->sends.first = message->next;
  }
  lane->numMoves += (uint64_t)moved;
  return moved;
}

/* ---- Receiver ---- */

static lrmoeResult_t failMismatch(struct ncclComm *comm, int peer,
                                  const struct lrmoeMessage *message) {
  struct lrmoeChannel *in = comm->lanes[peer].in;
  in->wantedBytes = message->bytes;
  in->wantedType = message->type;
  struct lrmoeFailure failure = {lrmoeFailureMismatch, peer, comm->rank};
  lrmoeFailureSet(comm, failure);
  return lrmoeFailureCheck(comm);
}

/* Copies the next part of a message that lies in the sender's heap. */
static lrmoeResult_t pullHeap(struct ncclComm *comm, int peer,
                              const struct lrmoePost *post,
                              struct lrmoeMessage *message, uint64_t part) {
  const struct lrmoeMapping *heap = comm->lanes[peer].heap;
  if (post->where > heap->bytes || post->bytes > heap->bytes - post->where)
    return LRMOE_FAIL(lrmoeInternalError,
                      "rank %d posts memory beyond its heap", peer);
  const char *from = heap->base + post->where;
  lrmoeCopy(message->data + message->moved, from + message->moved, part);
  return lrmoeSuccess;
}

/* The same out of memory of a rank of this process.  It may free its buffer
 * once the communicator is broken, but waits for `reading` first
 * (lrmoeMessagesQuiesce): so set that, then look at the failure word. */
static lrmoeResult_t pullDirect(struct ncclComm *comm, int peer,
                                const struct lrmoePost *post,
                                struct lrmoeMessage *message, uint64_t part) {
  struct lrmoeChannel *in = comm->lanes[peer].in;
  const char *from = (const char *)(uintptr_t)post->where;
  atomic_store(&in->reading, 1);
  lrmoeResult_t result = lrmoeFailureResult(comm);
  if (result == lrmoeSuccess)
    lrmoeCopy(message->data + message->moved, from + message->moved, part);
  atomic_store(&in->reading, 0);
  return result == lrmoeSuccess ? lrmoeSuccess : lrmoeFailureCheck(comm);
}

static lrmoeResult_t pullMemory(struct ncclComm *comm, int peer,
                                const struct lrmoePost *post,
                                struct lrmoeMessage *message) {
  uint64_t part = message->bytes - message->moved;
  if (!part) return lrmoeSuccess; /* the buffers may be NULL */
  if (part > maxCopyBytes) part = maxCopyBytes;
  if (post->kind == lrmoePostHeap)
    LRMOE_CHECK(pullHeap(comm, peer, post, message, part));
  else
    LRMOE_CHECK(pullDirect(comm, peer, post, message, part));
  message->moved += part;
  if (part == maxCopyBytes) lrmoeLivenessBeat(comm, lrmoeNowNs());
  return lrmoeSuccess;
}

/* Copies what the ring holds of a message. */
static void pullRing(struct ncclComm *comm, struct lrmoeLane *lane,
                     const struct lrmoePost *post,
                     struct lrmoeMessage *message) {
  uint64_t ringBytes = (uint64_t)comm->segment->ringBytes;
  uint64_t position = post->where + message->moved;
  uint64_t produced = atomic_load(&lane->in->produced);
  if (produced <= position) return;
  uint64_t part = produced - position;
  uint64_t left = message->bytes - message->moved;
  if (part > left) part = left;
  uint64_t at = position & (ringBytes - 1);
  uint64_t head = part < ringBytes - at ? part : ringBytes - at;
  char *data = message->data + message->moved;
  lrmoeCopy(data, lane->inRing + at, head);
  lrmoeCopy(data + head, lane->inRing, part - head);
  message->moved += part;
  atomic_store(&lane->in->consumed, position + part);
}

/* Copies what can be copied now of the first message that is awaited from
 * peer, which has posted it; whether anything moved, and whether all has. */
static lrmoeResult_t take(struct ncclComm *comm, int peer, int *moved,
                          int *isOver) {
  struct lrmoeLane *lane = &comm->lanes[peer];
  struct lrmoeMessage *message = &comm->messages[lane->recvs.first];
  struct lrmoePost *post = &lane->in->posts[lane->numTaken % lrmoeMaxPosts];
  if (!message->isStarted) LRMOE_FAULT_POINT("copy");
  message->isStarted = 1;
  if (post->bytes != message->bytes) return failMismatch(comm, peer, message);
  uint64_t before = message->moved;
  if (post->kind == lrmoePostRing)
    pullRing(comm, lane, post, message);
  else
    LRMOE_CHECK(pullMemory(comm, peer, post, message));
  *isOver = message->moved == message->bytes;
  *moved = *isOver || message->moved != before;
  if (!*isOver) return lrmoeSuccess;
  lane->recvs.first = message->next;
  comm->numOpen--;
  atomic_store(&lane->in->numTaken, ++lane->numTaken);
  return lrmoeSuccess;
}

static lrmoeResult_t progressRecvs(struct ncclComm *comm, int peer,
                                   int *moved) {
  struct lrmoeLane *lane = &comm->lanes[peer];
  int isOver = 1;
  while (isOver && lane->recvs.first != lrmoeNoMessage &&
         atomic_load(&lane->in->numPosted) != lane->numTaken) {
    int movedNow = 0;
    LRMOE_CHECK(take(comm, peer, &movedNow, &isOver));
    if (movedNow) lrmoeBellRing(comm, peer);
    lane->numMoves += (uint64_t)movedNow;
    *moved |= movedNow;
  }
  return lrmoeSuccess;
}

/* Every rank begins with another peer, so that they do not all read the same
 * memory at once. */
lrmoeResult_t lrmoeMessagesProgress(struct ncclComm *comm, int *moved) {
  for (int i = 0; i < comm->numRanks; i++)
    *moved |= progressSends(comm, (comm->rank + i) % comm->numRanks);
  for (int i = 0; i < comm->numRanks; i++) {
    int peer = (comm->rank + comm->numRanks - i) % comm->numRanks;
    LRMOE_CHECK(progressRecvs(comm, peer, moved));
  }
  return lrmoeSuccess;
}

void lrmoeMessagesQuiesce(struct ncclComm *comm) {
  for (int i = 0; i < comm->numRanks; i++) {
    struct lrmoeLane *lane = &comm->lanes[i];
    while (lane->isSameProcess && i != comm->rank &&
           atomic_load(&lane->out->reading))
      sched_yield();
  }
}
