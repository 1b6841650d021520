/* LRMoE: calibrated all-to-all for Mixture-of-Experts training.
 *
 * This is the only header of liblrmoe.so (lrmoe_hint.h, beside it, is of
 * liblrmoe_preload.so).  It needs no other header, is clean in C11 and C++17,
 * and names communicators and streams by the tags that NCCL and CUDA use, so
 * that neither has to be installed.
 *
 * Rules that hold for every function:
 *   Results    A function returns lrmoeSuccess or says why not; the text is in
 *              lrmoeGetLastError() of the same thread.  Out arguments come
 *              last and are written only on success.
 *   Collective A function marked "collective" must be called by all ranks of
 *              the communicator in the same order.  If it fails on one rank
 *              after it has begun to communicate, the communicator is broken:
 *              the other ranks get lrmoeRemoteError, never a hang.
 *   Stream     On a CPU communicator the stream is NULL and the work is done
 *              when the call returns.  On an NCCL communicator it is a CUDA
 *              stream, and a call returns when its work is enqueued there.
 *   Memory     Of a layer on an NCCL communicator, rows, routing, weights and
 *              gradients, and what the handoff shows per pair or row, are in
 *              device memory, at 16-byte boundaries; counts, offsets, configs
 *              and all else are in the host's.  On a CPU communicator all is
 *              in the host's.
 *   Waiting    Of a layer's calls on an NCCL communicator lrmoeStepCreate and
 *              lrmoeDispatch wait for the stream, and lrmoeSelect once, for
 *              counts.  lrmoeSelectPackSend waits once too, or never where
 *              rows go through windows (LRMOE_FUSED), up to
 *              LRMOE_GATHER_RANKS ranks select for themselves, saved state is
 *              full, router gradients are not executor, and no pair can move:
 *              with scope instance, metric all, or without replicas.  With
 *              scope layer, a wire other than dedup, or more than 252 instances
 *              of an expert, the host works the backward's route out, and waits
 *              once for it, with wire node three times.  A call may wait when
 *              it needs more room than before.
 *   Capture    No call of a layer can be captured in a graph, also where none
 *              waits: ranks number their meetings on the host, tables reach
 *              the device through memory that the host fills anew, and experts
 *              use side streams.
 *   Threads    Handles may be used by any thread, one at a time.  Distinct
 *              handles may be used at once.
 *   Fork       A child of fork() must not use handles made by its parent.
 *   Configs    Every struct that begins with size, magic, version is made by
 *              its *_INITIALIZER.  The library reads and writes no more than
 *              `size` bytes, so programs built against an older header keep
 *              working.
 *
 * Letters: H hidden size, F expert intermediate size, E experts, k routing
 * slots per token, T tokens on this rank, G ranks.  Matrices are row-major.
 * Counts and offsets are int64; offsets are exclusive prefix sums.
 */
#ifndef LRMOE_H
#define LRMOE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LRMOE_MAJOR   0
#define LRMOE_MINOR   1
#define LRMOE_PATCH   0
#define LRMOE_VERSION (LRMOE_MAJOR * 10000 + LRMOE_MINOR * 100 + LRMOE_PATCH)

/* First bytes of every versioned struct ("LRMo"). */
#define LRMOE_MAGIC 0x6f4d524cu

struct ncclComm; /* behind NCCL's ncclComm_t */
typedef struct CUstream_st *lrmoeStream_t;
typedef struct lrmoeComm *lrmoeComm_t;
typedef struct lrmoeWindow *lrmoeWindow_t;
typedef struct lrmoeEvent *lrmoeEvent_t;
typedef struct lrmoeTopology *lrmoeTopology_t;
typedef struct lrmoePlanner *lrmoePlanner_t;
typedef struct lrmoePlan *lrmoePlan_t;
typedef struct lrmoeLayer *lrmoeLayer_t;
typedef struct lrmoeStep *lrmoeStep_t;
typedef struct lrmoeHostOptimizer *lrmoeHostOptimizer_t;

/* ---- Results ---------------------------------------------------------- */

/* 0-7 are NCCL's values and meanings; ours start at 64. */
typedef enum {
  lrmoeSuccess = 0,
  lrmoeUnhandledCudaError = 1,
  lrmoeSystemError = 2,     /* a system call failed */
  lrmoeInternalError = 3,   /* a bug in this library */
  lrmoeInvalidArgument = 4, /* a value is out of its range */
  lrmoeInvalidUsage = 5,    /* a call out of order, or ranks that disagree */
  lrmoeRemoteError = 6,     /* a peer is dead, stopped, late or has failed */
  lrmoeInProgress = 7,
  lrmoeOutOfMemory = 64,
  lrmoeUnsupported = 65,  /* valid, but this build or release cannot do it */
  lrmoeInfeasible = 66,   /* no plan fits the capacities */
  lrmoeNotInstalled = 67, /* a module that must be loaded is missing */
  lrmoeCorrupt = 68       /* saved data is damaged */
} lrmoeResult_t;

/* Version of the library at run time, as LRMOE_VERSION. */
lrmoeResult_t lrmoeGetVersion(int *version);

/* Name of a result; never NULL, static storage. */
const char *lrmoeGetErrorString(lrmoeResult_t result);

/* Why the last call of this thread that failed did so: what, which rank,
 * which value.  Never NULL; valid until the next failure in this thread. */
const char *lrmoeGetLastError(void);

/* ---- Parameters (LRMOE_* in the environment) -------------------------- */

typedef struct {
  const char *name;         /* "LRMOE_TIMEOUT_MS" */
  const char *defaultValue; /* as text; "" where unset means automatic */
  const char *description;  /* one sentence with unit and range */
} lrmoeParameter_t;

/* The index-th parameter that the library reads, from 0, in stable order;
 * lrmoeInvalidArgument past the end.  Static storage. */
lrmoeResult_t lrmoeGetParameter(int index, lrmoeParameter_t *parameter);

/* ---- Data types and operators: NCCL's values -------------------------- */

typedef enum {
  lrmoeInt8 = 0,
  lrmoeUint8 = 1,
  lrmoeInt32 = 2,
  lrmoeUint32 = 3,
  lrmoeInt64 = 4,
  lrmoeUint64 = 5,
  lrmoeFloat16 = 6,
  lrmoeFloat32 = 7,
  lrmoeFloat64 = 8,
  lrmoeBfloat16 = 9
} lrmoeDataType_t;

typedef enum {
  lrmoeSum = 0,
  lrmoeProd = 1,
  lrmoeMax = 2,
  lrmoeMin = 3,
  lrmoeAvg = 4
} lrmoeRedOp_t;

/* ---- Communicator ----------------------------------------------------- */

#define LRMOE_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[LRMOE_UNIQUE_ID_BYTES];
} lrmoeUniqueId;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* How long a call waits for a peer, in ms; 0: LRMOE_TIMEOUT_MS. */
  int64_t timeoutMs;
} lrmoeCommConfig_t;

#define LRMOE_COMM_CONFIG_INITIALIZER \
  { sizeof(lrmoeCommConfig_t), LRMOE_MAGIC, LRMOE_VERSION, 0 }

/* There are two kinds of communicator.  CPU: ranks are processes of one machine
 * and one user, or threads of one process, that share memory.  NCCL: a rank per
 * GPU.  New ones are of the kind that LRMOE_BACKEND says when they are made
 * (cpu, which is the default, or cuda), on all ranks the same.  NCCL 2.27 or
 * newer is looked for when it is first needed: in this process, else in
 * LRMOE_NCCL_PATH or where the loader looks.  lrmoeNotInstalled: there is none;
 * lrmoeUnsupported: it is too old, or lacks what a call needs.  Work that is on
 * a stream has NCCL's time-outs and none of LRMoE's.  A call that NCCL fails
 * aborts its communicator, unless that was borrowed. */

/* Makes an id that one rank hands to the others by its own means.  The id is
 * a secret: who has it can join. */
lrmoeResult_t lrmoeGetUniqueId(lrmoeUniqueId *id);

/* Joins numRanks ranks into a communicator.  Collective over the ranks that
 * hold the id.  config may be NULL.  Fails with lrmoeRemoteError (on a CPU
 * communicator it names the missing ranks) when not all have come within the
 * time-out.  With NCCL the rank's device is the thread's current one. */
lrmoeResult_t lrmoeCommInitRank(int numRanks, const lrmoeUniqueId *id, int rank,
                                const lrmoeCommConfig_t *config,
                                lrmoeComm_t *comm);

/* Borrows a communicator that the program made with NCCL, of whichever kind
 * LRMOE_BACKEND says.
 *
 * Owner      nccl stays the program's and must outlive *comm.
 *            lrmoeCommDestroy gives it back whole, and no failure makes LRMoE
 *            abort it.  Only an explicit lrmoeCommAbort(*comm) does, and nccl
 *            is gone then: the program must neither use nor destroy it.
 * Collective No: nothing is communicated.  All ranks must borrow theirs before
 *            any of them uses it, and issue LRMoE's calls and their own on it
 *            in one order.
 * Streams    Any of the communicator's device.  Waiting on the host for a
 *            non-blocking communicator ends at the time-out of config.
 * Groups     Not inside a group that the program opened with ncclGroupStart:
 *            nothing would run before its end, which LRMoE cannot see.
 * Threads    As in NCCL one thread at a time uses nccl, directly or through
 *            *comm.  Two handles on one nccl must not both be aborted.
 * Errors     lrmoeCommGetAsyncError asks NCCL.  After a failure *comm refuses
 *            every call with that failure, and nccl is as NCCL left it: its
 *            owner must abort it, for the peers may still be waiting, and the
 *            buffers of the call be in use until then.
 * Results    lrmoeNotInstalled: this process has no NCCL that nccl could be of;
 *            lrmoeUnsupported: it is older than 2.27; else what NCCL says of
 *            nccl. */
