// Kernels that every gate lets through, for the gates' own test.
#include "lrmoe_device.h"

template <class T>
__global__ void __launch_bounds__(256)
    copyKernel(const T *__restrict__ in, T *__restrict__ out, int count) {
  int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) lrmoeStore(out + i, lrmoeLoad(in + i));
}

struct CountShared {
  unsigned counts[256];
};

// An atomic on integers, and words that look like one on floats: st.shared.f32.
__global__ void __launch_bounds__(256)
    countKernel(const unsigned *__restrict__ in, unsigned *__restrict__ out) {
  LRMOE_SHARED(CountShared, shared);
  shared.counts[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&shared.counts[in[threadIdx.x] % 256], 1u);
  __syncthreads();
  out[threadIdx.x] = shared.counts[threadIdx.x];
}

cudaError_t goodCopy(const float *in, float *out, int count,
                     cudaStream_t stream) {
  return LRMOE_LAUNCH((copyKernel<float>), dim3((count + 255) / 256), dim3(256),
                      0, stream, in, out, count);
}

cudaError_t goodCopyVectors(const uint4 *in, uint4 *out, int count,
                            cudaStream_t stream) {
  return LRMOE_LAUNCH((copyKernel<uint4>), dim3((count + 255) / 256), dim3(256),
                      0, stream, in, out, count);
}

cudaError_t goodCount(const unsigned *in, unsigned *out, cudaStream_t stream) {
  return LRMOE_LAUNCH(countKernel, dim3(1), dim3(256), sizeof(CountShared),
                      stream, in, out);
}
