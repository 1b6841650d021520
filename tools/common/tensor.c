/* Rows of numbers: see tensor.h. */
#include "tools/common/tensor.h"

#include <math.h>
#include <string.h>

size_t toolTypeBytes(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 4 : 2;
}

static uint32_t bitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float floatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t toBfloat16(float value) {
  uint32_t bits = bitsOf(value);
  if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* By the spacing of fp16 values near |value|: 2^-24 for subnormals. */
static uint16_t toFloat16(float value) {
  uint16_t sign = (uint16_t)(bitsOf(value) >> 16 & 0x8000);
  if (isnan(value)) return sign | 0x7e00;
  double size = fabs((double)value);
  if (size >= 65520) return sign | 0x7c00;
  int exponent = -14;
  if (size >= 0x1p-14) {
    frexp(size, &exponent);
    exponent--;
  }
  /* size / spacing is below 2^11; a carry into the exponent is right too. */
  uint16_t steps = (uint16_t)nearbyint(ldexp(size, 10 - exponent));
  return sign | (uint16_t)(steps + ((exponent + 14) << 10));
}

static float fromFloat16(uint16_t bits) {
  int exponent = bits >> 10 & 0x1f;
  int mantissa = bits & 0x3ff;
  double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                : exponent == 0 ? ldexp(mantissa, -24)
                                : ldexp(mantissa + 1024, exponent - 25);
  return (float)(bits & 0x8000 ? -size : size);
}

static void put(lrmoeDataType_t type, void *tensor, int64_t i, float value) {
  if (type == lrmoeFloat32)
    ((float *)tensor)[i] = value;
  else
    ((uint16_t *)tensor)[i] =
        type == lrmoeBfloat16 ? toBfloat16(value) : toFloat16(value);
}

float toolTensorGet(lrmoeDataType_t type, const void *tensor, int64_t i) {
  if (type == lrmoeFloat32) return ((const float *)tensor)[i];
  uint16_t bits = ((const uint16_t *)tensor)[i];
  return type == lrmoeBfloat16 ? floatOf((uint32_t)bits << 16)
                               : fromFloat16(bits);
}

float toolTensorRound(lrmoeDataType_t type, double value) {
  float room;
  put(type, &room, 0, (float)value);
  return toolTensorGet(type, &room, 0);
}

void toolTensorRandom(lrmoeDataType_t type, int64_t count, double scale,
                      struct toolRandom *random, void *out) {
  double width = scale * 3.4641016151377544; /* sqrt(12) */
  for (int64_t i = 0; i < count; i++)
    put(type, out, i, (float)(width * (toolRandomUniform(random) - 0.5)));
}