lrmoeResult_t lrmoeCommInitFromNccl(struct ncclComm *nccl,
                                    const lrmoeCommConfig_t *config,
                                    lrmoeComm_t *comm);

/* Splits comm: ranks with the same color >= 0 form a new communicator, in
 * order of (key, old rank); a negative color gets NULL.  Collective. */
lrmoeResult_t lrmoeCommSplit(lrmoeComm_t comm, int color, int key,
                             lrmoeComm_t *newComm);

lrmoeResult_t lrmoeCommCount(lrmoeComm_t comm, int *count);
lrmoeResult_t lrmoeCommUserRank(lrmoeComm_t comm, int *rank);

/* lrmoeSuccess in *asyncError while the communicator is whole, lrmoeInProgress
 * while a call of a non-blocking NCCL communicator is under way; otherwise what
 * broke it.  Never blocks. */
lrmoeResult_t lrmoeCommGetAsyncError(lrmoeComm_t comm,
                                     lrmoeResult_t *asyncError);

/* Breaks the communicator: calls in flight on any rank return
 * lrmoeRemoteError.  May be called while another thread is inside a call.
 * The handle must still be destroyed.  NCCL is told once, however often this is
 * called, and peers of an NCCL communicator notice only what NCCL lets them:
 * each should abort too. */
lrmoeResult_t lrmoeCommAbort(lrmoeComm_t comm);

/* Releases comm; NULL is legal.  Collective: returns once no peer can still
 * read this rank's buffers, or at the time-out, or at once if comm is broken.
 * Layers and events of the communicator must be gone. */
lrmoeResult_t lrmoeCommDestroy(lrmoeComm_t comm);

/* Memory that every rank of every later communicator of this process can
 * reach without a copy: send from it for one memcpy a message.  4096-byte
 * aligned, zeroed, at most LRMOE_HEAP_BYTES in all.  Owned by the caller
 * until lrmoeMemFree, which must come after the calls that use it.  With
 * LRMOE_BACKEND=cuda it is what ncclMemAlloc gives: on the current device,
 * not zeroed.  lrmoeMemFree takes blocks of both kinds, whatever LRMOE_BACKEND
 * says by then. */
lrmoeResult_t lrmoeMemAlloc(size_t bytes, void **pointer);
lrmoeResult_t lrmoeMemFree(void *pointer);

/* Copies bytes from the host's memory to that of lrmoeMemAlloc, and back, so
 * that a program is the same for both backends.  Done when it returns.  On a
 * GPU it is ordered by the default stream: work on streams that do not block
 * it must be waited for before. */
lrmoeResult_t lrmoeMemWrite(void *memory, const void *host, size_t bytes);
lrmoeResult_t lrmoeMemRead(void *host, const void *memory, size_t bytes);

/* Registers [buffer, buffer + bytes), which lies in one lrmoeMemAlloc block,
 * so that every rank of comm can address it.  Collective; sizes may differ.
 * The window must be deregistered before comm is destroyed. */
lrmoeResult_t lrmoeCommWindowRegister(lrmoeComm_t comm, void *buffer,
                                      size_t bytes, lrmoeWindow_t *window);
lrmoeResult_t lrmoeCommWindowDeregister(lrmoeComm_t comm, lrmoeWindow_t window);

/* Address, in this process, of the buffer that rank `peer` registered.
 * The caller orders accesses (with any collective of comm). */
lrmoeResult_t lrmoeWindowPeerPointer(lrmoeWindow_t window, int peer,
                                     void **pointer);

/* NCCL's calls and semantics: between GroupStart and GroupEnd operations of
 * this thread are collected and then progress together; messages between two
 * ranks keep their order; zero counts are legal and still match; counts that
 * differ between the two ends are lrmoeInvalidUsage on both.  In-place use as
 * in NCCL.  The group calls nest.  A group takes calls on communicators of
 * both kinds; LRMOE_BACKEND has no say in it. */
lrmoeResult_t lrmoeGroupStart(void);
lrmoeResult_t lrmoeGroupEnd(void);
lrmoeResult_t lrmoeSend(const void *buffer, size_t count, lrmoeDataType_t type,
                        int peer, lrmoeComm_t comm, lrmoeStream_t stream);
lrmoeResult_t lrmoeRecv(void *buffer, size_t count, lrmoeDataType_t type,
                        int peer, lrmoeComm_t comm, lrmoeStream_t stream);
lrmoeResult_t lrmoeAllGather(const void *send, void *recv, size_t sendCount,
                             lrmoeDataType_t type, lrmoeComm_t comm,
                             lrmoeStream_t stream);
lrmoeResult_t lrmoeAllReduce(const void *send, void *recv, size_t count,
                             lrmoeDataType_t type, lrmoeRedOp_t op,
                             lrmoeComm_t comm, lrmoeStream_t stream);
lrmoeResult_t lrmoeReduceScatter(const void *send, void *recv, size_t recvCount,
                                 lrmoeDataType_t type, lrmoeRedOp_t op,
                                 lrmoeComm_t comm, lrmoeStream_t stream);
lrmoeResult_t lrmoeBroadcast(const void *send, void *recv, size_t count,
                             lrmoeDataType_t type, int root, lrmoeComm_t comm,
                             lrmoeStream_t stream);
lrmoeResult_t lrmoeAllToAll(const void *send, void *recv, size_t count,
                            lrmoeDataType_t type, lrmoeComm_t comm,
                            lrmoeStream_t stream);

/* ---- Events -----------------------------------------------------------
 *
 * An event is what frameworks call a work, a future or a request: a mark in a
 * stream, behind any calls of LRMoE or of others, that can be asked for, waited
 * for by another stream, and waited for by the host.  It knows its
 * communicator, since a stream does not tell of a peer that has failed.  On a
 * CPU communicator calls are done when they return, and so is every event.
 *
 *   Collective No call is: nothing is communicated.
 *   Threads    An event is a handle of its own: one thread may ask while
 *              others use its communicator.
 *   Capture    lrmoeEventRecord and lrmoeEventWait may be captured into a
 *              graph, the others may not.
 */

/* Makes an event, which nothing is recorded in: it is done.  It must be
 * destroyed before comm, and may be recorded as often as wanted.  On an NCCL
 * communicator the thread's current device must be the communicator's. */
lrmoeResult_t lrmoeEventCreate(lrmoeComm_t comm, lrmoeEvent_t *event);

/* Releases event; NULL is legal.  What is on streams goes on, and what waits
 * for the mark still does. */
lrmoeResult_t lrmoeEventDestroy(lrmoeEvent_t event);

/* Marks what `stream` has now in place of an earlier mark.  Returns at once. */
lrmoeResult_t lrmoeEventRecord(lrmoeEvent_t event, lrmoeStream_t stream);

/* `stream` goes on after the mark, as it is now; the host does not wait. */
lrmoeResult_t lrmoeEventWait(lrmoeEvent_t event, lrmoeStream_t stream);

/* *isDone = 1 if all before the mark is done, else 0.  Never blocks.  What the
 * communicator has failed with, as lrmoeCommGetAsyncError knows it, is the
 * result, whether or not the mark was reached: what was computed may be wrong
 * then, and what was not reached may never be. */
lrmoeResult_t lrmoeEventQuery(lrmoeEvent_t event, int *isDone);

/* The host waits until all before the mark is done.  Failures as of
 * lrmoeEventQuery, one that is known already without a wait. */
lrmoeResult_t lrmoeEventSynchronize(lrmoeEvent_t event);

/* ---- Topology ---------------------------------------------------------
 *
 * From a machine, or a recording of one, to what a byte costs between any two
 * ranks.  All functions but lrmoeTopologyOfComm are local.  Indices are from 0;
 * rates are bytes/s in one direction, latencies ns one way.  Text and arrays
 * that a function gives belong to the topology and live as long as it.
 */

/* How two ranks reach each other, nearest first within a host. */
typedef enum {
  lrmoeLinkSelf = 0,       /* a rank and itself */
  lrmoeLinkMemory = 1,     /* ranks that share one machine's memory */
  lrmoeLinkDevice = 2,     /* two ranks on one GPU */
  lrmoeLinkDirect = 3,     /* NVLink or xGMI between the two GPUs */
  lrmoeLinkSwitched = 4,   /* NVLink through a switch */
  lrmoeLinkPci = 5,        /* PCI, below one host bridge */
  lrmoeLinkHostBridge = 6, /* PCI, through the host bridges of a NUMA node */
  lrmoeLinkSockets = 7,    /* through the interconnect of NUMA nodes */
  lrmoeLinkNic = 8,        /* another host, through NICs */
  lrmoeLinkNone = 9        /* another host, and no NIC is known */
} lrmoeLinkClass_t;

typedef struct {
  lrmoeLinkClass_t linkClass;
  /* 1: bytesPerSecond is a default, or has one in it, neither stated by the
   * source nor measured.  Latency is a default unless there is a profile. */
  int32_t guessed;
  int64_t latencyNs;
  int64_t bytesPerSecond; /* of one transfer that has the path to itself */
} lrmoeLink_t;

typedef enum {
  lrmoeSourceAuto = 0,      /* a file; its content says of which format */
  lrmoeSourceText = 1,      /* the content of such a file */
  lrmoeSourceSynthetic = 2, /* a description in one line, see README.md */
  lrmoeSourceLive = 3       /* this machine */
} lrmoeSourceKind_t;

/* Where one host, or several, are described. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  lrmoeSourceKind_t kind;
  int32_t copies;   /* this many hosts like it, at least 1 */
  const char *text; /* path, content or description; NULL with live */
  size_t bytes;     /* length of text as content; 0: up to its end */
} lrmoeTopologySource_t;

