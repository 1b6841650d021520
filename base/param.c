/* LRMOE_* parameters: see param.h. */
#include "base/param.h"

#include "base/log.h"
#include "base/result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct paramEntry {
  lrmoeParameter_t shown;
  int64_t minimum; /* minimum > maximum: a text parameter */
  int64_t maximum;
  int64_t fallback;
};

/* A number: the default is written once and shown as text. */
#define NUMBER(name, value, low, high, text) \
  { {name, #value, text}, low, high, value }
#define TEXT(name, value, text) \
  { {name, value, text}, 1, 0, 0 }

static const struct paramEntry params[lrmoeNumParams] = {
    [lrmoeParamDebug] =
        NUMBER("LRMOE_DEBUG", 1, 0, 3,
               "Detail of the log on stderr: 0 nothing, 1 warnings, 2 every "
               "error and choice, 3 trace."),
    [lrmoeParamTimeoutMs] =
        NUMBER("LRMOE_TIMEOUT_MS", 30000, 1, 86400000,
               "How long a call waits for a stopped or late peer before it "
               "fails, in milliseconds. A dead peer is noticed sooner."),
    [lrmoeParamHeapBytes] =
        NUMBER("LRMOE_HEAP_BYTES", 68719476736, 1048576, 1099511627776,
               "Address space of the heap behind lrmoeMemAlloc, per process, "
               "in bytes. Only what is used takes memory."),
    [lrmoeParamRingBytes] =
        NUMBER("LRMOE_RING_BYTES", 262144, 4096, 16777216,
               "Size of the ring per pair of ranks that carries messages from "
               "ordinary memory, in bytes (rounded up to a power of two)."),
    [lrmoeParamSpins] =
        NUMBER("LRMOE_SPINS", 20, 0, 1000000,
               "Times a waiting rank polls before it yields the core; 0 is "
               "used when ranks outnumber cores."),
    [lrmoeParamYields] =
        NUMBER("LRMOE_YIELDS", 50, 0, 1000000,
               "Times a waiting rank yields the core before it sleeps."),
    [lrmoeParamGemm] =
        TEXT("LRMOE_GEMM", "",
             "Matrix multiplication of the experts: openblas, onednn or "
             "reference on the CPU, cublas or grouped (for few rows an expert) "
             "on CUDA; unset: openblas, cublas."),
    [lrmoeParamModulePath] =
        TEXT("LRMOE_MODULE_PATH", "",
             "Folder of the modules liblrmoe_gemm_*.so and liblrmoe_cuda.so; "
             "unset: beside liblrmoe.so, then the loader's path."),
    [lrmoeParamGemmThreads] =
        NUMBER("LRMOE_GEMM_THREADS", 1, 1, 1024,
               "Threads per rank of the CPU matrix multiplication."),
    [lrmoeParamIsa] =
        TEXT("LRMOE_ISA", "",
             "Instruction set of the CPU row kernels: v1, v3 or v4 "
             "(x86-64 levels); unset: the best that the CPU has."),
    [lrmoeParamGatherRanks] =
        NUMBER("LRMOE_GATHER_RANKS", 0, 0, 65536,
               "Up to this many ranks lrmoeSelect gathers all scores on every "
               "rank (one round); beyond, scores go to the experts' homes "
               "(two rounds, fewer bytes). 0: 4, or 16 on a device."),
    [lrmoeParamFused] =
        NUMBER("LRMOE_FUSED", 1, 0, 1,
               "Whether lrmoeSelectPackSend and lrmoeReturn on a device write "
               "rows straight into peers' memory, where every rank can reach "
               "every other's; 0: messages."),
    [lrmoeParamGin] =
        NUMBER("LRMOE_GIN", 0, 0, 1,
               "Whether devices hand rows between nodes to the NICs themselves "
               "(NCCL's GIN), where NCCL, the NICs and the kernels' build have "
               "it on every rank; 0: messages. Relays then have room for the "
               "worst step, which no plan charges. It has not run on a NIC "
               "yet."),
    [lrmoeParamBackend] =
        TEXT("LRMOE_BACKEND", "cpu",
             "Where new communicators and lrmoeMemAlloc live: cpu, or cuda "
             "(NCCL)."),
    [lrmoeParamNcclPath] =
        TEXT("LRMOE_NCCL_PATH", "",
             "File of NCCL (libnccl.so.2, 2.27 or newer), used when the "
             "process has none yet; unset: the loader's path."),
    [lrmoeParamTrace] =
        TEXT("LRMOE_TRACE", "",
             "File for a Chrome trace of the layer's calls, exchanges and "
             "waits; %r is the rank, %h the host. Ranks of one machine may "
             "share it. A file of a finished run is added to. Unset: none."),
    [lrmoeParamPreload] =
        TEXT("LRMOE_PRELOAD", "observe",
             "What liblrmoe_preload.so does: off, observe, schedule, elide or "
             "calibrate; the same on all ranks."),
    [lrmoeParamPreloadReport] =
        TEXT("LRMOE_PRELOAD_REPORT", "none",
             "File to which liblrmoe_preload.so appends what it saw."),
    [lrmoeParamTopology] = TEXT(
        "LRMOE_TOPOLOGY", "",
        "Machine for LRMOE_PRELOAD=schedule and NCCL's env plugin: hwloc's "
        "or NCCL's XML; unset: this one."),
    [lrmoeParamNcclReport] =
        TEXT("LRMOE_NCCL_REPORT", "none",
             "File to which liblrmoe_nccl.so, as NCCL's profiler plugin, "
             "appends bytes and times."),
    [lrmoeParamRowBytes] =
        NUMBER("LRMOE_ROW_BYTES", 0, 0, 1073741824,
               "Bytes of a row for liblrmoe_preload.so to look for zero rows; "
               "0: not known."),
};

static int isText(const struct paramEntry *entry) {
  return entry->minimum > entry->maximum;
}

int64_t lrmoeParamGet(enum lrmoeParam param) {
  const struct paramEntry *entry = &params[param];
  const char *text = getenv(entry->shown.name);
  if (!text || !*text) return entry->fallback;
  char *end = NULL;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (!errno && !*end && value >= entry->minimum && value <= entry->maximum)
    return value;
  if (param != lrmoeParamDebug)
    lrmoeLog(lrmoeLogWarn, "%s=%s is not a number from %lld to %lld; using %s",
             entry->shown.name, text, (long long)entry->minimum,
             (long long)entry->maximum, entry->shown.defaultValue);
  return entry->fallback;
}

const char *lrmoeParamGetText(enum lrmoeParam param) {
  const struct paramEntry *entry = &params[param];
  const char *text = getenv(entry->shown.name);
  return text && *text ? text : entry->shown.defaultValue;
}

lrmoeResult_t lrmoeGetParameter(int index, lrmoeParameter_t *parameter) {
  LRMOE_REQUIRE(parameter, "parameter is NULL");
  if (index < 0 || index >= lrmoeNumParams)
    return LRMOE_FAIL(lrmoeInvalidArgument, "no parameter %d: there are %d",
                      index, lrmoeNumParams);
  *parameter = params[index].shown;
  if (isText(&params[index]) && !*parameter->defaultValue)
    parameter->defaultValue = "automatic";
  return lrmoeSuccess;
}
