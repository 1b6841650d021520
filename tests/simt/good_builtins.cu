/* Every builtin that kernels may use, against answers worked out by hand. */
#include "good.h"
#include "good_device.h"

__device__ inline bool checkShuffles(int lane) {
  bool good = true;
  good &= __shfl_sync(fullMask, lane * 3, 5) == 15;
  good &= __shfl_sync(fullMask, static_cast<double>(lane), 5, 16) ==
          static_cast<double>((lane & 16) + 5);
  good &= __shfl_down_sync(fullMask, lane, 4) == (lane < 28 ? lane + 4 : lane);
  good &=
      __shfl_up_sync(fullMask, lane, 3, 8) == (lane % 8 >= 3 ? lane - 3 : lane);
  good &= __shfl_xor_sync(fullMask, lane, 7) == (lane ^ 7);
  return good;
}

__device__ inline bool checkVotes(int lane) {
  bool good = true;
  good &= __ballot_sync(fullMask, lane & 1) == 0xaaaaaaaau;
  good &= __any_sync(fullMask, lane == 9) != 0;
  good &= __any_sync(fullMask, lane == 40) == 0;
  good &= __all_sync(fullMask, lane < 32) != 0;
  good &= __all_sync(fullMask, lane != 9) == 0;
  const unsigned thirds[] = {0x49249249u, 0x92492492u, 0x24924924u};
  good &= __match_any_sync(fullMask, lane % 3) == thirds[lane % 3];
  int same;
  good &= __match_all_sync(fullMask, 7ull, &same) == fullMask && same;
  good &= __match_all_sync(fullMask, lane, &same) == 0 && !same;
  return good;
}

__device__ inline bool checkReductions(int lane) {
  bool good = true;
  if (lane < 8) {
    good &= __reduce_add_sync(0xffu, static_cast<unsigned>(lane)) == 28;
    good &= __reduce_min_sync(0xffu, lane - 4) == -4;
    good &= __reduce_max_sync(0xffu, -lane) == 0;
  } else {
    good &= __reduce_max_sync(~0xffu, static_cast<unsigned>(lane)) == 31;
    good &= __reduce_min_sync(~0xffu, static_cast<unsigned>(lane)) == 8;
  }
  __syncwarp();
  good &= __reduce_or_sync(fullMask, 1u << lane) == fullMask;
  good &= __reduce_and_sync(fullMask, 6u | (lane & 1)) == 6;
  good &= __reduce_xor_sync(fullMask, static_cast<unsigned>(lane)) == 0;
  good &= __reduce_add_sync(fullMask, -lane) == -496;
  return good;
}

__device__ inline bool checkBarriers() {
  int thread = static_cast<int>(threadIdx.x);
  int count = static_cast<int>(blockDim.x);
  bool good = true;
  good &= __syncthreads_count(thread % 2) == count / 2;
  good &= __syncthreads_or(thread == 3) != 0;
  good &= __syncthreads_or(thread == count) == 0;
  good &= __syncthreads_and(thread != 3) == 0;
  good &= __syncthreads_and(thread < count) != 0;
  return good;
}

__device__ inline bool checkIntegers() {
  bool good = true;
  good &= __popc(0xf0u) == 4 && __popcll(0xf00000000ull) == 4;
  good &= __ffs(8) == 4 && __ffs(0) == 0 && __ffsll(1ll << 40) == 41;
  good &= __clz(1) == 31 && __clz(0) == 32 && __clz(-1) == 0;
  good &= __clzll(1) == 63 && __brev(1u) == 0x80000000u;
  good &= __brevll(2ull) == 1ull << 62;
  good &= __umulhi(0x80000000u, 6u) == 3;
  good &= __funnelshift_l(0x80000000u, 1u, 1) == 3;
  good &= __funnelshift_r(2u, 1u, 1) == 0x80000001u;
  good &= min(3, 5) == 3 && max(3u, 5u) == 5;
  return good;
}

__device__ inline bool checkFloats() {
  bool good = true;
  good &= __float_as_uint(1.0f) == 0x3f800000u;
  good &= __uint_as_float(0x40000000u) == 2.0f;
  good &= __int_as_float(__float_as_int(-3.5f)) == -3.5f;
  good &= __double_as_longlong(1.0) == 0x3ff0000000000000ll;
  float small = __uint_as_float(0x3f800800u); /* 1 + 2^-12 */
  good &= __fmaf_rn(small, small, -1.0f) >
          __fadd_rn(__fmul_rn(small, small), -1.0f);
  good &= __fsqrt_rn(2.25f) == 1.5f && __fdiv_rn(1.0f, 4.0f) == 0.25f;
  good &= __fsub_rn(2.0f, 0.5f) == 1.5f;
  good &= __bfloat162float(__float2bfloat16_rn(1.00390625f)) == 1.0f;
  good &= __half2float(__float2half_rn(0.5f)) == 0.5f;
  return good;
}

struct Atomics {
  int sum;
  unsigned low;
  unsigned high;
  unsigned bits;
  unsigned wrap;
  unsigned long long wide;
};

__device__ inline bool checkAtomics(Atomics &shared) {
  unsigned thread = threadIdx.x;
  if (thread == 0) shared = {1000, 50, 50, 0, 0, 0};
  __syncthreads();
  atomicAdd(&shared.sum, 2);
  atomicSub(&shared.sum, 1);
  atomicMin(&shared.low, thread + 7);
  atomicMax(&shared.high, thread);
  if (thread < 32) atomicOr(&shared.bits, 1u << thread);
  atomicInc(&shared.wrap, 9);
  atomicAdd(&shared.wide, 1ull << 33);
  __syncthreads();
  bool good = shared.sum == 1000 + static_cast<int>(blockDim.x);
  good &= shared.low == 7 && shared.high == blockDim.x - 1;
  good &= shared.bits == fullMask && shared.wrap == blockDim.x % 10;
  good &= shared.wide == static_cast<unsigned long long>(blockDim.x) << 33;
  __syncthreads();
  if (thread == 0) {
    good &= atomicCAS(&shared.low, 7u, 9u) == 7;
    good &= atomicCAS(&shared.low, 7u, 8u) == 9;
    good &= atomicExch(&shared.low, 4u) == 9;
    good &= atomicAnd(&shared.bits, 12u) == fullMask;
    good &= atomicXor(&shared.bits, 5u) == 12 && shared.bits == 9;
    good &= atomicDec(&shared.low, 8u) == 4 && shared.low == 3;
  }
  return good;
}

__global__ void builtinsKernel(int *failures) {
  LRMOE_SHARED(Atomics, shared);
  int lane = static_cast<int>(threadIdx.x % warpSize);
  bool good = checkShuffles(lane);
  good &= checkVotes(lane);
  good &= checkReductions(lane);
  good &= checkBarriers();
  good &= checkIntegers();
  good &= checkFloats();
  good &= checkAtomics(shared);
  if (!good) atomicAdd(failures, 1);
}

cudaError_t goodBuiltins(int *failures, cudaStream_t stream) {
  return LRMOE_LAUNCH(builtinsKernel, dim3(3), dim3(128), sizeof(Atomics),
                      stream, failures);
}