#define LRMOE_TOPOLOGY_SOURCE_INITIALIZER                      \
  {                                                            \
    sizeof(lrmoeTopologySource_t), LRMOE_MAGIC, LRMOE_VERSION, \
        lrmoeSourceAuto, 1, NULL, 0                            \
  }

/* Which rank has which device.
 * auto   the ranks that the source gives to GPUs, if it gives them to all;
 *        else bus
 * bus    host by host, in the order of bus addresses
 * index  host by host, in the order of the driver's numbers */
typedef enum {
  lrmoeRanksAuto = 0,
  lrmoeRanksBus = 1,
  lrmoeRanksIndex = 2
} lrmoeRankOrder_t;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* [numSources] hosts in this order; read during the call only.  numSources
   * 0: the live machine. */
  const lrmoeTopologySource_t *sources;
  int64_t numSources;
  /* Calibration profile of this machine (lrmoe-calibrate), a path; NULL: the
   * figures that the source states. */
  const char *profile;
  /* 0: a rank per GPU, or, where there is no GPU, per NUMA node.  Else the
   * number of ranks: a multiple of the devices, which get equally many
   * consecutive ones; without GPUs any number, spread evenly. */
  int32_t numRanks;
  lrmoeRankOrder_t rankOrder;
} lrmoeTopologyConfig_t;

#define LRMOE_TOPOLOGY_CONFIG_INITIALIZER                                     \
  {                                                                           \
    sizeof(lrmoeTopologyConfig_t), LRMOE_MAGIC, LRMOE_VERSION, NULL, 0, NULL, \
        0, lrmoeRanksAuto                                                     \
  }

/* Describes ranks on the machine of config (NULL: a rank per device of the live
 * machine).  Files and texts may be hostile.  lrmoeInvalidArgument: the content
 * is no machine, and lrmoeGetLastError() says which element of which source is
 * wrong; lrmoeUnsupported: a format or version that is known but not read, and
 * what to do; lrmoeSystemError: a file cannot be read.  What had to be guessed
 * stands in the notes.  Free with lrmoeTopologyDestroy. */
lrmoeResult_t lrmoeTopologyOpen(const lrmoeTopologyConfig_t *config,
                                lrmoeTopology_t *topology);

/* Describes numRanks ranks that are processes of the live machine and share
 * its memory, whatever devices it has: for CPU communicators. */
lrmoeResult_t lrmoeTopologyCreate(int numRanks, lrmoeTopology_t *topology);

/* Describes the ranks of comm on the live machine: on an NCCL communicator each
 * has its GPU, the current device of the calling thread, and on a CPU
 * communicator this is lrmoeTopologyCreate.  lrmoeUnsupported, on every rank:
 * ranks are on several machines or share a GPU, or hwloc does not see one.
 * Collective; waits. */
lrmoeResult_t lrmoeTopologyOfComm(lrmoeComm_t comm, lrmoeTopology_t *topology);
lrmoeResult_t lrmoeTopologyDestroy(lrmoeTopology_t topology);

lrmoeResult_t lrmoeTopologyGetLink(lrmoeTopology_t topology, int from, int to,
                                   lrmoeLink_t *link);

/* Cores and NUMA nodes that ranks may run on; of the live machine: those that
 * this process may.  0 cores: the source does not say. */
lrmoeResult_t lrmoeTopologyGetCores(lrmoeTopology_t topology, int *numCores,
                                    int *numNumaNodes);

/* How long the traffic bytes [G, G] takes at least, bytes[from * G + to]: the
 * longest of what each rank has to send, to receive, and each shared resource
 * to carry, with the latency of the slowest transfer once.  In integers,
 * rounded up, the same on every rank; INT64_MAX where ranks of hosts without
 * a NIC have something to send each other. */
lrmoeResult_t lrmoeTopologyTrafficNs(lrmoeTopology_t topology,
                                     const int64_t *bytes, int64_t *ns);

/* Sizes of what the functions below list. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* Hash of the hosts' devices, links and rates and of the ranks' places, not
   * of names or order in the source: what a profile is bound to. */
  uint64_t machineKey;
  int32_t numRanks;
  int32_t numHosts;
  int32_t numDomains; /* groups of ranks joined by NVLink, xGMI or memory */
  int32_t numNodes;
  int32_t numWires;
  int32_t numResources;
  int32_t numNotes;
  int32_t calibrated; /* 1: figures are from a profile */
} lrmoeTopologyInfo_t;

#define LRMOE_TOPOLOGY_INFO_INITIALIZER                                        \
  {                                                                            \
    sizeof(lrmoeTopologyInfo_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, 0, 0, 0, 0, \
        0, 0, 0                                                                \
  }

lrmoeResult_t lrmoeTopologyGetInfo(lrmoeTopology_t topology,
                                   lrmoeTopologyInfo_t *info);

typedef enum {
  lrmoeNodeHost = 0,
  lrmoeNodeNuma = 1,
  lrmoeNodeBridge = 2, /* PCI bridge or switch */
  lrmoeNodeGpu = 3,
  lrmoeNodeNic = 4,   /* PCI device with network ports below it */
  lrmoeNodePort = 5,  /* of a NIC */
  lrmoeNodeSwitch = 6 /* NVSwitch; all of a host are one */
} lrmoeNodeKind_t;

/* A piece of the machine.  Parents come before their children. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  lrmoeNodeKind_t kind;
  int32_t parent;   /* node, -1: none */
  int32_t host;     /* number of the host, from 0; -1: joins hosts */
  int32_t guessed;  /* 1: bytesPerSecond is */
  const char *name; /* what to print: the source's name or the bus address */
  const char *bus;  /* "0000:07:00.0", "" without one */
  int64_t bytesPerSecond; /* to the parent; of a port: of the network */
  int64_t latencyNs;
  int32_t index;     /* OS number of a NUMA node, driver's of a GPU, -1 */
  int32_t partition; /* of a divided GPU */
  int32_t firstRank; /* ranks firstRank .. firstRank + numRanks - 1 are here */
  int32_t numRanks;
  int32_t arch;     /* GPU: 90 for sm_90, 0x90a for gfx90a, 0 unknown */
  int32_t numCores; /* NUMA node; 0 unknown */
} lrmoeTopologyNode_t;

#define LRMOE_TOPOLOGY_NODE_INITIALIZER                                     \
  {                                                                         \
    sizeof(lrmoeTopologyNode_t), LRMOE_MAGIC, LRMOE_VERSION, lrmoeNodeHost, \
        -1, -1, 0, NULL, NULL, 0, 0, -1, 0, -1, 0, 0, 0                     \
  }

lrmoeResult_t lrmoeTopologyGetNode(lrmoeTopology_t topology, int node,
                                   lrmoeTopologyNode_t *view);

/* One direction of a link beside the tree of nodes. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  const char *kind; /* "NVLink", "xGMI", "C2C", "PCI", "CPU" */
  int64_t bytesPerSecond;
  int32_t from; /* nodes */
  int32_t to;
  int32_t count; /* links in it, 0 unknown */
  int32_t guessed;
} lrmoeTopologyWire_t;

#define LRMOE_TOPOLOGY_WIRE_INITIALIZER                                        \
  {                                                                            \
    sizeof(lrmoeTopologyWire_t), LRMOE_MAGIC, LRMOE_VERSION, NULL, 0, 0, 0, 0, \
        0                                                                      \
  }

lrmoeResult_t lrmoeTopologyGetWire(lrmoeTopology_t topology, int wire,
                                   lrmoeTopologyWire_t *view);

/* Where a rank is. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int32_t node;   /* its device: GPU or NUMA node; -1 after
                     lrmoeTopologyCreate */
  int32_t host;   /* number of the host */
  int32_t domain; /* number of the NVLink domain; ranks that no NVLink, xGMI or
                     shared memory joins with others have one of their own */
  int32_t numPorts;
  const int32_t *ports; /* [numPorts] nodes: what carries its traffic to other
                           hosts, in equal parts */
} lrmoeTopologyRank_t;

#define LRMOE_TOPOLOGY_RANK_INITIALIZER \
  { sizeof(lrmoeTopologyRank_t), LRMOE_MAGIC, LRMOE_VERSION, -1, 0, 0, 0, NULL }

lrmoeResult_t lrmoeTopologyGetRank(lrmoeTopology_t topology, int rank,
                                   lrmoeTopologyRank_t *view);

/* Something that the traffic of several ranks goes through, one direction. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  const char *name; /* "PCI 0000:05:00.0 up", "port mlx5_0 out" */
  int64_t bytesPerSecond;
  int32_t node;
  int32_t guessed;
  const int32_t *ranks; /* [numRanks] ascending: whose traffic it carries */
  int64_t numRanks;
} lrmoeTopologyResource_t;

#define LRMOE_TOPOLOGY_RESOURCE_INITIALIZER                                  \
  {                                                                          \
    sizeof(lrmoeTopologyResource_t), LRMOE_MAGIC, LRMOE_VERSION, NULL, 0, 0, \
        0, NULL, 0                                                           \
  }

lrmoeResult_t lrmoeTopologyGetResource(lrmoeTopology_t topology, int resource,
                                       lrmoeTopologyResource_t *view);

/* A sentence: what was guessed or looks odd, and why. */
lrmoeResult_t lrmoeTopologyGetNote(lrmoeTopology_t topology, int note,
                                   const char **text);

/* ---- Calibration ------------------------------------------------------
 *
 * What the machine really moves, measured through a communicator.  Patterns of
 * messages are timed at several sizes, and each gets the line
 *     time = latency * messages + bytes / rate
 * that is nearest to its median times.  The figures of class links replace what
 * the topology had.  lrmoeTopologyTrafficNs also counts what a rank may receive
 * from several, or send to several, by the lines of gather and scatter, and
 * lowers the rates of links that several ranks use where these were slower than
 * single messages say.  Ranks that are processes of one machine compete for its
 * cores: their traffic takes the longest of what each message, each rank and
 * all of them together need.
 */

