/* Streams for the stand-in for NCCL: a thread each, in order; what the SIMT
 * emulator's run-time brings, cut down to what these tests need. */
#ifndef LRMOE_TESTS_COLLECTIVES_NCCL_FAKE_STREAMS_H
#define LRMOE_TESTS_COLLECTIVES_NCCL_FAKE_STREAMS_H

#include "lrmoe.h"

#include <stdatomic.h>

/* The prototypes on which the stand-in and a run-time agree. */
int lrmoeSimtStreamEnqueue(struct CUstream_st *stream, void (*work)(void *),
                           void *argument);
void lrmoeSimtAccessBegin(void);
void lrmoeSimtAccessEnd(void);
int cudaGetDevice(int *device);

lrmoeStream_t fakeStreamMake(void);
void fakeStreamSync(lrmoeStream_t stream);
void fakeStreamFree(lrmoeStream_t stream); /* after a sync */

/* What is enqueued behind this waits until the gate is not 0. */
void fakeStreamHold(lrmoeStream_t stream, atomic_int *gate);

/* CUDA's error of every enqueuing from now on; 0: none. */
extern atomic_int fakeStreamError;

/* While it is not 0 no enqueuing returns; how many have begun to wait. */
extern atomic_int fakeStreamBlock;
extern atomic_int fakeStreamWaiting;

/* Accesses begun and not ended, and begun in all. */
extern atomic_int fakeOpenAccesses;
extern atomic_int fakeAccesses;

#endif
