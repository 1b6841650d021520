/* Windows: see window.h.
 *
 * Every heap is mapped by every rank already, so a window is a table of
 * offsets, gathered once. */
#include "collectives/cpu/window.h"

#include "collectives/cpu/failure.h"
#include "collectives/cpu/group.h"

struct card {
  int64_t isValid;
  uint64_t offset; /* in the heap */
  uint64_t bytes;
};

struct ncclWindow_vidmem {
  struct ncclComm *comm;
  struct ncclWindow_vidmem *next;
  struct card cards[]; /* [numRanks] */
};

/* The last step that one rank can fail alone is behind the exchange: a wrong
 * buffer is everybody's failure, and the communicator stays whole. */
static lrmoeResult_t exchange(struct ncclWindow_vidmem *made,
                              const void *buffer, size_t bytes) {
  struct ncclComm *comm = made->comm;
  struct card *own = &made->cards[comm->rank];
  own->isValid = lrmoeHeapHoldsBlock(buffer, bytes);
  own->offset =
      own->isValid ? (uint64_t)((const char *)buffer - comm->heap->base) : 0;
  own->bytes = bytes;
  struct lrmoeCall call = {.kind = lrmoeCallAllGather,
                           .type = lrmoeUint8,
                           .send = own,
                           .recv = made->cards,
                           .count = sizeof *own};
  LRMOE_CHECK(lrmoeGroupCall(comm, &call));
  for (int rank = 0; rank < comm->numRanks; rank++)
    LRMOE_REQUIRE(made->cards[rank].isValid,
                  "the window of rank %d (%llu B) does not lie in one "
                  "lrmoeMemAlloc block",
                  rank, (unsigned long long)made->cards[rank].bytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeWindowRegister(struct ncclComm *comm, void *buffer,
                                  size_t bytes,
                                  struct ncclWindow_vidmem **window,
                                  int flags) {
  (void)flags; /* NCCL's hints have no meaning here */
  LRMOE_REQUIRE(comm && window, "comm or window is NULL");
  LRMOE_CHECK(lrmoeCommUsable(comm));
  struct ncclWindow_vidmem *made = NULL;
  size_t room = sizeof *made + (size_t)comm->numRanks * sizeof made->cards[0];
  lrmoeResult_t result = lrmoeAllocate(1, room, (void **)&made);
  if (result != lrmoeSuccess) {
    lrmoeFailureBreak(comm, result);
    return result;
  }
  made->comm = comm;
  result = exchange(made, buffer, bytes);
  if (result != lrmoeSuccess) {
    lrmoeFree(made);
    return result;
  }
  made->next = comm->windows;
  comm->windows = made;
  *window = made;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeWindowDeregister(struct ncclComm *comm,
                                    struct ncclWindow_vidmem *window) {
  LRMOE_REQUIRE(comm, "comm is NULL");
  if (!window) return lrmoeSuccess;
  struct ncclWindow_vidmem **link = &comm->windows;
  while (*link && *link != window)
    link = &(*link)->next;
  LRMOE_REQUIRE(*link, "the window is not one of this communicator");
  *link = window->next;
  lrmoeFree(window);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeWindowPointer(struct ncclWindow_vidmem *window,
                                 size_t offset, int peer, void **pointer) {
  LRMOE_REQUIRE(window && pointer, "window or pointer is NULL");
  struct ncclComm *comm = window->comm;
  LRMOE_REQUIRE(peer >= 0 && peer < comm->numRanks, "peer is rank %d, of %d",
                peer, comm->numRanks);
  const struct card *card = &window->cards[peer];
  LRMOE_REQUIRE(offset <= card->bytes,
                "offset %zu is beyond the %llu B of rank %d", offset,
                (unsigned long long)card->bytes, peer);
  *pointer = comm->lanes[peer].heap->base + card->offset + offset;
  return lrmoeSuccess;
}

void lrmoeWindowsFree(struct ncclComm *comm) {
  while (comm->windows) {
    struct ncclWindow_vidmem *next = comm->windows->next;
    lrmoeFree(comm->windows);
    comm->windows = next;
  }
}