/* message  one message at a time between two ranks: a figure per link class
 * gather   from all others to one rank: what a rank can receive
 * scatter  from one rank to all others: what a rank can send
 * all      rings and all-to-alls: what all ranks move together */
typedef enum {
  lrmoePatternMessage = 0,
  lrmoePatternGather = 1,
  lrmoePatternScatter = 2,
  lrmoePatternAll = 3
} lrmoePattern_t;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  lrmoePattern_t pattern;
  lrmoeLinkClass_t linkClass; /* the farthest that has part in it */
  int64_t latencyNs;          /* per message */
  int64_t bytesPerSecond;     /* of all messages together */
  int64_t medianErrorPpm; /* |predicted / measured - 1| of the samples, in */
  int64_t worstErrorPpm;  /* millionths */
  int64_t numSamples;
} lrmoeTopologyFit_t;

#define LRMOE_TOPOLOGY_FIT_INITIALIZER                      \
  {                                                         \
    sizeof(lrmoeTopologyFit_t), LRMOE_MAGIC, LRMOE_VERSION, \
        lrmoePatternMessage, lrmoeLinkSelf, 0, 0, 0, 0, 0   \
  }

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* Least and most bytes that a rank sends or receives at once, 64 .. 2^30.
   * Each rank takes twice the most from lrmoeMemAlloc meanwhile. */
  int64_t minBytes;
  int64_t maxBytes;
  /* Stops after so long, in ms, 1 .. 3600000; the largest sizes are left out
   * where the time is too short for them. */
  int64_t budgetMs;
  /* Called on every rank after each probe, with the share that is done, in
   * millionths; NULL: not wanted.  It must not use comm. */
  void (*progress)(void *user, int64_t donePpm);
  void *user;
  int32_t numRounds; /* most times that each probe is repeated, 1..1000 */
  int32_t reserved;
} lrmoeCalibrationConfig_t;

#define LRMOE_CALIBRATION_CONFIG_INITIALIZER                            \
  {                                                                     \
    sizeof(lrmoeCalibrationConfig_t), LRMOE_MAGIC, LRMOE_VERSION, 4096, \
        67108864, 10000, NULL, NULL, 9, 0                               \
  }

/* Measures the ranks of comm, which are those of topology in the same order,
 * and calibrates topology with the result: the same figures on every rank.
 * config NULL: the defaults.  Nothing else should run meanwhile.  Collective;
 * the same topology and config on every rank, which is checked. */
lrmoeResult_t lrmoeTopologyCalibrate(lrmoeTopology_t topology, lrmoeComm_t comm,
                                     const lrmoeCalibrationConfig_t *config,
                                     lrmoeStream_t stream);

/* The index-th fit of a calibrated topology, from 0, by pattern and class;
 * lrmoeInvalidArgument past the end. */
lrmoeResult_t lrmoeTopologyGetFit(lrmoeTopology_t topology, int index,
                                  lrmoeTopologyFit_t *fit);

/* Writes the calibration of topology as a profile, a JSON file that is bound
 * to the machine and the number of ranks; replaces a file that is there.
 * lrmoeInvalidUsage without a calibration. */
lrmoeResult_t lrmoeTopologySaveProfile(lrmoeTopology_t topology,
                                       const char *path);

/* Calibrates topology with a profile.  lrmoeInvalidArgument if it is of
 * another machine or another number of ranks, lrmoeUnsupported if it is of
 * another version, lrmoeCorrupt if it is damaged, which an edited one is too;
 * the message names the field.  The topology then stays as it was. */
lrmoeResult_t lrmoeTopologyLoadProfile(lrmoeTopology_t topology,
                                       const char *path);

/* Tells comm where its ranks are, those of topology in the same order: rows of
 * an all-to-all then go out in an order in which ranks that share links (a
 * host's NICs, a socket's interconnect) do not all use them at once.  The bytes
 * and the results stay the same.  topology is read during the call only.
 * Local; ranks should be told the same. */
lrmoeResult_t lrmoeCommSetTopology(lrmoeComm_t comm, lrmoeTopology_t topology);

/* That order, for an all-to-all of the caller's own lrmoeSend and lrmoeRecv: in
 * step 0 .. G-1 of it this rank sends to *target and receives from *source.
 * Without a topology ranks go round.  Local. */
lrmoeResult_t lrmoeCommGetPeers(lrmoeComm_t comm, int step, int *target,
                                int *source);

/* ---- Planner and plan (paper 3.3, Algorithm 1) ------------------------ */

typedef enum {
  lrmoeSwiglu = 0,
  lrmoeGelu = 1
} lrmoeActivation_t;

/* Which d(alpha) = <g, d y / d alpha> come back.
 * kept      those of kept pairs; the others are zero.  An approximation of the
 *           router gradient, said once in the log.
 * owner     all, exact: combine brings a row per pair home, which the source
 *           keeps until select.  With `pre` it is as exact as alpha * phi is
 *           in the layer's dtype, and 0 where alpha is 0.
 * executor  all, exact: g goes to every rank of a token, and FC2's data
 *           gradient runs on all pairs.  Needs saved state full, and
 *           lrmoeWireDedup or lrmoeWireNode. */
typedef enum {
  lrmoeRouterGradKept = 0,
  lrmoeRouterGradOwner = 1,
  lrmoeRouterGradExecutor = 2
} lrmoeRouterGrad_t;

/* What the executor keeps between forward and backward.
 * full  the input row and the FC1 output of every pair
 * none  neither: backward brings the input rows of kept pairs again and
 *       computes FC1 again (no row of a dropped pair is kept or computed) */
typedef enum {
  lrmoeSavedFull = 0,
  lrmoeSavedNone = 1
} lrmoeSavedState_t;

/* Where instances stand.
 * fixed         at their homes only, no replicas
 * lrmoe         at their homes, and replicas in the spare slots that level the
 *               ranks: the lowest peak of kept pairs that the search finds,
 *               then of forward pairs, then the fewest moves in the worst case
 * Those of others, for comparison, from their published descriptions:
 * proportional  replicas in proportion to load (SYMI, EfficientMoE)
 * eplb          replicas of the hottest, packed largest first (EPLB)
 * quota         excess moved to slack, step by step (UltraEP)
 * shadow        the hottest experts everywhere (FasterMoE)
 * flex          expand the hottest, shrink the coldest (FlexMoE)
 * permute       homes exchanged, no replicas (SmartMoE)
 * relayout      counts and largest-first placement anew (LAER-MoE)
 * topo          excess to slack, near ranks first (TopoEP)
 * Bounds, which change the forward pass and are not for execution:
 * balanced      every expert gets as many pairs (BASE, Expert Choice)
 * local         pairs stay on their rank (Gating Dropout, a step of it)
 * proportional, eplb, permute and relayout move homes: such plans are for
 * comparison too, the collectives refuse them unless no home has moved. */
typedef enum {
  lrmoePolicyFixed = 0,
  lrmoePolicyLrmoe = 1,
  lrmoePolicyProportional = 2,
  lrmoePolicyEplb = 3,
  lrmoePolicyQuota = 4,
  lrmoePolicyShadow = 5,
  lrmoePolicyFlex = 6,
  lrmoePolicyPermute = 7,
  lrmoePolicyRelayout = 8,
  lrmoePolicyTopo = 9,
  lrmoePolicyBalanced = 10,
  lrmoePolicyLocal = 11
} lrmoePolicy_t;

/* How many pairs of each expert backward keeps, with rho the retention and n
 * the demand.
 * none      K[e] = n[e]
 * uniform   K[e] = ceil(rho * n[e])
 * overload  as uniform, but with retain `largest` pairs are dropped only where
 *           a capacity binds: the sum of K is the largest that fits, and K / n
 *           max-min fair over the experts.  Where kept pairs that move take
 *           memory these two differ, and the sum counts: fair are then the
 *           experts of a rank without replicas.  Where the window binds the
 *           sum counts too: pairs whose rows take most of the ways that are
 *           full are dropped first, down to minRetainPpm, and of equal sums the
 *           lower rates are raised
 * capacity  K[e] = min(n[e], ceil(capacityPpm * mean of n / 10^6)), the rule
 *           of GShard, Switch and DeepSpeed; rho plays no part */
typedef enum {
  lrmoeQuotaNone = 0,
  lrmoeQuotaUniform = 1,
  lrmoeQuotaOverload = 2,
  lrmoeQuotaCapacity = 3
} lrmoeQuota_t;

/* What rho is (Algorithm 1, lines 2 to 8).
 * exact    retainPpm: what does not fit is refused
 * largest  the largest up to retainPpm that fits memory and window where the
 *          instances stand, with forward as it is: of uniform in millionths,
 *          of overload in pairs.  Nothing larger fits if (1) kept pairs that
 *          move take no memory, that is with savedState none or no replicas,
 *          and (2) the window leaves room, or quota is uniform and there are
 *          no replicas.  Otherwise what is kept fits, and the plan says how
 *          much more is not ruled out: boundRetained.  With windowWork there is
 *          more under a window: of overload the sum of K over all quotas and
 *          splits, of uniform the largest rate of any split, on instances and
 *          forward as they stand; found by search, nearly always the most
 * grid     the largest of 1000000, 900000, 800000 and 700000 millionths (C0,
 *          C10, C20, C30) up to retainPpm that fits */
