/* A program that knows NCCL only: what its ranks do, by name. */
#ifndef LRMOE_TESTS_PLUGIN_USER_H
#define LRMOE_TESTS_PLUGIN_USER_H

#include "nccl_names.h"

#include <stdint.h>

enum {
  userRowBytes = 256
};

struct user {
  int rank;
  int numRanks;
  int zeroPercent; /* of rows */
  int64_t numRows; /* most of a message; all of an all-to-all's */
  ncclUniqueId ids[2];
  uint64_t hash; /* of all that was received */
};

/* 0, or 1 after it said on stderr what failed. */
typedef int (*userScenario)(struct user *user);
userScenario userFind(const char *name);

/* Leaves the function when a call of NCCL's fails. */
#define USER_OK(user, call)                                                 \
  do {                                                                      \
    int got_ = (call);                                                      \
    if (got_) return userComplain((user), __FILE__, __LINE__, #call, got_); \
  } while (0)
int userComplain(const struct user *user, const char *file, int line,
                 const char *what, int result);

/* A framework that hints (user_hint.c). */
int userHinted(struct user *user);

/* ---- Exchanges (user_exchange.c) ---- */

/* As PyTorch issues an unequal all-to-all: one group, a send and a receive for
 * every rank, empty ones too.  `round` chooses sizes and contents; messages are
 * rows plus `odd` bytes. */
int userExchange(struct user *user, ncclComm_t comm, int round, int64_t odd);

/* As nccl-tests does: without the empty ones. */
int userExchangeNonempty(struct user *user, ncclComm_t comm, int round);

/* One peer after the other, a group each. */
int userExchangePairs(struct user *user, ncclComm_t comm, int round);

/* One group for two communicators. */
int userExchangeTwo(struct user *user, ncclComm_t a, ncclComm_t b, int round);

/* ncclAlltoAll of numRows rows a peer. */
int userAllToAll(struct user *user, ncclComm_t comm, int round);

#endif
