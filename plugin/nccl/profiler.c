/* NCCL's profiler plugin: a line of telemetry a communicator, appended to the
 * file that LRMOE_NCCL_REPORT names.
 *
 * What is there: the bytes that were sent to and received from each peer
 * (ncclAlltoAll too: NCCL makes sends and receives of it), and for collectives
 * the time on the GPU, from the first channel's start to the last one's stop.
 *
 * What is not: times of sends and receives.  Their events start and stop when
 * the host has enqueued them, and the GPU's stamps are those of a batch of up
 * to eight peers, so what a single peer took cannot be known.  Calibration
 * measures that with messages of its own (lrmoeTopologyCalibrate).  Nor can
 * stamps of two GPUs be compared.
 *
 * A collective's event ends before its kernel begins, so ops are kept in a
 * ring; stamps that come when theirs is gone are counted, not guessed.
 */
#include "plugin/nccl/profiler.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/param.h"
#include "plugin/line.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
  numOps = 256,
  numStamps = 4096,
  maxFunctions = 16
};

struct function {
  char name[32];
  int64_t numCalls;
  int64_t bytes; /* count times the size of an element */
  int64_t numTimed;
  int64_t gpuNs; /* of those that were timed */
};

struct op {
  struct function *function; /* NULL: free */
  uint64_t serial;
  uint64_t start;
  uint64_t stop; /* 0: no stamp yet */
};

/* One channel's part of an op. */
struct stamp {
  struct profile *profile;
  struct op *op;
  uint64_t serial; /* of op, when this began */
  uint64_t start;
};

struct profile {
  pthread_mutex_t mutex; /* NCCL's proxy thread brings the stamps */
  uint64_t commId;
  char name[64];
  int rank;
  int numRanks;
  int64_t *sentBytes; /* [numRanks] each, one allocation */
  int64_t *recvBytes;
  int64_t numSends;
  int64_t numRecvs;
  int64_t numLost;
  uint64_t serial;
  uint64_t numStampsUsed;
  int numFunctions;
  struct function functions[maxFunctions];
  struct op ops[numOps];
  struct stamp stamps[numStamps];
};

/* ---- Communicators ---- */

/* Without a file there is nothing to do, and no event to be had.  As many
 * parameters as NCCL gives. NOLINTBEGIN(readability-function-size) */
static lrmoeResult_t init(void **context, uint64_t commId, int *mask,
                          const char *commName, int numNodes, int numRanks,
                          int rank, void *logger) {
  struct profile *profile = NULL;
  (void)numNodes;
  (void)logger;
  *context = NULL;
  *mask = 0;
  if (!strcmp(lrmoeParamGetText(lrmoeParamNcclReport), "none") || numRanks < 1)
    return lrmoeSuccess;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &profile));
  lrmoeResult_t result =
      LRMOE_ALLOCATE(2 * (int64_t)numRanks, &profile->sentBytes);
  if (result != lrmoeSuccess) {
    lrmoeFree(profile);
    return result;
  }
  profile->recvBytes = profile->sentBytes + numRanks;
  pthread_mutex_init(&profile->mutex, NULL);
  profile->commId = commId;
  profile->rank = rank;
  profile->numRanks = numRanks;
  snprintf(profile->name, sizeof profile->name, "%s", commName ? commName : "");
  *mask = lrmoeEventColl | lrmoeEventP2p | lrmoeEventKernel;
  *context = profile;
  return lrmoeSuccess;
}
/* NOLINTEND(readability-function-size) */

/* ---- Events ---- */

static int64_t typeBytes(const char *datatype) {
  static const struct {
    const char *name;
    int64_t bytes;
  } types[] = {
      {"ncclInt8", 1},     {"ncclUint8", 1},      {"ncclInt32", 4},
      {"ncclUint32", 4},   {"ncclInt64", 8},      {"ncclUint64", 8},
      {"ncclFloat16", 2},  {"ncclFloat32", 4},    {"ncclFloat64", 8},
      {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1}};
  for (size_t i = 0; datatype && i < sizeof types / sizeof *types; i++)
    if (!strcmp(datatype, types[i].name)) return types[i].bytes;
  return 0;
}

static void countMessage(struct profile *profile,
                         const struct lrmoeNcclEvent *event) {
  const char *func = event->of.p2p.func;
  int peer = event->of.p2p.peer, isSend = func && !strcmp(func, "Send");
  int64_t bytes =
      (int64_t)event->of.p2p.count * typeBytes(event->of.p2p.datatype);
  if (peer < 0 || peer >= profile->numRanks) return;
  (isSend ? profile->sentBytes : profile->recvBytes)[peer] += bytes;
  profile->numSends += isSend;
  profile->numRecvs += !isSend;
}

/* The last place takes all functions that have none of their own. */
static struct function *functionOf(struct profile *profile, const char *name) {
  for (int i = 0; i < profile->numFunctions; i++)
    if (!strcmp(profile->functions[i].name, name))
      return &profile->functions[i];
  if (profile->numFunctions == maxFunctions)
    return &profile->functions[maxFunctions - 1];
  struct function *made = &profile->functions[profile->numFunctions++];
  snprintf(made->name, sizeof made->name, "%s",
           profile->numFunctions == maxFunctions ? "others" : name);
  return made;
}

