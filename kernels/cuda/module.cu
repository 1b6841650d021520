/* The CUDA backend: liblrmoe_cuda.so, loaded when a communicator needs it.
 *
 * Contract: kernels/backend.h.  The row kernels, scores and selection give the
 * CPU's bits.  Pointers and streams belong to the device that is current in
 * the calling thread; rows start at 16-byte boundaries and are a multiple of 8
 * elements wide.
 *
 * Capture into a graph: each file says it of its calls.  All but allocation,
 * the host's waits and the experts can be captured; nothing here but those
 * waits, the growth of the experts' scratch, and copies of pageable memory
 * stops the host. */
#include "kernels/cuda/calls.h"
#include "kernels/cuda/error.h"

static const struct lrmoeBackend cudaBackend = {
    LRMOE_BACKEND_ABI,
    "cuda",
    0,
    lrmoeCudaLastError,
    lrmoeCudaMemAlloc,
    lrmoeCudaMemFree,
    lrmoeCudaHostAlloc,
    lrmoeCudaHostFree,
    lrmoeCudaCopy,
    lrmoeCudaClear,
    lrmoeCudaSynchronize,
    lrmoeCudaEventCreate,
    lrmoeCudaEventRecord,
    lrmoeCudaEventWait,
    lrmoeCudaStreamWait,
    lrmoeCudaEventQuery,
    lrmoeCudaEventDestroy,
    lrmoeCudaNorms,
    lrmoeCudaGather,
    lrmoeCudaSpread,
    lrmoeCudaGatherSum,
    lrmoeCudaDotRows,
    lrmoeCudaAddFloats,
    lrmoeCudaSpoilRows,
    lrmoeCudaMarkRows,
    lrmoeCudaGatherWords,
    lrmoeCudaGatherIndices,
    lrmoeCudaScatterWords,
    lrmoeCudaCopyPieces,
    lrmoeCudaScores,
    lrmoeCudaSelectTop,
    lrmoeCudaCountFlagged,
    lrmoeCudaListFlagged,
    lrmoeCudaNumberMarks,
    lrmoeCudaListColumns,
    lrmoeCudaInvert,
    lrmoeCudaShiftLists,
    lrmoeCudaSpoilDropped,
    lrmoeCudaListHandoff,
    lrmoeCudaLabelPairs,
    lrmoeCudaPackBits,
    lrmoeCudaUnpackBits,
    lrmoeCudaPutRows,
    lrmoeCudaPutSums,
    lrmoeCudaEnter,
    lrmoeCudaMeet,
    lrmoeCudaPeek,
    lrmoeCudaExpertOpen,
    lrmoeCudaExpertClose,
    lrmoeCudaExpertScratchBytes,
    lrmoeCudaExpertForward,
    lrmoeCudaExpertBackward,
    lrmoeCudaExpertBackwardSplit,
    lrmoeCudaExpertAlpha,
    lrmoeCudaRangeBegin,
    lrmoeCudaRangeEnd,
    lrmoeCudaTimerCreate,
    lrmoeCudaTimerRead,
    lrmoeCudaBusAddress,
    &lrmoeCudaGin,
};

static lrmoeResult_t findDevice(void) {
  int numDevices = 0;
  cudaError_t error = cudaGetDeviceCount(&numDevices);
  if (error != cudaSuccess) {
    (void)lrmoeCudaFailCall("cudaGetDeviceCount", error);
    return lrmoeNotInstalled;
  }
  if (numDevices == 0)
    return lrmoeCudaFail(lrmoeNotInstalled, "this machine has no CUDA device");
  return lrmoeSuccess;
}

/* LRMOE_BACKEND_ENTRY.  The table is given even when it cannot be used, so
 * that the loader may ask it why. */
extern "C" __attribute__((visibility("default"))) lrmoeResult_t
lrmoeBackendModuleGet(const struct lrmoeBackend **backend);

lrmoeResult_t lrmoeBackendModuleGet(const struct lrmoeBackend **backend) {
  *backend = &cudaBackend;
  lrmoeCudaRangeStart();
  return findDevice();
}
