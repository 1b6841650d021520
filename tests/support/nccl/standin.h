/* A stand-in for NCCL: the CPU transport under NCCL's names.
 *
 * libnccl.so.2 in miniature, for tests of what loads, calls or interposes on
 * NCCL, over memory that the host can read.  It is made of this library's own
 * objects and shows none of them: names.map lists what it exports, so it and
 * liblrmoe.so do not meet in one process.
 *
 * As in NCCL
 *   - calls of a group become one unit of work at its outermost end;
 *   - works of one communicator run one after the other, in the order of their
 *     issue, whatever their streams;
 *   - where the process has an emulated CUDA (host.c) a call returns when its
 *     work is on the stream, and what goes wrong there is an async error; else
 *     it returns when the work is done;
 *   - on a non-blocking communicator a call returns "in progress", and no
 *     other may follow before ncclCommGetAsyncError says how it went;
 *   - ncclCommAbort frees the communicator, even while a call is under way.
 * Unlike NCCL it knows which handles are alive: a call on one that is not fails
 * and is counted, and so is an abort of a non-blocking communicator while a
 * thread is inside a call on it, which NCCL does not allow. */
#ifndef LRMOE_TESTS_SUPPORT_NCCL_STANDIN_H
#define LRMOE_TESTS_SUPPORT_NCCL_STANDIN_H

#include "base/result.h"
#include "collectives/cpu/comm.h"
#include "collectives/transport.h"

#include <pthread.h>

enum {
  standinTextBytes = 400
};

/* Behind the handles; fields are guarded by standinMutex. */
struct standinComm {
  struct standinComm *next; /* of the handles that are alive */
  struct ncclComm *cpu;     /* NULL until it has joined */
  int device;
  int isNonblocking;
  int isAborted;
  int numUsers;       /* its handle, and calls under way; the last frees */
  int numBusy;        /* non-blocking calls in progress */
  int numInside;      /* threads that are in a call on it */
  int teamRanks;      /* that reach each other's windows */
  int64_t numTickets; /* of works, given and served */
  int64_t numServed;
  lrmoeResult_t result; /* what broke it, for the reason in text */
  char text[standinTextBytes];
};

extern pthread_mutex_t standinMutex;
extern pthread_cond_t standinChanged; /* a work or a joining has ended */

/* Result codes that NCCL has. */
lrmoeResult_t standinResult(lrmoeResult_t result);

/* ---- life.c ---- */

struct standinInit {
  int numRanks;
  lrmoeUniqueId id;
  int rank;
  int isNonblocking;
};
lrmoeResult_t standinCommInit(const struct standinInit *init,
                              struct ncclComm **handle);
lrmoeResult_t standinCommSplit(struct ncclComm *handle, int color, int key,
                               struct ncclComm **newHandle);
lrmoeResult_t standinCommDestroy(struct ncclComm *handle);
lrmoeResult_t standinCommAbort(struct ncclComm *handle);
lrmoeResult_t standinCommState(struct ncclComm *handle, lrmoeResult_t *error);

/* Becomes a user of the communicator if its handle is alive, it is whole and
 * no call on it is in progress; and ends that. */
lrmoeResult_t standinTake(struct ncclComm *handle, struct standinComm **comm);
void standinGive(struct standinComm *comm);

/* The same in two steps, the first under the mutex, so that others see at once
 * that a call has ended and that it uses the communicator no more: adds comm
 * to `dead` if this was its last user; then frees those. */
void standinGiveLocked(struct standinComm *comm, struct standinComm **dead);
void standinBury(struct standinComm *dead);

/* A thread begins (1) or ends (-1) a call on comm, and is a user of it for that
 * time. */
void standinInside(struct standinComm *comm, int change);

/* Waits until all works of comm have run. */
void standinQuiesce(struct standinComm *comm);

/* Notes what broke comm, in the words of the last error, unless something
 * else did before.  Under the mutex. */
void standinNote(struct standinComm *comm, lrmoeResult_t result);

/* ---- work.c ---- */

lrmoeResult_t standinGroupStart(void);
lrmoeResult_t standinGroupEnd(void);
int standinGroupIsOpen(void);

/* Adds a call to this thread's group, or to one of its own. */
lrmoeResult_t standinCall(struct ncclComm *handle, const struct lrmoeCall *call,
                          lrmoeStream_t stream);

/* ---- window.c ---- */

lrmoeResult_t standinWindowRegister(struct standinComm *comm, void *buffer,
                                    size_t bytes,
                                    struct ncclWindow_vidmem **window,
                                    int flags);
lrmoeResult_t standinWindowDeregister(struct standinComm *comm,
                                      struct ncclWindow_vidmem *window);
lrmoeResult_t standinWindowPointer(struct ncclWindow_vidmem *window,
                                   size_t offset, int peer, void **pointer);

/* Where `bytes` of a rank's memory lie in a window, NULL: not in it. */
void *standinWindowAt(const struct ncclWindow_vidmem *window, int rank,
                      size_t offset, size_t bytes);

/* ---- gin.c ---- */

lrmoeResult_t standinDevCommCreate(struct standinComm *comm, const void *needs,
                                   void *devComm);
lrmoeResult_t standinDevCommDestroy(struct standinComm *comm,
                                    const void *devComm);
/* With their communicator. */
void standinDevCommsForget(const struct standinComm *comm);

/* ---- host.c: the emulated CUDA, where the process has one ---- */

typedef void (*standinWorkFunction)(void *argument);

int standinHostHasStreams(void);
/* 0, or CUDA's error. */
int standinHostEnqueue(lrmoeStream_t stream, standinWorkFunction work,
                       void *argument);
/* Around what touches memory of the device. */
void standinHostAccessBegin(void);
void standinHostAccessEnd(void);
/* What the running work touches, for who looks for races between streams. */
void standinHostTouch(const void *start, size_t bytes, int isWrite);
/* It sends a message, or has got one: an order that it may rely on. */
void standinHostRelease(const void *channel);
void standinHostAcquire(const void *channel);
int standinHostDevice(void);
/* Of the emulator's random choices; 0: it makes none. */
uint64_t standinHostSeed(void);

/* The emulated device's memory, or the CPU transport's. */
lrmoeResult_t standinHostMemAlloc(void **pointer, size_t bytes);
lrmoeResult_t standinHostMemFree(void *pointer);

#endif