static void endOp(struct op *op) {
  if (op->function && op->stop > op->start) {
    op->function->numTimed++;
    op->function->gpuNs += (int64_t)(op->stop - op->start);
  }
  op->function = NULL;
}

static struct op *startOp(struct profile *profile,
                          const struct lrmoeNcclEvent *event) {
  const char *func = event->of.coll.func;
  struct op *op = &profile->ops[profile->serial % numOps];
  endOp(op);
  *op = (struct op){.function = functionOf(profile, func ? func : "unnamed"),
                    .serial = ++profile->serial,
                    .start = UINT64_MAX};
  op->function->numCalls++;
  op->function->bytes +=
      (int64_t)event->of.coll.count * typeBytes(event->of.coll.datatype);
  return op;
}

/* The parent is an op, or NULL for messages, which have no times. */
static struct stamp *startStamp(struct profile *profile,
                                const struct lrmoeNcclEvent *event) {
  struct op *op = event->parent;
  if (!op) return NULL;
  struct stamp *stamp = &profile->stamps[profile->numStampsUsed++ % numStamps];
  *stamp = (struct stamp){profile, op, op->serial, event->of.kernel.timer};
  return stamp;
}

static lrmoeResult_t startEvent(void *context, void **handle,
                                struct lrmoeNcclEvent *event) {
  struct profile *profile = context;
  *handle = NULL;
  if (!profile) return lrmoeSuccess;
  pthread_mutex_lock(&profile->mutex);
  if (event->type == lrmoeEventP2p) countMessage(profile, event);
  if (event->type == lrmoeEventColl) *handle = startOp(profile, event);
  if (event->type == lrmoeEventKernel) *handle = startStamp(profile, event);
  pthread_mutex_unlock(&profile->mutex);
  return lrmoeSuccess;
}

/* The host has enqueued it, which says nothing of the GPU. */
static lrmoeResult_t stopEvent(void *handle) {
  (void)handle;
  return lrmoeSuccess;
}

static void stopStamp(struct stamp *stamp, uint64_t stop) {
  struct op *op = stamp->op;
  if (op->serial != stamp->serial || !op->function || stop < stamp->start) {
    stamp->profile->numLost++;
    return;
  }
  if (stamp->start < op->start) op->start = stamp->start;
  if (stop > op->stop) op->stop = stop;
}

/* Only stamps have this state. */
static lrmoeResult_t recordEventState(void *handle, int state,
                                      union lrmoeNcclEventState *arguments) {
  struct stamp *stamp = handle;
  if (!stamp || state != lrmoeStateKernelStop || !arguments)
    return lrmoeSuccess;
  struct profile *profile = stamp->profile;
  pthread_mutex_lock(&profile->mutex);
  stopStamp(stamp, arguments->kernel.timer);
  pthread_mutex_unlock(&profile->mutex);
  return lrmoeSuccess;
}

/* ---- End ---- */

static json_t *listFunctions(const struct profile *profile) {
  json_t *list = json_array();
  for (int i = 0; i < profile->numFunctions; i++) {
    const struct function *function = &profile->functions[i];
    json_t *row = json_object();
    json_object_set_new(row, "func", json_string(function->name));
    lrmoeLinePut(row, "calls", function->numCalls);
    lrmoeLinePut(row, "bytes", function->bytes);
    lrmoeLinePut(row, "timed", function->numTimed);
    lrmoeLinePut(row, "gpuNs", function->gpuNs);
    json_array_append_new(list, row);
  }
  return list;
}

static lrmoeResult_t finalize(void *context) {
  struct profile *profile = context;
  if (!profile) return lrmoeSuccess;
  for (int i = 0; i < numOps; i++)
    endOp(&profile->ops[i]);
  json_t *line = lrmoeLineBegin("profile", profile->commId, profile->numRanks);
  json_object_set_new(line, "name", json_string(profile->name));
  lrmoeLinePut(line, "rank", profile->rank);
  json_object_set_new(line, "sentBytes",
                      lrmoeLineNumbers(profile->sentBytes, profile->numRanks));
  json_object_set_new(line, "recvBytes",
                      lrmoeLineNumbers(profile->recvBytes, profile->numRanks));
  lrmoeLinePut(line, "sends", profile->numSends);
  lrmoeLinePut(line, "recvs", profile->numRecvs);
  json_object_set_new(line, "collectives", listFunctions(profile));
  lrmoeLinePut(line, "lostStamps", profile->numLost);
  lrmoeLineAppend(line, "LRMOE_NCCL_REPORT",
                  lrmoeParamGetText(lrmoeParamNcclReport));
  pthread_mutex_destroy(&profile->mutex);
  lrmoeFree(profile->sentBytes);
  lrmoeFree(profile);
  return lrmoeSuccess;
}

__attribute__((visibility("default")))
const struct lrmoeNcclProfilerPlugin ncclProfiler_v5 = {
    "lrmoe", init, startEvent, stopEvent, recordEventState, finalize};
