/* What the ranks of the programs under test do. */
#include "user.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int userComplain(const struct user *user, const char *file, int line,
                 const char *what, int result) {
  fprintf(stderr, "rank %d: %s:%d: %s: %d\n", user->rank, file, line, what,
          result);
  return 1;
}

enum {
  numRounds = 6
};

static int grouped(struct user *user) {
  ncclComm_t comm;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  for (int round = 0; round < numRounds; round++)
    if (userExchange(user, comm, round, 0)) return 1;
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

/* Messages that are not whole rows. */
static int ragged(struct user *user) {
  ncclComm_t comm;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  for (int round = 0; round < numRounds; round++)
    if (userExchange(user, comm, round, round % 3)) return 1;
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

static int allToAll(struct user *user) {
  ncclComm_t comm;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  for (int round = 0; round < numRounds; round++)
    if (userAllToAll(user, comm, round)) return 1;
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

/* Everything on one communicator, other shapes last; it is not destroyed. */
static int mixed(struct user *user) {
  ncclComm_t comm;
  int64_t mine = user->rank, all[64];
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0) || userAllToAll(user, comm, 1)) return 1;
  USER_OK(user, ncclAllGather(&mine, all, 1, ncclInt64, comm, NULL));
  if (userExchange(user, comm, 2, 0) || userAllToAll(user, comm, 3)) return 1;
  if (userExchangePairs(user, comm, 4)) return 1;
  if (userExchangeNonempty(user, comm, 5)) return 1;
  return userExchange(user, comm, 6, 0) || userAllToAll(user, comm, 7);
}

/* Rank 0 alone deviates from what the others do in one call: legal, since both
 * ends of each message agree, and not an exchange to all. */
static int lopsided(struct user *user) {
  ncclComm_t comm;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0)) return 1;
  if (user->rank ? userExchange(user, comm, 1, 0)
                 : userExchangePairs(user, comm, 1))
    return 1;
  if (userExchange(user, comm, 2, 0)) return 1;
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

/* Two communicators, apart and in one group, and a split of the first. */
static int several(struct user *user) {
  ncclComm_t a, b, half;
  USER_OK(user, ncclCommInitRank(&a, user->numRanks, user->ids[0], user->rank));
  USER_OK(user, ncclCommInitRank(&b, user->numRanks, user->ids[1],
                                 user->numRanks - 1 - user->rank));
  struct user other = *user;
  other.rank = user->numRanks - 1 - user->rank;
  if (userExchange(user, a, 0, 0) || userExchange(&other, b, 1, 0)) return 1;
  USER_OK(user, ncclCommSplit(a, 0, user->rank, &half, NULL));
  if (userExchangeTwo(user, a, half, 2)) return 1;
  if (userExchange(user, a, 4, 0) || userExchange(&other, b, 5, 0)) return 1;
  user->hash ^= other.hash;
  USER_OK(user, ncclCommDestroy(half));
  USER_OK(user, ncclCommDestroy(b));
  USER_OK(user, ncclCommDestroy(a));
  return 0;
}

/* Exchanges of a part of comm, whose ranks have these numbers. */
static int withPart(struct user *user, ncclComm_t part, int rank, int numRanks,
                    int round) {
  struct user member = *user;
  member.rank = rank;
  member.numRanks = numRanks;
  if (userExchange(&member, part, round, 0)) return 1;
  if (userAllToAll(&member, part, round + 1)) return 1;
  user->hash ^= member.hash;
  return 0;
}

/* Even and odd ranks in reversed order, one of them split once more; and all
 * but the first, which has no color. */
static int splits(struct user *user) {
  ncclComm_t all, half, again, rest = NULL;
  int rank = user->rank, numRanks = user->numRanks;
  int numHalf = (numRanks + 1 - rank % 2) / 2, place = numHalf - 1 - rank / 2;
  USER_OK(user, ncclCommInitRank(&all, numRanks, user->ids[0], rank));
  USER_OK(user, ncclCommSplit(all, rank % 2, -rank, &half, NULL));
  if (withPart(user, half, place, numHalf, 0)) return 1;
  USER_OK(user, ncclCommSplit(half, 7, place, &again, NULL));
  if (withPart(user, again, place, numHalf, 2)) return 1;
  if (withPart(user, half, place, numHalf, 4)) return 1;
  USER_OK(user, ncclCommSplit(all, rank ? 5 : -1, 0, &rest, NULL));
  if (rank && withPart(user, rest, rank - 1, numRanks - 1, 6)) return 1;
  if (withPart(user, all, rank, numRanks, 8)) return 1;
  if (rank) USER_OK(user, ncclCommDestroy(rest));
  USER_OK(user, ncclCommDestroy(again));
  USER_OK(user, ncclCommDestroy(all));
  if (withPart(user, half, place, numHalf, 10)) return 1;
  USER_OK(user, ncclCommDestroy(half));
  return 0;
}

/* ---- Threads ---- */

struct worker {
  pthread_t thread;
  struct user user;
  int result;
};

static void *workerMain(void *argument) {
  struct worker *worker = argument;
  worker->result = grouped(&worker->user) || allToAll(&worker->user);
  return NULL;
}

