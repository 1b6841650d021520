/* What both sides of joining do: see bootstrap.h. */
#include "collectives/cpu/bootstrap.h"

#include "collectives/cpu/fault.h"
#include "collectives/cpu/liveness.h"
#include "collectives/cpu/secret.h"
#include "collectives/cpu/wait.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct lrmoeNote lrmoeBootstrapJoinNote(const struct ncclComm *comm) {
  struct lrmoeNote note = lrmoeNoteMake(lrmoeNoteJoin);
  note.rank = comm->rank;
  note.numRanks = comm->numRanks;
  memcpy(note.token, comm->heap->token, sizeof note.token);
  note.bytes = (int64_t)comm->heap->bytes;
  return note;
}

lrmoeResult_t lrmoeBootstrapMapHeap(struct ncclComm *comm, int rank,
                                    const struct lrmoeNote *note, int fd) {
  struct lrmoeMappingArgs args = {
      {note->token[0], note->token[1]}, (size_t)note->bytes, fd, 0};
  struct lrmoeLane *lane = &comm->lanes[rank];
  lane->isSameProcess =
      !memcmp(note->token, comm->heap->token, sizeof note->token);
  return lrmoeMappingOpen(&args, &lane->heap);
}

static void bindLane(struct ncclComm *comm, int peer) {
  struct lrmoeLane *lane = &comm->lanes[peer];
  struct lrmoeSegment *segment = comm->segment;
  lane->out = lrmoeSegmentChannel(segment, comm->rank, peer);
  lane->in = lrmoeSegmentChannel(segment, peer, comm->rank);
  lane->outRing = lrmoeSegmentRing(segment, comm->rank, peer);
  lane->inRing = lrmoeSegmentRing(segment, peer, comm->rank);
}

lrmoeResult_t lrmoeBootstrapMapSegment(struct ncclComm *comm,
                                       const struct lrmoeNote *note, int fd) {
  struct lrmoeMappingArgs args = {{note->token[0], note->token[1]},
                                  (size_t)note->bytes,
                                  fd,
                                  comm->numRanks};
  LRMOE_CHECK(lrmoeMappingOpen(&args, &comm->segmentMapping));
  comm->segmentFd = fd;
  comm->segment = (void *)comm->segmentMapping->base;
  comm->seat = lrmoeSegmentSeat(comm->segment, comm->rank);
  for (int peer = 0; peer < comm->numRanks; peer++)
    bindLane(comm, peer);
  return lrmoeLivenessEnter(comm);
}

static lrmoeResult_t listenAt(int listener, const lrmoeUniqueId *id,
                              int numRanks, int *isTaken) {
  struct sockaddr_un address;
  socklen_t bytes = lrmoeNoteAddress(id, &address);
  *isTaken = 0;
  if (bind(listener, (struct sockaddr *)&address, bytes)) {
    *isTaken = errno == EADDRINUSE;
    if (*isTaken) return lrmoeSuccess;
    return LRMOE_FAIL(lrmoeSystemError, "bind: %s", strerror(errno));
  }
  if (listen(listener, numRanks + 16))
    return LRMOE_FAIL(lrmoeSystemError, "listen: %s", strerror(errno));
  return lrmoeSuccess;
}

/* A second rank 0 finds the place taken and asks to join like any other rank,
 * so that the first one sees the duplicate and tells everybody. */
lrmoeResult_t lrmoeBootstrap(struct ncclComm *comm, const lrmoeUniqueId *id) {
  LRMOE_FAULT_POINT("join");
  if (comm->rank) return lrmoeBootstrapJoin(comm, id);
  int listener =
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0)
    return LRMOE_FAIL(lrmoeSystemError, "socket: %s", strerror(errno));
  int isTaken = 0;
  lrmoeResult_t result = listenAt(listener, id, comm->numRanks, &isTaken);
  if (result == lrmoeSuccess && !isTaken)
    result = lrmoeBootstrapRoot(comm, id, listener);
  close(listener);
  return result == lrmoeSuccess && isTaken ? lrmoeBootstrapJoin(comm, id)
                                           : result;
}
