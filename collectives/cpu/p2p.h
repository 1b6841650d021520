/* Messages between two ranks: the progress of a round. */
#ifndef LRMOE_COLLECTIVES_CPU_P2P_H
#define LRMOE_COLLECTIVES_CPU_P2P_H

#include "collectives/cpu/comm.h"

/* Adds a message to the round; `data` of a send is only read. */
lrmoeResult_t lrmoeMessageSend(struct ncclComm *comm, int peer,
                               const void *data, uint64_t bytes,
                               lrmoeDataType_t type);
lrmoeResult_t lrmoeMessageRecv(struct ncclComm *comm, int peer, void *data,
                               uint64_t bytes, lrmoeDataType_t type);

/* Makes room for `count` messages, so that adding them cannot fail. */
lrmoeResult_t lrmoeMessagesReserve(struct ncclComm *comm, int64_t count);
void lrmoeMessagesClear(struct ncclComm *comm);

/* Moves what can be moved now, on all lanes; *moved says whether anything
 * did.  The round is over when comm->numOpen is 0. */
lrmoeResult_t lrmoeMessagesProgress(struct ncclComm *comm, int *moved);

/* After a failure: returns when no rank of this process is still reading this
 * rank's buffers, which the caller may now free. */
void lrmoeMessagesQuiesce(struct ncclComm *comm);

#endif
