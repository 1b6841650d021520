/* Checks when it is compiled: the values that lrmoe.h shares with NCCL. */
#include "lrmoe.h"

#include <nccl.h>

#define SAME(ours, theirs) \
  _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)

SAME(lrmoeSuccess, ncclSuccess);
SAME(lrmoeUnhandledCudaError, ncclUnhandledCudaError);
SAME(lrmoeSystemError, ncclSystemError);
SAME(lrmoeInternalError, ncclInternalError);
SAME(lrmoeInvalidArgument, ncclInvalidArgument);
SAME(lrmoeInvalidUsage, ncclInvalidUsage);
SAME(lrmoeRemoteError, ncclRemoteError);
SAME(lrmoeInProgress, ncclInProgress);
SAME(lrmoeInt8, ncclInt8);
SAME(lrmoeUint8, ncclUint8);
SAME(lrmoeInt32, ncclInt32);
SAME(lrmoeUint32, ncclUint32);
SAME(lrmoeInt64, ncclInt64);
SAME(lrmoeUint64, ncclUint64);
SAME(lrmoeFloat16, ncclFloat16);
SAME(lrmoeFloat32, ncclFloat32);
SAME(lrmoeFloat64, ncclFloat64);
SAME(lrmoeBfloat16, ncclBfloat16);
SAME(lrmoeSum, ncclSum);
SAME(lrmoeProd, ncclProd);
SAME(lrmoeMax, ncclMax);
SAME(lrmoeMin, ncclMin);
SAME(lrmoeAvg, ncclAvg);
SAME(LRMOE_UNIQUE_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME(sizeof(lrmoeUniqueId), sizeof(ncclUniqueId));

/* One type, so that handles pass without a cast. */
extern lrmoeStream_t testStream;
extern cudaStream_t testStream;
