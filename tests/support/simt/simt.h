/* The SIMT emulator and its stand-in CUDA runtime, as tests see them.
 *
 * CUDA sources are compiled as C++ with face/lrmoe_device.h and run on fibers,
 * one per CUDA thread, by the operating-system thread that synchronises with
 * their stream.  Everything that hardware leaves open is chosen here by a
 * seed: the order of threads, of blocks and of streams, and whether a thread
 * is preempted at an atomic.  A correct program gives the same bits under
 * every choice.
 *
 * Work on one stream that touches what another stream writes, and that no
 * event, stream or host orders after it, is reported as a race, whichever came
 * first; of kernels the accesses that are counted (below) are looked at.
 *
 * Broken kernels are reported on stderr with kernel, block, thread and source
 * line; the runtime call that finds out returns an error, and so does every
 * later call of that device until cudaDeviceReset.
 *
 * The environment sets the start values: LRMOE_SIMT_ORDER (fifo, lifo,
 * random), LRMOE_SIMT_SEED (a number; it implies random order with
 * preemption), LRMOE_SIMT_DEVICES (8), LRMOE_SIMT_LEAKS (1: what was not freed
 * is listed at exit).
 *
 * Departures from hardware: one block at a time per operating-system thread,
 * so blocks that wait for each other are reported as endless; no tensor cores,
 * clusters, or cooperative groups; floating point is not contracted. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_SIMT_H
#define LRMOE_TESTS_SUPPORT_SIMT_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simtOrder {
  simtOrderFifo,
  simtOrderLifo,
  simtOrderRandom
};

struct simtConfig {
  enum simtOrder threads; /* of a block, among those that can run */
  enum simtOrder blocks;  /* of a grid */
  enum simtOrder streams; /* of a device, obeying events */
  uint64_t seed;          /* of every random choice */
  uint64_t preemptOneIn;  /* 0, or at one in so many atomics another runs */
  uint64_t maxSteps;      /* atomics, fences, checked accesses and switches
                             without progress of the block; then it is
                             reported as endless */
  int strictExit;         /* threads may not exit while others wait */
  int quiet;              /* reports are kept (simtLastReport), not printed */
};

/* The configuration is one per process; it holds from the next launch on. */
void simtGetConfig(struct simtConfig *config);
void simtSetConfig(const struct simtConfig *config);

/* All three orders and the seed at once; preemption with random order. */
void simtSetOrder(enum simtOrder order, uint64_t seed);

/* The last report of this process, "" when there is none; valid until the
 * next report. */
const char *simtLastReport(void);

/* What the kernels of one name did, template arguments aside.  Only accesses
 * through lrmoeLoad, lrmoeStore, __ldg, __ldcs, __ldcg, __stcs, __stcg and
 * atomics (a load and a store) are counted. */
struct simtCounters {
  int64_t launches;
  int64_t threads;
  int64_t bytesLoaded;
  int64_t bytesStored;
};

/* Gives the counters of a kernel, zeros when it never ran; waits for nothing:
 * synchronise first. */
void simtGetCounters(const char *kernel, struct simtCounters *counters);

/* Calls visit for every kernel that ran, in alphabetical order. */
void simtVisitCounters(void (*visit)(const char *kernel,
                                     const struct simtCounters *what,
                                     void *user),
                       void *user);
void simtResetCounters(void);

/* Host code may touch device memory between the two, as unified memory; they
 * nest.  Nothing is waited for. */
void simtOpenDevice(void);
void simtCloseDevice(void);

/* Work of other libraries' stand-ins in stream order.  `ready` (NULL: always)
 * says whether it can run now, is called with the queue locked and calls
 * nothing of CUDA; `run` gives 0 or breaks the device.  Both may be called by
 * any thread that synchronises.  Gives a cudaError_t. */
struct CUstream_st;
struct simtWork {
  const char *what; /* for reports; static */
  int (*ready)(void *user);
  int (*run)(void *user);
  void *user;
};
int simtEnqueue(struct CUstream_st *stream, const struct simtWork *work);

/* The same for a stand-in for NCCL, which finds it by name: work that uses
 * device memory and may wait for peers, and has error reports of its own. */
int lrmoeSimtStreamEnqueue(struct CUstream_st *stream, void (*work)(void *),
                           void *argument);

/* The running work of a stand-in touches device memory: for races between
 * streams. */
void lrmoeSimtTouch(const void *start, size_t bytes, int isWrite);

/* It sends a message (release), or has got one: what comes after knows what was
 * before.  `channel` names whose. */
void lrmoeSimtRelease(const void *channel);
void lrmoeSimtAcquire(const void *channel);

/* cudaMalloc for it: devices that allocate the same sequence of sizes get
 * addresses that lie 4 GiB apart, as in NCCL's flat memory. */
int lrmoeSimtMemAllocFlat(void **pointer, size_t bytes);

/* Something changed that a `ready` looks at. */
void simtWake(void);

/* The n-th call from now, 1 the next, that can fail fails with the given
 * cudaError_t and does nothing; 0: none.  Of all threads together. */
void simtFailCall(int64_t n, int error);

/* Device memory in use, of all devices. */
int64_t simtGetBytesInUse(void);
int64_t simtGetAllocations(void);

#ifdef __cplusplus
}
#endif

#endif
