/* NCCL's profiler plugin interface, version 5 (NCCL 2.28 and newer): facts of
 * its ABI, in our own words and as far as they are used.
 * tests/plugin/profiler_test.c pins the offsets. */
#ifndef LRMOE_PLUGIN_NCCL_PROFILER_H
#define LRMOE_PLUGIN_NCCL_PROFILER_H

#include "lrmoe.h"

/* Kinds of events, bits of the activation mask; and the one state that is
 * looked at. */
enum {
  lrmoeEventColl = 1 << 1,
  lrmoeEventP2p = 1 << 2,
  lrmoeEventKernel = 1 << 6,
  lrmoeStateKernelStop = 22
};

/* What an event is about; `type` says which of the three. */
struct lrmoeNcclEvent {
  uint64_t type;
  void *parent; /* the handle of the event that it belongs to */
  int rank;
  union {
    struct {
      uint64_t sequence;
      const char *func;
      const void *send;
      void *recv;
      size_t count;
      int root;
      const char *datatype;
      uint8_t numChannels;
      uint8_t numWarps;
      const char *algorithm;
      const char *protocol;
      void *parentGroup;
    } coll;
    struct {
      const char *func;
      void *buffer;
      const char *datatype;
      size_t count;
      int peer;
      uint8_t numChannels;
      void *parentGroup;
    } p2p;
    struct {
      uint8_t channel;
      uint64_t timer; /* of the GPU, ns */
    } kernel;
  } of;
};

union lrmoeNcclEventState {
  struct {
    uint64_t timer;
  } kernel;
};

struct lrmoeNcclProfilerPlugin {
  const char *name;
  lrmoeResult_t (*init)(void **context, uint64_t commId, int *mask,
                        const char *commName, int numNodes, int numRanks,
                        int rank, void *logger);
  lrmoeResult_t (*startEvent)(void *context, void **handle,
                              struct lrmoeNcclEvent *event);
  lrmoeResult_t (*stopEvent)(void *handle);
  lrmoeResult_t (*recordEventState)(void *handle, int state,
                                    union lrmoeNcclEventState *arguments);
  lrmoeResult_t (*finalize)(void *context);
};

/* What NCCL looks for. */
extern const struct lrmoeNcclProfilerPlugin ncclProfiler_v5;

#endif
