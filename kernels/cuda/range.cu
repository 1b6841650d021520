/* Ranges for Nsight and its like: NVTX, whose functions do next to nothing
 * unless a tool has come with the process.  NVTX fills its table of functions
 * at the first call, which must therefore be over before threads come.
 *
 * Capture into a graph: they touch no stream. */
#include "kernels/cuda/calls.h"

#include <nvtx3/nvToolsExt.h>

void lrmoeCudaRangeStart(void) {
  nvtxInitialize(nullptr);
}

void lrmoeCudaRangeBegin(const char *name) {
  (void)nvtxRangePushA(name);
}

void lrmoeCudaRangeEnd(void) {
  (void)nvtxRangePop();
}
