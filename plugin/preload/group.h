/* A thread's group of calls, as the shim follows it. */
#ifndef LRMOE_PLUGIN_PRELOAD_GROUP_H
#define LRMOE_PLUGIN_PRELOAD_GROUP_H

#include "plugin/preload/comm.h"

/* A send or receive as it was issued; comm is used until the group ends. */
struct lrmoePreloadCall {
  struct lrmoePreloadComm *comm;
  const void *send; /* NULL: a receive */
  void *recv;
  size_t count;
  int64_t bytes;
  lrmoeStream_t stream;
  lrmoeDataType_t type;
  int peer;
  int isSend;
  int isDeferred; /* NCCL has not seen it yet */
};

/* Bytes of an element of NCCL's type, 0: not known. */
int64_t lrmoePreloadTypeBytes(lrmoeDataType_t type);

/* Adds up what crossed; zero rows where their width is known. */
void lrmoePreloadCount(const struct lrmoePreloadCall *call);

/* The interposed calls of groups and messages, behind names.c. */
lrmoeResult_t lrmoePreloadGroupStart(const struct lrmoePreloadReal *real);
lrmoeResult_t lrmoePreloadGroupEnd(const struct lrmoePreloadReal *real);
lrmoeResult_t lrmoePreloadMessage(const struct lrmoePreloadReal *real,
                                  lrmoeNcclComm_t handle,
                                  const struct lrmoePreloadCall *given);
int lrmoePreloadGroupIsOpen(void);

/* Hands one call to NCCL as it is. */
lrmoeResult_t lrmoePreloadForward(const struct lrmoePreloadReal *real,
                                  const struct lrmoePreloadCall *call);

/* Before a call of another kind on the communicator: NCCL matches messages by
 * their order, so it gets first what it has not seen of this thread's group. */
void lrmoePreloadOther(const struct lrmoePreloadReal *real,
                       lrmoeNcclComm_t handle);

/* An all-to-all, as the collective that it is unless its zero rows stay. */
struct lrmoePreloadAll {
  const void *from;
  void *to;
  size_t count;
  lrmoeDataType_t type;
  lrmoeNcclComm_t handle;
  lrmoeStream_t stream;
};
lrmoeResult_t lrmoePreloadAllToAll(const struct lrmoePreloadReal *real,
                                   const struct lrmoePreloadAll *all);

/* NCCL's own calls of NCCL come through the shim too; while this is not 0 on a
 * thread they are forwarded. */
extern _Thread_local int lrmoePreloadInside;

#endif
