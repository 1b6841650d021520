/* Row elements to fp32 and back, a block at a time.
 *
 * Plain integer arithmetic without branches, so that every compiler makes
 * vector code of it at every level, and without fp32 subnormals on the way,
 * so that neither speed nor results depend on how the host process treats
 * those.  Rounding is to nearest even and makes NaN quiet; what is too large
 * becomes infinite. */
#ifndef LRMOE_KERNELS_CPU_CONVERT_H
#define LRMOE_KERNELS_CPU_CONVERT_H

#include "kernels/rows.h"

#include <string.h>

/* One turn of the 32 lanes (rows.h). */
enum {
  blockElements = 256
};

static inline uint32_t bitsOfFloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float floatOfBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Bits without the sign; as int32, because SSE and AVX2 compare no unsigned
 * integers. */
static inline int32_t magnitudeOf(float value) {
  return (int32_t)(bitsOfFloat(value) & 0x7fffffff);
}

enum {
  infinityBits = 0x7f800000,
  quietBit = 0x00400000,
  fp16NormalBits = 113 << 23,  /* 2^-14, the least normal fp16 */
  fp16TooLargeBits = 143 << 23 /* 2^16 */
};

static inline float floatOfBf16(uint16_t value) {
  return floatOfBits((uint32_t)value << 16);
}

static inline float roundToBf16(float value) {
  uint32_t bits = bitsOfFloat(value);
  uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  bits = magnitudeOf(value) > infinityBits ? bits | quietBit : rounded;
  return floatOfBits(bits & 0xffff0000u);
}

static inline uint16_t bf16OfFloat(float value) {
  return (uint16_t)(bitsOfFloat(roundToBf16(value)) >> 16);
}

static inline float floatOfFp16(uint16_t value) {
  const float least = 0x1p-14f;
  int32_t magnitude = (value & 0x7fff) << 13;
  /* The exponent bias is 127 for 15; infinity and NaN have the top one. */
  int32_t bits = magnitude + (112 << 23);
  int32_t special = magnitude >= 31 << 23 ? 112 << 23 : 0;
  /* m * 2^-24 as (2^-14 + m * 2^-24) - 2^-14. */
  float small = floatOfBits((uint32_t)(magnitude + fp16NormalBits)) - least;
  bits = magnitude < 1 << 23 ? (int32_t)bitsOfFloat(small) : bits + special;
  return floatOfBits((uint32_t)bits | (uint32_t)(value & 0x8000) << 16);
}

/* |value| below 2^-14 rounded to a multiple of 2^-24, the last place of 0.5,
 * and 0.5 added. */
static inline float halfPlusSmall(int32_t magnitude) {
  return floatOfBits((uint32_t)magnitude) + 0.5f;
}

static inline float roundToFp16(float value) {
  int32_t magnitude = magnitudeOf(value);
  int32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1)) & ~0x1fff;
  int32_t small = (int32_t)bitsOfFloat(halfPlusSmall(magnitude) - 0.5f);
  normal = normal >= fp16TooLargeBits ? infinityBits : normal;
  int32_t bits = magnitude < fp16NormalBits ? small : normal;
  bits = magnitude > infinityBits ? infinityBits | quietBit : bits;
  return floatOfBits((uint32_t)bits | (bitsOfFloat(value) & 0x80000000u));
}

static inline uint16_t fp16OfFloat(float value) {
  int32_t magnitude = magnitudeOf(value);
  int32_t quiet = magnitude > infinityBits ? 0x200 : 0;
  /* 2^16 becomes infinity by itself. */
  int32_t least = magnitude < fp16TooLargeBits ? magnitude : fp16TooLargeBits;
  int32_t normal = (least + 0xfff + (least >> 13 & 1) - (112 << 23)) >> 13;
  int32_t small =
      (int32_t)(bitsOfFloat(halfPlusSmall(least)) - bitsOfFloat(0.5f));
  int32_t half = least < fp16NormalBits ? small : normal;
  return (uint16_t)(half | quiet | (bitsOfFloat(value) >> 16 & 0x8000));
}

static inline int64_t elementBytes(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 4 : 2;
}

static inline const void *elementAt(const void *row, lrmoeDataType_t type,
                                    int64_t element) {
  return (const char *)row + element * elementBytes(type);
}

static inline void *elementAtMutable(void *row, lrmoeDataType_t type,
                                     int64_t element) {
  return (char *)row + element * elementBytes(type);
}

/* Row i of rows, or NULL if it is a row of zeros. */
static inline const void *rowAt(const struct lrmoeRows *rows, int64_t i) {
  int64_t row = rows->index ? rows->index[i] : i;
  if (row < 0) return NULL;
  return elementAt(rows->data, rows->type, row * rows->width);
}

/* out[0 .. n) = the elements at `row`. */
static inline void loadBlock(lrmoeDataType_t type, const void *row, int64_t n,
                             float *restrict out) {
  const uint16_t *half = row;
  if (type == lrmoeFloat32)
    memcpy(out, row, (size_t)n * sizeof *out);
  else if (type == lrmoeBfloat16)
    for (int64_t j = 0; j < n; j++)
      out[j] = floatOfBf16(half[j]);
  else
    for (int64_t j = 0; j < n; j++)
      out[j] = floatOfFp16(half[j]);
}

static inline void storeBlock(lrmoeDataType_t type, const float *restrict in,
                              int64_t n, void *row) {
  uint16_t *restrict half = row;
  if (type == lrmoeFloat32)
    memcpy(row, in, (size_t)n * sizeof *in);
  else if (type == lrmoeBfloat16)
    for (int64_t j = 0; j < n; j++)
      half[j] = bf16OfFloat(in[j]);
  else
    for (int64_t j = 0; j < n; j++)
      half[j] = fp16OfFloat(in[j]);
}

/* values[0 .. n) rounded to type: the bits of storeBlock and loadBlock. */
static inline void roundBlock(lrmoeDataType_t type, int64_t n, float *values) {
  if (type == lrmoeBfloat16)
    for (int64_t j = 0; j < n; j++)
      values[j] = roundToBf16(values[j]);
  else if (type == lrmoeFloat16)
    for (int64_t j = 0; j < n; j++)
      values[j] = roundToFp16(values[j]);
}

#endif
