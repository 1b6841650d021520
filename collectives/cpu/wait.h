/* Waiting for peers: doorbells and the policy of a waiting rank. */
#ifndef LRMOE_COLLECTIVES_CPU_WAIT_H
#define LRMOE_COLLECTIVES_CPU_WAIT_H

#include "base/clock.h"

#include <stdint.h>

struct ncclComm;

/* Wakes `rank` if it sleeps.  After the store that it has to see. */
void lrmoeBellRing(struct ncclComm *comm, int rank);
void lrmoeBellRingAlways(struct ncclComm *comm, int rank);

struct lrmoeWait {
  int64_t numIdle; /* calls of lrmoeWaitIdle since something moved */
  uint32_t seen;   /* the doorbell's value when this rank lay down */
  int isArmed;
};

/* Something moved: begin again with polling. */
void lrmoeWaitReset(struct lrmoeWait *wait, struct ncclComm *first);

/* Nothing moved in a look at all communicators of the group that begins with
 * `first`: pause, yield or sleep, and look after the peers now and then.  The
 * caller looks again after every call. */
void lrmoeWaitIdle(struct lrmoeWait *wait, struct ncclComm *first);

#endif
