/* Exchanges without their zero rows. */
#ifndef LRMOE_PLUGIN_PRELOAD_ELIDE_H
#define LRMOE_PLUGIN_PRELOAD_ELIDE_H

#include "plugin/preload/group.h"

struct lrmoeElisionPeer {
  const struct lrmoePreloadCall *send;
  const struct lrmoePreloadCall *recv;
};

/* One exchange: a send and a receive for each rank. */
struct lrmoeElision {
  struct lrmoePreloadComm *comm;
  struct lrmoeElisionPeer *peers; /* [numRanks] */
  uint64_t k;
  int64_t rowBytes;
  int isElided; /* the compact messages are with NCCL */
  int isGone;   /* aborted meanwhile: nothing may be called any more */
};

/* Rows of a message that may stay: 0 where it crosses as it is. */
int64_t lrmoeElisionRows(const struct lrmoeElision *elision, int64_t bytes,
                         int peer);

/* Publishes what this rank sends and receives and, if all ranks did so and
 * some rows are zero, issues the compact messages in their place.  calls are
 * those of one group; those of other shapes withdraw the communicator, after
 * which they cross as they are.  Free with lrmoeElisionEnd. */
lrmoeResult_t lrmoeElisionBegin(const struct lrmoePreloadReal *real,
                                const struct lrmoePreloadCall *calls,
                                int64_t numCalls, struct lrmoeElision *elision);

/* After the transfer: puts rows and zeros in their places, unless it failed. */
void lrmoeElisionEnd(struct lrmoeElision *elision, lrmoeResult_t result);

/* Something else than an exchange comes on the communicator. */
void lrmoeElisionWithdraw(struct lrmoePreloadComm *comm);

/* Whether the communicator's exchanges may go without zero rows. */
int lrmoeElisionIsOn(const struct lrmoePreloadComm *comm);

#endif