static int runWorkers(struct user *user, struct worker *workers, int count) {
  int failed = 0;
  for (int i = 0; i < count; i++)
    if (pthread_create(&workers[i].thread, NULL, workerMain, &workers[i]))
      return 1;
  for (int i = 0; i < count; i++) {
    pthread_join(workers[i].thread, NULL);
    failed |= workers[i].result;
    user->hash ^= workers[i].user.hash * (uint64_t)(2 * i + 1);
  }
  return failed;
}

/* Two threads a rank, each with communicators of its own. */
static int threads(struct user *user) {
  struct worker workers[2];
  for (int i = 0; i < 2; i++) {
    workers[i].user = *user;
    workers[i].user.ids[0] = user->ids[i];
  }
  return runWorkers(user, workers, 2);
}

/* All ranks are threads of one process. */
static int together(struct user *user) {
  struct worker workers[16];
  for (int i = 0; i < user->numRanks; i++) {
    workers[i].user = *user;
    workers[i].user.rank = i;
  }
  return user->rank ? 0 : runWorkers(user, workers, user->numRanks);
}

/* ---- Processes ---- */

static void childMain(struct user *user, uint64_t *hash) {
  user->ids[0] = user->ids[1];
  int failed = grouped(user);
  *hash = user->hash;
  exit(failed);
}

/* A child with a communicator of its own, while the parent's is in use. */
static int forked(struct user *user) {
  ncclComm_t comm;
  int status = 1;
  uint64_t *hash = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0)) return 1;
  pid_t child = fork();
  if (!child) childMain(user, hash);
  if (userExchange(user, comm, 1, 0)) return 1;
  if (waitpid(child, &status, 0) != child || status) return 1;
  if (userExchange(user, comm, 2, 0)) return 1;
  user->hash ^= *hash;
  munmap(hash, 4096);
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

/* ---- Abort ---- */

static void *abortMain(void *argument) {
  static const struct timespec moment = {0, 300000000};
  nanosleep(&moment, NULL);
  ncclCommAbort(argument);
  return NULL;
}

static int exchangeWithAll(const struct user *user, ncclComm_t comm) {
  static unsigned char from[64 * userRowBytes], to[64 * userRowBytes];
  int failed = ncclGroupStart();
  for (int p = 0; p < user->numRanks; p++) {
    failed |= ncclSend(from + p * userRowBytes, userRowBytes, ncclUint8, p,
                       comm, NULL);
    failed |=
        ncclRecv(to + p * userRowBytes, userRowBytes, ncclUint8, p, comm, NULL);
  }
  return ncclGroupEnd() | failed;
}

/* The last rank never comes; the others are in the call when it is aborted. */
static int aborted(struct user *user) {
  ncclComm_t comm;
  pthread_t thread;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0)) return 1;
  if (pthread_create(&thread, NULL, abortMain, comm)) return 1;
  if (user->rank < user->numRanks - 1 && !exchangeWithAll(user, comm))
    return userComplain(user, __FILE__, __LINE__, "it came through", 0);
  pthread_join(thread, NULL);
  return 0;
}

/* Communicators one after the other, the first ended by a name that nobody
 * interposes; the second may have its handle, and has other ranks. */
static int unseen(struct user *user) {
  int (*destroy)(ncclComm_t comm);
  ncclComm_t comm;
  *(void **)&destroy = dlsym(RTLD_DEFAULT, "pncclCommDestroy");
  if (!destroy) return 1;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0)) return 1;
  USER_OK(user, destroy(comm));
  user->rank = user->numRanks - 1 - user->rank;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[1], user->rank));
  if (userExchange(user, comm, 1, 0)) return 1;
  user->rank = user->numRanks - 1 - user->rank;
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

/* The last rank dies, when the others are in the next call, which fails. */
static int killed(struct user *user) {
  static const struct timespec moment = {0, 500000000};
  ncclComm_t comm;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0)) return 1;
  if (user->rank == user->numRanks - 1) {
    nanosleep(&moment, NULL);
    raise(SIGKILL);
  }
  if (!exchangeWithAll(user, comm))
    return userComplain(user, __FILE__, __LINE__, "it came through", 0);
  USER_OK(user, ncclCommAbort(comm));
  return 0;
}

/* The last rank comes late, once, where USER_LATE says so. */
static int late(struct user *user) {
  static const struct timespec moment = {2, 500000000};
  ncclComm_t comm;
  USER_OK(user,
          ncclCommInitRank(&comm, user->numRanks, user->ids[0], user->rank));
  if (userExchange(user, comm, 0, 0)) return 1;
  if (user->rank == user->numRanks - 1 && getenv("USER_LATE"))
    nanosleep(&moment, NULL);
  if (userExchange(user, comm, 1, 0) || userExchange(user, comm, 2, 0))
    return 1;
  USER_OK(user, ncclCommDestroy(comm));
  return 0;
}

userScenario userFind(const char *name) {
  static const struct {
    const char *name;
    userScenario scenario;
  } all[] = {
      {"grouped", grouped}, {"ragged", ragged},     {"alltoall", allToAll},
      {"mixed", mixed},     {"lopsided", lopsided}, {"several", several},
      {"splits", splits},   {"threads", threads},   {"together", together},
      {"forked", forked},   {"aborted", aborted},   {"killed", killed},
      {"late", late},       {"unseen", unseen},     {"hinted", userHinted}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(name, all[i].name)) return all[i].scenario;
  return NULL;
}
