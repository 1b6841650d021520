/* Splitting a communicator.
 *
 * One all-gather over the old communicator carries color, key and an id that
 * each rank makes; the ranks of a color then join under their first's id. */
#include "base/alloc.h"
#include "collectives/cpu/comm.h"
#include "collectives/cpu/failure.h"
#include "collectives/cpu/group.h"
#include "collectives/transport.h"

struct splitCard {
  int32_t color;
  int32_t key;
  lrmoeUniqueId id; /* for the new communicator, should this rank lead it */
};

/* Order in the new communicator: key, then old rank. */
static int isBefore(const struct splitCard *cards, int a, int b) {
  if (cards[a].key != cards[b].key) return cards[a].key < cards[b].key;
  return a < b;
}

static lrmoeResult_t splitJoin(struct ncclComm *comm,
                               const struct splitCard *cards,
                               struct ncclComm **newComm) {
  int leader = comm->rank, newRank = 0, newNumRanks = 0;
  for (int rank = 0; rank < comm->numRanks; rank++) {
    if (cards[rank].color != cards[comm->rank].color) continue;
    newNumRanks++;
    newRank += isBefore(cards, rank, comm->rank);
    if (isBefore(cards, rank, leader)) leader = rank;
  }
  return lrmoeCpuCommInit(newNumRanks, &cards[leader].id, newRank,
                          comm->timeoutMs, newComm);
}

static lrmoeResult_t splitExchange(struct ncclComm *comm, int color, int key,
                                   struct splitCard *cards) {
  struct splitCard *own = &cards[comm->rank];
  own->color = color < 0 ? -1 : color;
  own->key = key;
  LRMOE_CHECK(lrmoeCommMakeId(&own->id));
  struct lrmoeCall call = {.kind = lrmoeCallAllGather,
                           .type = lrmoeUint8,
                           .send = own,
                           .recv = cards,
                           .count = sizeof *own};
  return lrmoeGroupCall(comm, &call);
}

lrmoeResult_t lrmoeCpuCommSplit(struct ncclComm *comm, int color, int key,
                                struct ncclComm **newComm) {
  LRMOE_REQUIRE(newComm, "newComm is NULL");
  LRMOE_CHECK(lrmoeCommUsable(comm));
  struct splitCard *cards = NULL;
  struct ncclComm *made = NULL;
  lrmoeResult_t result = LRMOE_ALLOCATE(comm->numRanks, &cards);
  if (result == lrmoeSuccess) result = splitExchange(comm, color, key, cards);
  if (result == lrmoeSuccess && color >= 0)
    result = splitJoin(comm, cards, &made);
  lrmoeFree(cards);
  if (result != lrmoeSuccess) {
    lrmoeFailureBreak(comm, result);
    return result;
  }
  *newComm = made;
  return lrmoeSuccess;
}
