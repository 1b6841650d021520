/* Naive spellings: see naive.h. */
#include "naive.h"

#include <check.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

const lrmoeDataType_t naiveTypes[3] = {lrmoeFloat32, lrmoeBfloat16,
                                       lrmoeFloat16};

uint64_t naiveRandomBits(struct naiveRandom *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

int64_t naiveRandomBelow(struct naiveRandom *random, int64_t limit) {
  return (int64_t)(naiveRandomBits(random) % (uint64_t)limit);
}

double naiveRandomUnit(struct naiveRandom *random) {
  return (double)(naiveRandomBits(random) >> 11) * 0x1p-52 - 1;
}

const char *naiveTypeName(lrmoeDataType_t type) {
  if (type == lrmoeFloat32) return "fp32";
  return type == lrmoeBfloat16 ? "bf16" : "fp16";
}

size_t naiveTypeBytes(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 4 : 2;
}

/* Stored mantissa bits and least normal exponent. */
static int mantissaBits(lrmoeDataType_t type) {
  if (type == lrmoeFloat32) return 23;
  return type == lrmoeBfloat16 ? 7 : 10;
}

static int leastExponent(lrmoeDataType_t type) {
  return type == lrmoeFloat16 ? -14 : -126;
}

double naiveDecode(lrmoeDataType_t type, uint16_t bits) {
  int mantissa = mantissaBits(type);
  int exponentMask = (1 << (15 - mantissa)) - 1;
  int exponent = bits >> mantissa & exponentMask;
  int fraction = bits & ((1 << mantissa) - 1);
  double sign = bits >> 15 ? -1 : 1;
  if (exponent == exponentMask) return sign * (fraction ? NAN : INFINITY);
  int isNormal = exponent > 0;
  double significand = fraction + (isNormal ? 1 << mantissa : 0);
  int scale = leastExponent(type) + (isNormal ? exponent - 1 : 0) - mantissa;
  return sign * ldexp(significand, scale);
}

double naiveRound(lrmoeDataType_t type, double value) {
  if (!isfinite(value) || value == 0) return value;
  int exponent = ilogb(value);
  if (exponent < leastExponent(type)) exponent = leastExponent(type);
  int scale = exponent - mantissaBits(type);
  double rounded = ldexp(nearbyint(ldexp(value, -scale)), scale);
  double tooLarge = ldexp(1, 2 - leastExponent(type));
  if (fabs(rounded) >= tooLarge) return copysign(INFINITY, value);
  return rounded;
}

double naiveGet(lrmoeDataType_t type, const void *data, int64_t index) {
  if (type == lrmoeFloat32) return ((const float *)data)[index];
  return naiveDecode(type, ((const uint16_t *)data)[index]);
}

static uint16_t encode(lrmoeDataType_t type, double value) {
  int mantissa = mantissaBits(type);
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  double magnitude = fabs(value);
  uint16_t infinity = (uint16_t)(0x7fff >> mantissa << mantissa);
  if (isnan(value)) return (uint16_t)(sign | infinity | 1 << (mantissa - 1));
  if (isinf(value)) return sign | infinity;
  int exponent = magnitude > 0 ? ilogb(magnitude) : leastExponent(type);
  if (exponent < leastExponent(type)) exponent = leastExponent(type);
  int significand = (int)ldexp(magnitude, mantissa - exponent);
  int field = (exponent - leastExponent(type)) << mantissa;
  return (uint16_t)(sign | (field + significand));
}

void naivePut(lrmoeDataType_t type, void *data, int64_t index, double value) {
  if (type == lrmoeFloat32)
    ((float *)data)[index] = (float)value;
  else
    ((uint16_t *)data)[index] = encode(type, value);
}

void *naiveRandomArray(struct naiveRandom *random, lrmoeDataType_t type,
                       int64_t count, double scale) {
  void *array = malloc((size_t)count * naiveTypeBytes(type) + 1);
  ck_assert_ptr_nonnull(array);
  for (int64_t i = 0; i < count; i++)
    naivePut(type, array, i, naiveRound(type, scale * naiveRandomUnit(random)));
  return array;
}

double naiveRowGet(const struct lrmoeRows *rows, int64_t row, int64_t column) {
  if (rows->index) row = rows->index[row];
  return row < 0 ? 0
                 : naiveGet(rows->type, rows->data, row * rows->width + column);
}

float naiveLaneSum(const float *terms, int64_t count) {
  float lane[32] = {0};
  for (int64_t j = 0; j < count; j++) {
    volatile float sum = lane[j / 8 % 32] + terms[j];
    lane[j / 8 % 32] = sum;
  }
  for (int half = 16; half > 0; half /= 2)
    for (int i = 0; i < half; i++)
      lane[i] += lane[i + half];
  return lane[0];
}

struct naiveActivation naiveActivate(lrmoeActivation_t activation, double gate,
                                     double up) {
  struct naiveActivation result = {0};
  if (activation == lrmoeSwiglu) {
    double s = 1 / (1 + exp(-gate));
    double slope = s + gate * s * (1 / (1 + exp(gate)));
    result = (struct naiveActivation){gate * s * up, slope * up, gate * s};
    return result;
  }
  double root = sqrt(2 / acos(-1));
  double t = tanh(root * (gate + 0.044715 * gate * gate * gate));
  double slope = root * (1 + 3 * 0.044715 * gate * gate);
  result.phi = 0.5 * gate * (1 + t);
  result.dGate = 0.5 * (1 + t) + 0.5 * gate * (1 - t * t) * slope;
  return result;
}