typedef enum {
  lrmoeRetainExact = 0,
  lrmoeRetainLargest = 1,
  lrmoeRetainGrid = 2
} lrmoeRetain_t;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* Retention rho in millionths, 0..1000000; see lrmoeRetain_t. */
  int64_t retainPpm;
  /* Most pairs a rank can execute in one step (its buffers); 0: no limit. */
  int64_t maxPairs;
  /* [E] rank that owns each expert, NULL: contiguous, e * G / E.  Read during
   * the call only. */
  const int32_t *homes;
  int32_t numExperts;
  lrmoePolicy_t policy;
  lrmoeQuota_t quota;
  /* Spare slots for replicas per rank, 0..1024; 0 with lrmoePolicyFixed. */
  int32_t slots;

  /* Memory and communication of a layer: see lrmoeRankMemory_t.  hidden 0: no
   * model; then memoryBytes and windowNs are 0 too. */
  int64_t hidden;      /* H */
  int64_t ffn;         /* F */
  int64_t memoryBytes; /* of each rank, for what lrmoeRankMemory_t lists, at
                          most 2^46; 0: no limit */
  int64_t weightBytes; /* weights of one expert; 0: from H, F and element */
  int64_t gradBytes;   /* its weight gradient; 0: fp32 */
  int64_t windowNs;    /* T_ovlp: most time that backward's rows may take on the
                          wire, out and home (commNs); 0: no limit.  Rows home,
                          half of it where none bring x, can be hidden: with
                          overlapsReturn of the layer they go beside weight
                          gradients, 2 H (F + u) FLOPs a kept pair with u = 2F
                          (SwiGLU) or F (GELU).  So in a window of twice what
                          those take for peakKept pairs rows home cost no time;
                          rows out are waited for */
  int64_t windowWork;  /* most steps of a search for more pairs under a window
                          that binds, of overload and of uniform with replicas,
                          of up to 64 ranks; 0: none.  Counted, so that
                          every rank stops alike; for E 128 and G 8 2^24 are
                          some 0.1 s, and uniform gains from 2^26 */

  /* Quotas. */
  int64_t minRetainPpm; /* least K / n of every expert, 0..retainPpm */
  int64_t capacityPpm;  /* capacity factor, lrmoeQuotaCapacity only */

  /* Knobs of policy lrmoe; rivals read minReplicaPairs and the costs where
   * they have such a rule, and refuse the others.  0 leaves each out. */
  int64_t tolerancePpm;    /* eps: peaks up to (1 + eps) mean are as good; fewer
                              replicas win */
  int64_t minReplicaPairs; /* least forward pairs of a replica */
  int64_t maxReplicas;     /* most replicas in all */
  int64_t balancedPpm;     /* keep the previous plan's instances (none: homes)
                              while their peak is up to (1 + this) mean */
  int64_t hysteresisPpm;   /* and unless new ones lower their peak by more than
                              this part of it */
  /* Is a replica worth its transfer?  In ns, from replica_perf. */
  int64_t materialiseNs; /* to bring a replica's weights */
  int64_t reduceNs;      /* to bring its gradient home */
  int64_t pairNs;        /* a pair takes in forward and backward; 0: replicas
                            cost nothing */
  /* [numPinned, 2] expert and rank of replicas that must stand, NULL: none.
   * Read during the call only. */
  const int32_t *pinned;
  int32_t numPinned;
  int32_t elementBytes; /* of a row's element: 2 or 4 */
  lrmoeRetain_t retain;
  lrmoeActivation_t activation;
  lrmoeRouterGrad_t routerGrad;
  lrmoeSavedState_t savedState;
  int32_t chargesRelays; /* 1: what relays of lrmoeWireNode hold counts too */
  int32_t reserved;
} lrmoePlannerConfig_t;

#define LRMOE_PLANNER_CONFIG_INITIALIZER                                      \
  {                                                                           \
    sizeof(lrmoePlannerConfig_t), LRMOE_MAGIC, LRMOE_VERSION, 1000000, 0,     \
        NULL, 0, lrmoePolicyFixed, lrmoeQuotaUniform, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 2, lrmoeRetainExact,           \
        lrmoeSwiglu, lrmoeRouterGradKept, lrmoeSavedFull, 0, 0                \
  }

/* Makes a planner for the ranks of topology, which the caller may destroy
 * afterwards.  All ranks must give the same config: lrmoeStepCreate checks. */
lrmoeResult_t lrmoePlannerCreate(lrmoeTopology_t topology,
                                 const lrmoePlannerConfig_t *config,
                                 lrmoePlanner_t *planner);
lrmoeResult_t lrmoePlannerDestroy(lrmoePlanner_t planner);

/* Plans one step from demand [G, E] on the host, demand[s * E + e] = pairs of
 * expert e from rank s.  A pure function of the planner's config and demand,
 * in integers, so that every rank makes the same plan without talking.
 * lrmoeInfeasible names the rank and by how much it is over.  The plan owns
 * its data and outlives the planner.  It is made in memory of the planner: one
 * call at a time for one planner. */
lrmoeResult_t lrmoePlanMake(lrmoePlanner_t planner, const int64_t *demand,
                            lrmoePlan_t *plan);

/* What a plan may build on besides this step's demand.  All ranks must give
 * the same: lrmoeDispatch compares plans. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* Of the same ranks, experts and homes, for balancedPpm and hysteresisPpm;
   * NULL: none.  Read during the call only. */
  lrmoePlan_t previous;
  /* [E] expected load of each expert, such as a moving average, from which
   * policies that act on history place; NULL: this step's demand.  Read during
   * the call only. */
  const int64_t *loads;
  /* 1: where nothing fits, still make the plan that comes nearest; its view
   * says which constraint it breaks. */
  int32_t bestEffort;
  /* 1: the plan points to demand instead of copying it: demand stays as it is
   * for as long as the plan lives.  In large groups the copy costs most. */
  int32_t borrowDemand;
  /* [E] pairs of each expert, all sources together, with demand NULL: a plan
   * without reading [G, E].  It knows nothing of sources: commNs and
   * crossNodeBytes are 0, lrmoePlanSave and lrmoeStepPrepare refuse it, and it
   * is refused itself with windowNs, with routerGrad owner and a model, and by
   * the policies shadow, relayout, balanced and local.  Read during the call
   * only. */
  const int64_t *totals;
} lrmoePlanInput_t;

#define LRMOE_PLAN_INPUT_INITIALIZER                                        \
  {                                                                         \
    sizeof(lrmoePlanInput_t), LRMOE_MAGIC, LRMOE_VERSION, NULL, NULL, 0, 0, \
        NULL                                                                \
  }

/* As lrmoePlanMake, which is this with input NULL. */
lrmoeResult_t lrmoePlanMakeWith(lrmoePlanner_t planner, const int64_t *demand,
                                const lrmoePlanInput_t *input,
                                lrmoePlan_t *plan);
lrmoeResult_t lrmoePlanDestroy(lrmoePlan_t plan);

/* Bytes on one rank, with b = elementBytes, u = 2F (SwiGLU) or F (GELU) the
 * width of FC1's output, f = forward pairs, x = kept pairs and m = worst-case
 * moves into the rank.  A row is charged per pair, though ranks send one per
 * (token, rank).  The weights of experts at home are not in here.
 *   forward   f * (H + F) * b: output row and FC2's input
 *   saved     f * (H + u) * b: input row and FC1's output; of savedState none
 *             they are forward's only, and nothing stays
 *   replicas  (weightBytes + gradBytes) each
 *   backward  x * (2H + 2F + u) * b: g, dx, FC2's input anew, its gradient and
 *             that of FC1's output; of savedState none (H + u) more a pair
 *   moves     m * (H + u) * b: input row again and FC1's output computed again;
 *             0 of savedState none, where every kept pair has them
 *   router    0 of kept; of owner a row H * b for each pair of the rank's
 *             tokens; of executor (f - x) * (H + F) * b: g of dropped pairs
 *   relay     with chargesRelays p * 2H * b, in and out, p = pairs of the ranks
 *             that it is the relay of, of experts that stand in its node: no
 *             quota or split makes more pass.  Rank i of a node is the relay of
 *             those that are i-th in theirs, modulo the ranks of its own.  0 of
 *             a plan from totals, which do not say the sources
 * Forward pairs are split so that ranks are level; a rank's replicas do not
 * make its share of them smaller.
 * Forward and backward are different times: the peak is
 *   replicas + router + relay + saved + max(forward, backward + moves),
 * where saved counts with forward whatever savedState is, and router of
 * executor counts with backward. */
typedef struct {
  int64_t forwardBytes;
  int64_t savedBytes; /* kept from forward to backward */
  int64_t replicaBytes;
  int64_t backwardBytes;
  int64_t moveBytes;
  int64_t routerBytes;
  int64_t relayBytes;
  int64_t peakBytes;
} lrmoeRankMemory_t;

/* What limits a plan. */
typedef enum {
  lrmoeConstraintNone = 0,
  lrmoeConstraintPairs = 1,          /* maxPairs, in pairs */
  lrmoeConstraintForwardMemory = 2,  /* memoryBytes in forward, in bytes */
  lrmoeConstraintBackwardMemory = 3, /* memoryBytes in backward, in bytes */
  lrmoeConstraintWindow = 4          /* windowNs, in ns */
} lrmoeConstraint_t;

