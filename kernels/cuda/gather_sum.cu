/* Sums of listed rows: a warp for an output row (sum_rows.cuh).
 *
 * The call may be captured into a graph. */
#include "kernels/cuda/sum_rows.cuh"

using namespace lrmoeCuda;

template <class T, bool isWeighted>
__global__ void __launch_bounds__(blockThreads)
    gatherSumKernel(GatherSum args) {
  int64_t i = rowOfWarp();
  if (i >= args.numOut) return;
  sumRows<T, isWeighted>(args, i, args.out + i * args.rowBytes);
}

lrmoeResult_t lrmoeCudaGatherSum(const struct lrmoeGatherSum *args,
                                 lrmoeStream_t stream) {
  if (args->numOut == 0) return lrmoeSuccess;
  LRMOE_CHECK(requireRows(args->rows));
  LRMOE_CHECK(lrmoeCudaCheckAligned(args->out));
  return withElements(args->rows.type, [=](auto elements) -> lrmoeResult_t {
    using T = decltype(elements);
    RowsView rows = viewOf(args->rows);
    GatherSum run = {rows.data,
                     rows.rowBytes,
                     chunksOf(args->rows.width),
                     args->numOut,
                     args->offsets,
                     args->list,
                     args->weights,
                     static_cast<char *>(args->out)};
    if (args->weights)
      LRMOE_RUN_KERNEL((gatherSumKernel<T, true>), args->numOut, blockWarps,
                       stream, run);
    else
      LRMOE_RUN_KERNEL((gatherSumKernel<T, false>), args->numOut, blockWarps,
                       stream, run);
    return lrmoeSuccess;
  });
}
