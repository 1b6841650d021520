/* What the ranks of a communicator share: one memfd that rank 0 makes.
 *
 *   header | seat of each rank | channel of each ordered pair | rings
 *
 * Only pages that are touched take memory, so the rings of pairs that never
 * talk through them cost nothing.  A word is written by one side only, except
 * the failure word (compare-and-swap, the first wins) and the doorbells.
 *
 * Memory order.  Data is written before the counter that publishes it
 * (numPosted, produced by the sender; numTaken, consumed by the receiver) and
 * read after that counter.  The publishing stores and the reads of `asleep`
 * are sequentially consistent, as are the store to `asleep` and the reads of
 * the counters that follow it: of a publisher and a rank that is going to
 * sleep at least one sees the other, so no wake-up is lost (wait.c). */
#ifndef LRMOE_COLLECTIVES_CPU_SEGMENT_H
#define LRMOE_COLLECTIVES_CPU_SEGMENT_H

#include "base/result.h"

#include <stdatomic.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "atomics that other processes see must not use a lock");

enum {
  lrmoeLineBytes = 64,
  lrmoePageBytes = 4096
};

/* Messages that one sender may have in flight to one receiver; more wait in
 * the sender's queue. */
enum {
  lrmoeMaxPosts = 64
};

enum lrmoePostKind {
  lrmoePostRing,  /* `where`: position of the first byte in the ring */
  lrmoePostHeap,  /* `where`: offset in the sender's heap */
  lrmoePostDirect /* `where`: address, in the process of both */
};

struct lrmoePost {
  uint64_t bytes;
  uint64_t where;
  uint32_t kind;
  uint32_t type; /* lrmoeDataType_t, for messages only */
};

/* One ordered pair of ranks.  Counters only grow. */
struct lrmoeChannel {
  /* Written by the sender. */
  _Alignas(lrmoeLineBytes) _Atomic uint64_t numPosted;
  _Atomic uint64_t produced; /* ring position behind the last byte written */
  /* Written by the receiver. */
  _Alignas(lrmoeLineBytes) _Atomic uint64_t numTaken;
  _Atomic uint64_t consumed; /* ring position behind the last byte read */
  _Atomic uint32_t reading;  /* 1 while it copies from the sender's memory */
  uint32_t wantedType;       /* what it wanted when counts differ */
  uint64_t wantedBytes;
  _Alignas(lrmoeLineBytes) struct lrmoePost posts[lrmoeMaxPosts];
};

enum lrmoeSeatState {
  lrmoeSeatFree,
  lrmoeSeatJoined,
  lrmoeSeatLeaving /* destroyed: will send and receive no more */
};

enum {
  lrmoeReasonBytes = 320
};

/* One rank, written by it except for `bell`. */
struct lrmoeSeat {
  _Alignas(lrmoeLineBytes) _Atomic uint32_t bell; /* futex word */
  _Atomic uint32_t asleep;
  _Alignas(lrmoeLineBytes) _Atomic uint32_t state;
  _Atomic uint32_t isInCall;
  _Atomic int32_t waitsFor; /* a rank that it waits for, -1: none */
  _Atomic int64_t beatNs;   /* when it last gave a sign of life in a call */
  int64_t timeoutMs;
  char reason[lrmoeReasonBytes]; /* why it broke the communicator */
};

struct lrmoeSegment {
  _Alignas(lrmoeLineBytes) _Atomic uint64_t failure; /* 0: whole; failure.h */
  _Alignas(lrmoeLineBytes) int64_t numRanks;
  int64_t ringBytes; /* a power of two */
};

/* Sizes and places; numRanks and ringBytes are those of the header. */
size_t lrmoeSegmentBytes(int64_t numRanks, int64_t ringBytes);
struct lrmoeSeat *lrmoeSegmentSeat(struct lrmoeSegment *segment, int rank);
struct lrmoeChannel *lrmoeSegmentChannel(struct lrmoeSegment *segment, int from,
                                         int to);
char *lrmoeSegmentRing(struct lrmoeSegment *segment, int from, int to);

/* Makes a sealed memfd of `bytes` bytes that cannot shrink under a mapping.
 * The descriptor is the caller's. */
lrmoeResult_t lrmoeMemfdCreate(const char *name, size_t bytes, int *fd);

/* Bytes of each ring, as LRMOE_RING_BYTES asks, as a power of two. */
int64_t lrmoeRingBytes(void);

#endif
