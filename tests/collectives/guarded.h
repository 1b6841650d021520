/* A device made of the CPU: its memory is out of the host's reach but for the
 * time of a backend or transport call.
 *
 * A host read of device memory, or a kernel's read of the host's, is a crash
 * here, as it is on a GPU.  Arithmetic is the CPU backend's, so that the whole
 * suite of the layer can run this way in little more time. */
#ifndef LRMOE_TESTS_GUARDED_H
#define LRMOE_TESTS_GUARDED_H

#include "collectives/comm.h"

/* Makes a CPU communicator one of the guarded device. */
void guardedAttach(struct lrmoeComm *comm);

/* Copies between host and device, and waits for a stream, of this rank. */
struct guardedCopies {
  int64_t bytesToHost;
  int64_t bytesToDevice;
  int64_t numWaits;
};
void guardedResetCopies(void);
struct guardedCopies guardedGetCopies(void);

/* Whether LRMOE_TEST_BACKEND asks for it. */
int guardedIsWanted(void);

#endif