/* Pointers live as long as the plan.  Instances are listed by expert, then
 * rank: expert e owns [instanceOffsets[e], instanceOffsets[e + 1]). */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  uint64_t hash;         /* of everything below and the demand */
  int64_t pairs;         /* sum of n[e] */
  int64_t kept;          /* sum of K[e] */
  int64_t peakForward;   /* most pairs that one rank executes in forward */
  int64_t peakKept;      /* most kept pairs that one rank executes */
  const int64_t *demand; /* [G, E]; NULL of a plan from totals */
  const int64_t *quotas; /* [E] K */
  const int32_t *homes;  /* [E] */
  const int32_t *instanceOffsets; /* [E + 1] */
  const int32_t *instanceRanks;   /* [numInstances] */
  const int64_t *forwardPairs;    /* [numInstances] F */
  const int64_t *keptPairs;       /* [numInstances] X */
  int32_t numRanks;
  int32_t numExperts;
  int32_t numInstances;
  lrmoePolicy_t policy;
  int64_t boundForward;  /* proven: no placement in these slots has a lower */
  int64_t boundKept;     /* peak; of policy fixed, the peaks themselves */
  int64_t gapForwardPpm; /* peak above bound, in millionths of the bound */
  int64_t gapKeptPpm;
  int64_t numReplicas; /* instances away from home */
  /* Kept pairs that backward moves to another instance than forward used, if
   * dropped pairs fall in the worst way: over instances, the sum of
   * max(0, X - max(0, K - (n - F))); and the most of them into one rank. */
  int64_t movesIn;
  int64_t peakMovesIn;
  /* 0 and NULL without a model (hidden 0), but for what follows from counts. */
  int64_t retainPpm; /* kept of pairs, rounded down; 1000000 of no pairs */
  int64_t commNs;    /* T_comm: backward's rows, out and home, on the topology,
                        kept pairs taken evenly from each expert's sources */
  int64_t crossNodeBytes; /* between hosts: rows of forward and backward, and
                             weights and gradients of replicas */
  const lrmoeRankMemory_t *memory; /* [G] */
  /* The constraint that has least to spare, relative to its limit, on which
   * rank (-1: all), and what is left in its unit: negative is missing. */
  int64_t constraintSlack;
  lrmoeConstraint_t constraint;
  int32_t constraintRank;
  /* lrmoeStepPrepare refuses plans in which either is not 0. */
  int32_t homesMoved;     /* experts whose home is not the planner's */
  int32_t changesForward; /* 1: demand is not what was given */
  const int64_t *totals;  /* [E] n */
  /* With retain `largest`, else 0.  Proven: where the instances stand, with
   * forward as it is, no quotas of the rule that fit keep more pairs in all;
   * and what that is above `kept`, in millionths of kept, rounded up.  A window
   * counts where T_comm rises with the quotas (uniform without replicas), and
   * with windowWork unless the topology is calibrated for a crowd of ranks on
   * one machine; else only memory does. */
  int64_t boundRetained;
  int64_t gapRetainedPpm;
} lrmoePlanView_t;

#define LRMOE_PLAN_VIEW_INITIALIZER                                           \
  {                                                                           \
    sizeof(lrmoePlanView_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, 0, 0, 0, NULL, \
        NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, lrmoePolicyFixed, 0, 0,  \
        0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, lrmoeConstraintNone, -1, 0, 0, NULL, \
        0, 0                                                                  \
  }

lrmoeResult_t lrmoePlanGetView(lrmoePlan_t plan, lrmoePlanView_t *view);

/* Writes the plan, with a check sum, to buffer.  *bytes is the room on entry
 * and the length on return; buffer NULL asks for the length only. */
lrmoeResult_t lrmoePlanSave(lrmoePlan_t plan, void *buffer, size_t *bytes);

/* Reads what lrmoePlanSave wrote; lrmoeCorrupt if it is damaged or breaks an
 * invariant of plans. */
lrmoeResult_t lrmoePlanLoad(const void *buffer, size_t bytes,
                            lrmoePlan_t *plan);

/* ---- Layer ------------------------------------------------------------ */

/* Where the routing weight alpha multiplies.
 * post  the expert's output (the paper, DeepSpeed, Megatron-Core to 0.12)
 * pre   FC2's input (Megatron-Core from 0.13) */
typedef enum {
  lrmoeWeightPost = 0,
  lrmoeWeightPre = 1
} lrmoeWeightConvention_t;

/* What ranks the pairs of an expert.
 * lrm     |alpha| |g| |phi|, whose square is the LRM score (Eq. 3)
 * grad2   L2 norm of g
 * grad1   L1 norm of g
 * random  a hash of the seed and the pair
 * all     keep every pair: the plain MoE backward; no score, no exchange */
typedef enum {
  lrmoeMetricLrm = 0,
  lrmoeMetricGrad2 = 1,
  lrmoeMetricGrad1 = 2,
  lrmoeMetricRandom = 3,
  lrmoeMetricAll = 4
} lrmoeMetric_t;

/* Among which pairs the best are kept.
 * expert    the K[e] best of each expert over all ranks (paper 3.3)
 * layer     the sum of K[e] best of the layer, no quota per expert
 *           (the ranking of Selective-Backprop, for comparison)
 * instance  the X[e][g] best of the pairs that the instance ran in forward
 *           (all of them if they are fewer): no pair moves */
typedef enum {
  lrmoeScopeExpert = 0,
  lrmoeScopeLayer = 1,
  lrmoeScopeInstance = 2
} lrmoeScope_t;

/* What crosses between ranks in backward.
 * dedup     a row per (token, rank)
 * pairwise  a row per kept pair
 * masked    a row per routed pair, zero where dropped: the zero-masked
 *           baseline, for comparison
 * node      a row per (token, node) between nodes (hosts, or NVLink domains
 *           where these are larger, of the planner's topology), of g and of x
 *           that comes again: a rank of the node hands it on to the others, and
 *           adds their rows of dx, rounded once more, before they go back.  The
 *           route is the host's, which waits twice more on a device.  What
 *           relays hold a plan charges with chargesRelays, without which it is
 *           refused under memoryBytes.  On one node as dedup, by messages.  Of
 *           forward: forwardWire of the layer.  With LRMOE_GIN devices put rows
 *           between nodes themselves, through NCCL's GIN, where every rank can:
 *           the same results */
typedef enum {
  lrmoeWireDedup = 0,
  lrmoeWirePairwise = 1,
  lrmoeWireMasked = 2,
  lrmoeWireNode = 3
} lrmoeWire_t;

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  uint64_t seed; /* of lrmoeMetricRandom */
  lrmoeMetric_t metric;
  lrmoeScope_t scope;
  lrmoeWire_t wire;
  int32_t reserved;
} lrmoeBackwardConfig_t;

#define LRMOE_BACKWARD_CONFIG_INITIALIZER                         \
  {                                                               \
    sizeof(lrmoeBackwardConfig_t), LRMOE_MAGIC, LRMOE_VERSION, 0, \
        lrmoeMetricLrm, lrmoeScopeExpert, lrmoeWireDedup, 0       \
  }

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t hidden;    /* H, a multiple of 8 */
  int64_t ffn;       /* F, a multiple of 8 */
  int64_t maxTokens; /* most T of a step on any rank */
  /* GEMM of the experts, or NULL for LRMOE_GEMM: on the CPU a module,
   * "openblas" (the usual one), "onednn" or "reference"; on CUDA "cublas" (the
   * usual one: a call per expert, on several streams) or "grouped" (up to 256
   * rows an expert those of one stream in one call).  Another name is
   * lrmoeNotInstalled.  Read during the call only. */
  const char *gemm;
  int32_t topk; /* k, 1..64 */
  /* Most steps that exist at once (pipeline depth), at least 1. */
  int32_t maxSteps;
  lrmoeDataType_t dtype; /* of rows and weights: bf16, fp16 or fp32 */
  lrmoeActivation_t activation;
  lrmoeWeightConvention_t convention;
  lrmoeRouterGrad_t routerGrad;
  lrmoeSavedState_t savedState;
  /* Ranks that share one expert's F (tensor parallelism): 0 or 1.  More is
   * refused: |phi| would have to be summed over the shards. */
  int32_t tensorShards;
  /* 1: on a GPU the weight gradients are multiplied on streams of the library
   * while lrmoeReturn brings dx home, and are whole after it, on its stream;
   * until then nobody may read dw1 and dw2, nor write what the handoff
   * shows.  The same bits.  In between 3F elements a kept pair are held (2F
   * with GELU), which the plan charges to backward anyway.  Nothing is hidden
   * with router gradient executor, whose GEMMs the return begins with and which
   * go behind these.  0: they are whole after lrmoeExpertBackward.  All ranks
   * the same; on a CPU nothing changes. */
  int32_t overlapsReturn;
  /* 1: where rows go straight into windows, lrmoeSelectPackSend also copies the
   * rows of x of kept pairs that stayed into the order of the GEMMs, while
   * links are what it waits for, and backward gathers them no more.  Takes H
   * elements a kept pair, which the plan does not charge.  0: no copy. */
  int32_t packsX;
  /* Of forward's rows: lrmoeWireDedup, or lrmoeWireNode, by which rows of x
   * cross between nodes once per (token, node), and rows of y once home, unless
   * router gradient owner brings a row per pair.  Takes no more waits.  All
   * ranks the same. */
  lrmoeWire_t forwardWire;
  int32_t reserved;
} lrmoeLayerConfig_t;

