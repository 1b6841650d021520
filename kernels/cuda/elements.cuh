/* Row elements as kernels see them: 8 consecutive ones, a "chunk", are what a
 * lane takes at a time.  It is 16 bytes of bf16 or fp16, 32 of fp32, and the
 * unit of the reproducible sums (kernels/rows.h).
 *
 * Conversions are the hardware's, to nearest even; they give the CPU's bits
 * (of a NaN: that it is one). */
#ifndef LRMOE_KERNELS_CUDA_ELEMENTS_CUH
#define LRMOE_KERNELS_CUDA_ELEMENTS_CUH

#include "kernels/cuda/calls.h"
#include "kernels/cuda/error.h"
#include "lrmoe_device.h"

namespace lrmoeCuda {

constexpr int chunkElements = 8;

struct Chunk {
  float at[chunkElements];
};

/* Two elements as one word: the lower half comes first. */
struct PairBf16 {
  static __device__ __forceinline__ float2 unpack(uint32_t word) {
    return make_float2(__uint_as_float(word << 16),
                       __uint_as_float(word & 0xffff0000u));
  }
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &both, sizeof word);
    return word;
  }
};

struct PairFp16 {
  static __device__ __forceinline__ float2 unpack(uint32_t word) {
    __half2 both;
    memcpy(static_cast<void *>(&both), &word, sizeof word);
    return __half22float2(both);
  }
  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    __half2 both = __floats2half2_rn(low, high);
    uint32_t word;
    memcpy(&word, &both, sizeof word);
    return word;
  }
};

/* An element type: Raw is a chunk as it lies in memory. */
template <class Pair>
struct HalfElements {
  static constexpr int bytes = 2;
  using Raw = uint4;

  static __device__ __forceinline__ Raw zeros() {
    return make_uint4(0, 0, 0, 0);
  }
  /* Of memory that no thread of the kernel writes. */
  static __device__ __forceinline__ Raw load(const char *row, int chunk) {
    return __ldg(reinterpret_cast<const uint4 *>(row) + chunk);
  }
  /* Of memory that this thread may write later. */
  static __device__ __forceinline__ Raw loadOwn(const char *row, int chunk) {
    return lrmoeLoad(reinterpret_cast<const uint4 *>(row) + chunk);
  }
  static __device__ __forceinline__ void store(char *row, int chunk, Raw raw) {
    lrmoeStore(reinterpret_cast<uint4 *>(row) + chunk, raw);
  }
  static __device__ __forceinline__ Chunk unpack(Raw raw) {
    float2 a = Pair::unpack(raw.x);
    float2 b = Pair::unpack(raw.y);
    float2 c = Pair::unpack(raw.z);
    float2 d = Pair::unpack(raw.w);
    return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
  }
  static __device__ __forceinline__ Raw pack(const Chunk &chunk) {
    const float *at = chunk.at;
    return make_uint4(Pair::pack(at[0], at[1]), Pair::pack(at[2], at[3]),
                      Pair::pack(at[4], at[5]), Pair::pack(at[6], at[7]));
  }
};

struct FloatElements {
  static constexpr int bytes = 4;
  struct Raw {
    float4 low;
    float4 high;
  };

  static __device__ __forceinline__ Raw zeros() {
    return {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)};
  }
  static __device__ __forceinline__ Raw load(const char *row, int chunk) {
    const float4 *from = reinterpret_cast<const float4 *>(row) + 2 * chunk;
    return {__ldg(from), __ldg(from + 1)};
  }
  static __device__ __forceinline__ Raw loadOwn(const char *row, int chunk) {
    const float4 *from = reinterpret_cast<const float4 *>(row) + 2 * chunk;
    return {lrmoeLoad(from), lrmoeLoad(from + 1)};
  }
  static __device__ __forceinline__ void store(char *row, int chunk, Raw raw) {
    float4 *to = reinterpret_cast<float4 *>(row) + 2 * chunk;
    lrmoeStore(to, raw.low);
    lrmoeStore(to + 1, raw.high);
  }
  static __device__ __forceinline__ Chunk unpack(Raw raw) {
    return {{raw.low.x, raw.low.y, raw.low.z, raw.low.w, raw.high.x, raw.high.y,
             raw.high.z, raw.high.w}};
  }
  static __device__ __forceinline__ Raw pack(const Chunk &chunk) {
    const float *at = chunk.at;
    return {make_float4(at[0], at[1], at[2], at[3]),
            make_float4(at[4], at[5], at[6], at[7])};
  }
};

using Bf16 = HalfElements<PairBf16>;
using Fp16 = HalfElements<PairFp16>;
using Fp32 = FloatElements;

/* A chunk rounded to T. */
template <class T>
__device__ __forceinline__ Chunk rounded(const Chunk &chunk) {
  return T::unpack(T::pack(chunk));
}

/* Calls function(T()) for the element type. */
template <class Function>
inline lrmoeResult_t withElements(lrmoeDataType_t type, Function function) {
  switch (type) {
  case lrmoeBfloat16:
    return function(Bf16());
  case lrmoeFloat16:
    return function(Fp16());
  case lrmoeFloat32:
    return function(Fp32());
  default:
    return lrmoeCudaFail(lrmoeInvalidArgument,
                         "data type %d: rows are bf16, fp16 or fp32",
                         static_cast<int>(type));
  }
}

inline int64_t elementBytes(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 4 : 2;
}

} // namespace lrmoeCuda

#endif
