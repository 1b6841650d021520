/* Pointers into peers' windows: by release, since NCCL's device API changed
 * with 2.29.  One file each; transport.c chooses by what the library is.
 *
 * 2.28  has no host call for them: they are read from what a window is on the
 *       device (window_228.c).
 * 2.29+ has ncclGetPeerDevicePointer (window_229.c).
 *
 * Neither needs an ncclDevComm: barriers of NCCL's device API have no way to
 * end a wait, so that ranks meet by words of their own (kernels/fused.h). */
#ifndef LRMOE_COLLECTIVES_NCCL_WINDOW_H
#define LRMOE_COLLECTIVES_NCCL_WINDOW_H

#include "collectives/nccl/comm.h"

/* Whether the library is one of 2.28 that tells which ranks share memory. */
int lrmoeNcclWindow228Is(const struct lrmoeNccl *nccl);

/* Notes which ranks share the memory of a window, and forgets the window; one
 * that is not noted is legal. */
lrmoeResult_t lrmoeNcclWindow228Note(const struct lrmoeNcclComm *comm,
                                     struct ncclWindow_vidmem *window);
void lrmoeNcclWindow228Forget(const struct ncclWindow_vidmem *window);

/* Behind the table's getPeerPointer: lrmoeUnsupported where the peer's memory
 * cannot be addressed. */
lrmoeResult_t lrmoeNcclWindow228Pointer(struct ncclWindow_vidmem *window,
                                        size_t offset, int peer,
                                        void **pointer);
lrmoeResult_t lrmoeNcclWindow229Pointer(struct ncclWindow_vidmem *window,
                                        size_t offset, int peer,
                                        void **pointer);

#endif