#define LRMOE_LAYER_CONFIG_INITIALIZER                                        \
  {                                                                           \
    sizeof(lrmoeLayerConfig_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, 0, NULL, 0, \
        1, lrmoeBfloat16, lrmoeSwiglu, lrmoeWeightPost, lrmoeRouterGradKept,  \
        lrmoeSavedFull, 0, 0, 0, lrmoeWireDedup, 0                            \
  }

/* Makes an MoE layer of the experts that planner places, over comm.  Both
 * must outlive it.  Reserves buffers for maxTokens and maxSteps.  Collective
 * (windows are registered). */
lrmoeResult_t lrmoeLayerCreate(lrmoeComm_t comm, lrmoePlanner_t planner,
                               const lrmoeLayerConfig_t *config,
                               lrmoeLayer_t *layer);
lrmoeResult_t lrmoeLayerDestroy(lrmoeLayer_t layer);

/* The experts whose home is this rank, ascending; [*numLocal], owned by the
 * layer. */
lrmoeResult_t lrmoeLayerGetLocalExperts(lrmoeLayer_t layer, int *numLocal,
                                        const int32_t **experts);

/* Parameters of the local experts, pointers per local expert in the order of
 * lrmoeLayerGetLocalExperts.
 *   w1  [2F, H] gate rows, then up rows (SwiGLU); [F, H] (GELU); layer dtype
 *   w2  [H, F]; layer dtype
 *   dw1, dw2  same shapes, fp32: ExpertBackward adds to them; NULL in both:
 *             no weight gradients
 * The arrays of pointers are copied; the matrices stay the caller's and must
 * not move or be freed before the layer is destroyed or bound anew. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  const void *const *w1;
  const void *const *w2;
  float *const *dw1;
  float *const *dw2;
} lrmoeLayerWeights_t;

#define LRMOE_LAYER_WEIGHTS_INITIALIZER                                        \
  {                                                                            \
    sizeof(lrmoeLayerWeights_t), LRMOE_MAGIC, LRMOE_VERSION, NULL, NULL, NULL, \
        NULL                                                                   \
  }

lrmoeResult_t lrmoeLayerBind(lrmoeLayer_t layer,
                             const lrmoeLayerWeights_t *weights);

/* Says that the weights have changed (an optimizer step).  A step whose
 * forward ran at another version refuses its backward (paper 3.1: the
 * parameter version is recorded). */
lrmoeResult_t lrmoeLayerAdvanceVersion(lrmoeLayer_t layer);

/* ---- Step: one invocation of the layer --------------------------------
 *
 * Several steps may exist at once, each with its plan and saved state.  They
 * share the layer's buffers: only one step of a layer at a time may be between
 * lrmoeExpertForward (lrmoeDispatch with saved state none) and lrmoeCombine, or
 * between lrmoeSelect and lrmoeReturn, and no other one may begin
 * lrmoeDispatch meanwhile.  A step whose plan has
 * replicas holds their slots between lrmoeStepPrepare, or lrmoeDispatch where
 * forward runs again, and lrmoeCombine, and between lrmoeSelect and
 * lrmoeReturn; for slots that another step holds there is lrmoeInvalidUsage. */

/* Begins a step with this rank's routing.
 *   topkIdx      [T, k] expert of each slot, -1: none; no expert twice in a
 *                row
 *   topkWeights  [T, k] alpha
 * Both are copied.  Ranks exchange demand and check that they agree on the
 * layer and the planner (round F0).  If one rank's routing is wrong every
 * rank gets lrmoeInvalidArgument, and the communicator stays whole.
 * Collective. */
lrmoeResult_t lrmoeStepCreate(lrmoeLayer_t layer, int64_t numTokens,
                              const int64_t *topkIdx, const float *topkWeights,
                              lrmoeStream_t stream, lrmoeStep_t *step);
lrmoeResult_t lrmoeStepDestroy(lrmoeStep_t step);

/* demand [G, E] of this step on the host, as lrmoePlanMake takes it; valid
 * until the step is destroyed. */
lrmoeResult_t lrmoeStepGetDemand(lrmoeStep_t step, const int64_t **demand);

/* Binds the plan (made from this step's demand; it must outlive the step),
 * works out the route, and brings the weights of its replicas into their
 * slots, those that are not there yet or are of an older version.  Collective
 * if the plan has replicas, otherwise local. */
lrmoeResult_t lrmoeStepPrepare(lrmoeStep_t step, lrmoePlan_t plan,
                               lrmoeStream_t stream);

/* Sends x [T, H] to the instances, a row per (token, rank) (round F1).
 * Exact: no pair is dropped in forward.  May be called again after
 * lrmoeCombine: recomputation runs forward again on the same step and plan.
 * Collective. */
lrmoeResult_t lrmoeDispatch(lrmoeStep_t step, const void *x,
                            lrmoeStream_t stream);

/* Runs the local experts on the dispatched rows and keeps what backward
 * needs.  Local. */
lrmoeResult_t lrmoeExpertForward(lrmoeStep_t step, lrmoeStream_t stream);

/* Brings sum over slots of alpha * expert(x) home into y [T, H], zero where a
 * token has no expert, and |phi| of every pair with it (round F2).  phi is
 * the row that enters FC2.  Collective. */
lrmoeResult_t lrmoeCombine(lrmoeStep_t step, void *y, lrmoeStream_t stream);

/* ---- Backward --------------------------------------------------------- */

/* Scores this rank's pairs with g [T, H], the gradient of y, and selects over
 * all ranks which pairs stay (round B1; paper 3.2, Algorithm 1 lines 13-14).
 * Ties go to the lower pair id (rank, token, slot); a non-finite score ranks
 * above all finite ones.  config NULL: lrm, expert, dedup.  May be called
 * again after lrmoeReturn: a step's backward can run more than once.  On a GPU
 * the host waits for the stream once here, for counts (or for the flags of a
 * route that it works out), and nowhere else in a backward that needs no more
 * room than an earlier one.
 * Collective; the same config on every rank. */
lrmoeResult_t lrmoeSelect(lrmoeStep_t step, const void *g,
                          const lrmoeBackwardConfig_t *config,
                          lrmoeStream_t stream);

/* Sends the rows of g that the kept pairs need to their executors, and the
 * rows of x that moved pairs need (all kept pairs with saved state none), in
 * one round (B2), and lays the handoff out.  g as in lrmoeSelect; x [T, H] as
 * in lrmoeDispatch, NULL where no pair can need it (no replicas and saved
 * state full).  Collective. */
lrmoeResult_t lrmoeAllToAllCompact(lrmoeStep_t step, const void *x,
                                   const void *g, lrmoeStream_t stream);

/* lrmoeSelect and lrmoeAllToAllCompact in one: rows are read once and written
 * straight into the executors' windows, where all ranks can address each
 * other's memory (LRMOE_FUSED).  Same results.  Collective.  On a device a peer
 * that does not write in time is an error of the next call that waits for the
 * stream, or of lrmoeCommGetAsyncError; and so is a rank with another step,
 * plan or config where the host does not wait here ("Waiting", above): rows
 * are not written then, and what follows computes with those of before. */
lrmoeResult_t lrmoeSelectPackSend(lrmoeStep_t step, const void *x,
                                  const void *g,
                                  const lrmoeBackwardConfig_t *config,
                                  lrmoeStream_t stream);

/* What the experts of this rank have to do in backward.  Row i of instance j
 * is pair p = offsets[j] + i.  Pointers live until the step's next backward
 * begins or the step is destroyed. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t numPairs;       /* kept pairs executed here */
  int64_t numRows;        /* rows of g received; where lrmoeSelectPackSend did
                             not wait, the most that there can be */
  const int64_t *offsets; /* [numInstances + 1] */
  const int64_t *stayed;  /* [numInstances] rows executed where forward was;
                             the others, which moved here, follow them */
  const int64_t *fwdRow;  /* [numPairs] the pair's place among the pairs of
                             this rank's forward; -1 if it moved here */
  const int64_t *gRow;    /* [numPairs] its row in g */
  const int64_t *xRow;    /* [numPairs] its row in x if stayed, in movedX if
                             moved */
  const float *weights;   /* [numPairs] alpha */
  const void *g;          /* [numRows, H] unweighted, layer dtype */
  const void *x;          /* [*, H] layer dtype */
  const int32_t *experts; /* [numInstances] */
  int64_t numInstances;
  const void *movedX; /* [*, H] layer dtype */
} lrmoeHandoff_t;

#define LRMOE_HANDOFF_INITIALIZER                                         \
  {                                                                       \
    sizeof(lrmoeHandoff_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, NULL, NULL, \
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL                 \
  }

/* After lrmoeAllToAllCompact or lrmoeSelectPackSend.  Local. */
lrmoeResult_t lrmoeStepGetHandoff(lrmoeStep_t step, lrmoeHandoff_t *handoff);

/* Runs the local experts' backward on the handoff: FC2 and FC1, data and
 * weight gradients, on kept rows only (paper 3.4).  Adds to dw1 and dw2, which
 * with overlapsReturn may still go on when lrmoeReturn begins.  Local. */
lrmoeResult_t lrmoeExpertBackward(lrmoeStep_t step, lrmoeStream_t stream);

/* Results of some handoff rows: [first, first + rows) of one instance. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t instance;
  int64_t first;
  int64_t rows;
  const float *dx;       /* [rows, H] gradients of the rows of x */
  const float *dWeights; /* [rows] d(alpha) */
} lrmoeHandoffRows_t;

