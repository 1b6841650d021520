/* Waiting: see wait.h.
 *
 * A rank with nothing to do polls LRMOE_SPINS times, yields its core
 * LRMOE_YIELDS times, then sleeps on its doorbell.  Spinning is left out when
 * ranks outnumber cores: the one that is waited for needs the core.
 *
 * No wake-up is lost: a sleeper (1) reads the bell, (2) sets `asleep`, (3)
 * looks at all channels once more, (4) sleeps unless the bell has changed.  A
 * publisher (a) stores a counter, (b) reads `asleep`, (c) if set, changes the
 * bell and wakes.  All of these are sequentially consistent: if (b) misses
 * (2), then (a) comes before (3) and is seen there. */
#include "collectives/cpu/wait.h"

#include "collectives/cpu/comm.h"
#include "collectives/cpu/liveness.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

enum {
  sleepNs = 20000000
};
/* A group over several communicators sleeps on the first of them only. */
enum {
  sharedSleepNs = 500000
};

static void futexWake(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void futexWait(_Atomic uint32_t *word, uint32_t value, int64_t limitNs) {
  struct timespec limit = {0, (long)limitNs};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

void lrmoeBellRingAlways(struct ncclComm *comm, int rank) {
  struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, rank);
  atomic_fetch_add(&seat->bell, 1);
  futexWake(&seat->bell);
}

void lrmoeBellRing(struct ncclComm *comm, int rank) {
  struct lrmoeSeat *seat = lrmoeSegmentSeat(comm->segment, rank);
  if (atomic_load(&seat->asleep)) lrmoeBellRingAlways(comm, rank);
}

static struct ncclComm *firstOpen(struct ncclComm *first) {
  while (first && first->isDone)
    first = first->nextInGroup;
  return first;
}

static void setAsleep(struct ncclComm *first, uint32_t asleep) {
  for (struct ncclComm *comm = first; comm; comm = comm->nextInGroup)
    atomic_store(&comm->seat->asleep, asleep);
}

void lrmoeWaitReset(struct lrmoeWait *wait, struct ncclComm *first) {
  if (wait->isArmed) setAsleep(first, 0);
  wait->isArmed = 0;
  wait->numIdle = 0;
}

static void layDown(struct lrmoeWait *wait, struct ncclComm *first) {
  struct ncclComm *comm = firstOpen(first);
  wait->seen = atomic_load(&comm->seat->bell);
  setAsleep(first, 1);
  wait->isArmed = 1;
}

static void nap(struct lrmoeWait *wait, struct ncclComm *first) {
  struct ncclComm *comm = firstOpen(first);
  int isAlone = !firstOpen(comm->nextInGroup);
  futexWait(&comm->seat->bell, wait->seen, isAlone ? sleepNs : sharedSleepNs);
  setAsleep(first, 0);
  wait->isArmed = 0;
  for (; comm; comm = firstOpen(comm->nextInGroup))
    lrmoeLivenessTick(comm);
}

void lrmoeWaitIdle(struct lrmoeWait *wait, struct ncclComm *first) {
  struct ncclComm *comm = firstOpen(first);
  int64_t numIdle = wait->numIdle++;
  if (numIdle < comm->numSpins) {
    PAUSE();
    return;
  }
  if (numIdle < comm->numSpins + comm->numYields) {
    sched_yield();
    return;
  }
  if (!wait->isArmed)
    layDown(wait, first);
  else
    nap(wait, first);
}
