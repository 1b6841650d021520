/* Windows: memory of one rank that the others can address. */
#ifndef LRMOE_COLLECTIVES_CPU_WINDOW_H
#define LRMOE_COLLECTIVES_CPU_WINDOW_H

#include "collectives/cpu/comm.h"

struct ncclWindow_vidmem;

lrmoeResult_t lrmoeWindowRegister(struct ncclComm *comm, void *buffer,
                                  size_t bytes,
                                  struct ncclWindow_vidmem **window, int flags);
lrmoeResult_t lrmoeWindowDeregister(struct ncclComm *comm,
                                    struct ncclWindow_vidmem *window);
lrmoeResult_t lrmoeWindowPointer(struct ncclWindow_vidmem *window,
                                 size_t offset, int peer, void **pointer);

/* Frees the windows that are left when comm is destroyed. */
void lrmoeWindowsFree(struct ncclComm *comm);

#endif