#define LRMOE_HANDOFF_ROWS_INITIALIZER                                     \
  {                                                                        \
    sizeof(lrmoeHandoffRows_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, 0, NULL, \
        NULL                                                               \
  }

/* For callers that run their own GEMMs on the handoff instead of
 * lrmoeExpertBackward.  Each row is given exactly once; instances and rows in
 * ascending order give the bits of lrmoeExpertBackward's sums.  Local. */
lrmoeResult_t lrmoeHandoffPut(lrmoeStep_t step, const lrmoeHandoffRows_t *rows,
                              lrmoeStream_t stream);

/* Brings the weight gradients that replicas have gathered home, where they are
 * added to dw1 and dw2 in rank order, in fp32.  Call it before the optimizer
 * step; a replica that has to give way to another is brought home before.
 * Collective. */
lrmoeResult_t lrmoeReplicaReduce(lrmoeLayer_t layer, lrmoeStream_t stream);

/* Brings the input gradients home (round B3): dx [T, H] in the layer dtype,
 * exactly zero where no pair of the token was kept, and dWeights [T, k], the
 * d(alpha) that the layer's router gradient gives (NULL: not wanted).  If a
 * pair with a non-finite score had to be dropped, dx of its token is NaN, so
 * that loss scaling sees it.  Collective. */
lrmoeResult_t lrmoeReturn(lrmoeStep_t step, void *dx, float *dWeights,
                          lrmoeStream_t stream);

/* Kept flags [T, k] of this rank's pairs, 1 or 0, after lrmoeSelect; host.  On
 * a device it may wait for the stream of the step's last call. */
lrmoeResult_t lrmoeStepGetKept(lrmoeStep_t step, uint8_t *kept);

/* Of this rank, for the step's last backward.  Times are those of the calls: on
 * an NCCL communicator, until their work is enqueued. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t pairs;            /* routed pairs of this rank's tokens */
  int64_t kept;             /* of them kept */
  int64_t executed;         /* pairs that this rank's experts ran in forward */
  int64_t executedKept;     /* and in backward */
  int64_t selectBytes;      /* sent to other ranks in B1 */
  int64_t rowBytes;         /* sent to other ranks in B2 */
  int64_t returnBytes;      /* sent to other ranks in B3 */
  int64_t workspaceBytes;   /* most bytes of buffers in use in backward, saved
                             state and weights not counted; where
                             lrmoeSelectPackSend did not wait, at most */
  int64_t selectNs;         /* time in score and B1 */
  int64_t sendNs;           /* in pack and B2 */
  int64_t gemmNs;           /* in lrmoeExpertBackward */
  int64_t returnNs;         /* in lrmoeReturn */
  int64_t nonFiniteDropped; /* this rank's pairs with a non-finite score that
                               were dropped */
  int64_t savedBytes;       /* held here between lrmoeCombine and lrmoeSelect */
  int64_t movedIn;          /* kept pairs that came here with x */
  int64_t nodeBytes;        /* rows of g that left this rank's node in B2; 0
                               with peers' windows on a device */
  int64_t xNodeBytes;       /* and rows of x */
  int64_t forwardNodeBytes; /* rows of x in F1 of the step's last forward */
} lrmoeStepStats_t;

#define LRMOE_STEP_STATS_INITIALIZER                                           \
  {                                                                            \
    sizeof(lrmoeStepStats_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                        \
  }

/* Where lrmoeSelectPackSend did not wait for counts, the first call after it
 * does, and gives what has failed on the stream. */
lrmoeResult_t lrmoeStepGetStats(lrmoeStep_t step, lrmoeStepStats_t *stats);

/* ---- Host optimizer ---------------------------------------------------
 *
 * Beside the core: the weight gradients of this rank's experts are queued and
 * accumulated in host memory, and AdamW updates the experts there (paper
 * Algorithm 1 line 18, Figure 3).  An optimizer holds numExperts experts of
 * the same numTensors tensors, in fp32: weights, first and second moment and
 * accumulated gradient, 16 bytes a parameter.  One step updates every expert
 * once, also one that got no gradient (its moments decay).
 *
 * All functions are local and take no stream.
 *   Bits     An element's gradients are added in the order in which they were
 *            pushed, whatever the length of the queue, the number of threads
 *            and their timing.  So the results are the same bits if replicas'
 *            gradients of an expert are pushed in rank order.
 *   Threads  The first push or step starts numThreads workers, which run until
 *            lrmoeHostOptimizerDestroy.  They take no signals.
 *   Fork     A child of fork() may use its copy of an optimizer whose workers
 *            had not been started.  Of another one it may only destroy its
 *            copy; all else is lrmoeInvalidUsage.
 */

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  /* [numTensors] elements of each tensor of an expert, e.g. 2FH of w1 and HF
   * of w2; at least 1.  Read during the call only. */
  const int64_t *tensorElements;
  /* Most bytes of gradients that wait, rounded up to pieces of 64 KiB. */
  int64_t queueBytes;
  double beta1; /* [0, 1) */
  double beta2; /* [0, 1) */
  double epsilon;
  double weightDecay; /* a step takes lr * weightDecay of each weight */
  int32_t numExperts; /* local ones, 0 .. numExperts - 1 in the calls below */
  int32_t numTensors;
  int32_t numThreads; /* 1..64 */
  /* 1: a step with a non-finite gradient updates nothing; 0: it updates. */
  int32_t skipNonFinite;
} lrmoeHostOptimizerConfig_t;

#define LRMOE_HOST_OPTIMIZER_CONFIG_INITIALIZER                           \
  {                                                                       \
    sizeof(lrmoeHostOptimizerConfig_t), LRMOE_MAGIC, LRMOE_VERSION, NULL, \
        67108864, 0.9, 0.999, 1e-8, 0.01, 0, 0, 1, 1                      \
  }

/* Makes an optimizer whose weights start as weights[e * numTensors + t],
 * tensor t of expert e, of type fp32, bf16 or fp16; they are copied.  Moments,
 * gradients and the count of steps start at zero.  Starts no thread. */
lrmoeResult_t lrmoeHostOptimizerCreate(const lrmoeHostOptimizerConfig_t *config,
                                       lrmoeDataType_t type,
                                       const void *const *weights,
                                       lrmoeHostOptimizer_t *optimizer);

/* Drops what is queued, ends the workers and releases optimizer; NULL is
 * legal. */
lrmoeResult_t lrmoeHostOptimizerDestroy(lrmoeHostOptimizer_t optimizer);

/* Queues gradient [count], fp32, to be added to the accumulated gradient of
 * the tensor, of which count is the number of elements.  It is copied: the
 * caller may reuse it at once.  Waits while the queue is full. */
lrmoeResult_t lrmoeHostOptimizerPush(lrmoeHostOptimizer_t optimizer,
                                     int32_t expert, int32_t tensor,
                                     const float *gradient, int64_t count);

/* As lrmoeHostOptimizerPush, but never waits: lrmoeInProgress, without a text
 * in lrmoeGetLastError(), says that the queue has no room now and that nothing
 * was taken.  lrmoeInvalidArgument if the tensor is longer than the queue. */
lrmoeResult_t lrmoeHostOptimizerTryPush(lrmoeHostOptimizer_t optimizer,
                                        int32_t expert, int32_t tensor,
                                        const float *gradient, int64_t count);

/* Waits until all that was pushed is accumulated. */
lrmoeResult_t lrmoeHostOptimizerFlush(lrmoeHostOptimizer_t optimizer);

/* Flushes, and says whether a step with this scale would see finite gradients
 * only: 1 or 0.  A gradient whose square overflows fp32 counts as non-finite,
 * because its second moment would be.  For ranks that step or discard
 * together: reduce *isFinite with lrmoeMin over them. */
lrmoeResult_t lrmoeHostOptimizerCheck(lrmoeHostOptimizer_t optimizer,
                                      double scale, int32_t *isFinite);

/* Flushes, and sets the accumulated gradients to zero without a step. */
lrmoeResult_t lrmoeHostOptimizerDiscard(lrmoeHostOptimizer_t optimizer);

/* Flushes and makes one AdamW update (Loshchilov and Hutter, decoupled weight
 * decay) of all experts with learning rate lr >= 0 and the accumulated
 * gradients times scale > 0 (1 / loss scale, or also 1 / micro-batches), then
 * sets the gradients to zero.  Done when it returns.  If a gradient is
 * non-finite in the sense of lrmoeHostOptimizerCheck, *isSkipped becomes 1 and,
 * with skipNonFinite, weights, moments and the count of steps stay as they
 * are; else it becomes 0. */
lrmoeResult_t lrmoeHostOptimizerStep(lrmoeHostOptimizer_t optimizer, double lr,
                                     double scale, int32_t *isSkipped);

/* Writes the weights of a tensor to out as type fp32, bf16 or fp16, rounded to
 * nearest even.  Synchronous, in the calling thread; gradients that wait play
 * no part in it. */
lrmoeResult_t lrmoeHostOptimizerPull(lrmoeHostOptimizer_t optimizer,
                                     int32_t expert, int32_t tensor,
                                     lrmoeDataType_t type, void *out);

/* Writes weights, moments and the count of steps, with a check sum, to
 * buffer.  *bytes is the room on entry and the length on return; buffer NULL
 * asks for the length only.  lrmoeInvalidUsage between a push and the step or
 * discard that ends it: gradients are not saved. */
lrmoeResult_t lrmoeHostOptimizerSave(lrmoeHostOptimizer_t optimizer,
                                     void *buffer, size_t *bytes);

/* Reads what lrmoeHostOptimizerSave wrote into an optimizer of the same
 * shapes, and discards its gradients.  The configuration is not saved: it
 * stays that of optimizer.  lrmoeCorrupt if the data is damaged or holds a
 * non-finite number, lrmoeInvalidArgument if it is of other shapes; then
 * optimizer stays as it was. */
lrmoeResult_t lrmoeHostOptimizerLoad(lrmoeHostOptimizer_t optimizer,
                                     const void *buffer, size_t bytes);

typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t steps;        /* updates made, those before a save included */
  int64_t skippedSteps; /* steps with a non-finite gradient that made none */
  int64_t pushes;       /* gradients taken */
  int64_t waits;        /* pushes that had to wait for room in the queue */
  int64_t stateBytes;   /* memory of weights, moments and gradients */
  int64_t queueBytes;   /* memory of the queue */
} lrmoeHostOptimizerStats_t;

#define LRMOE_HOST_OPTIMIZER_STATS_INITIALIZER                                 \
  {                                                                            \
    sizeof(lrmoeHostOptimizerStats_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0, 0, 0, \
        0, 0                                                                   \
  }

lrmoeResult_t lrmoeHostOptimizerGetStats(lrmoeHostOptimizer_t optimizer,
                                         lrmoeHostOptimizerStats_t *stats);

#ifdef __cplusplus
}
#endif

#endif
