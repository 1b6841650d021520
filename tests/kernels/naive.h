/* Slow and obvious spellings of what the kernels do, in double or by the
 * letter of the rule, for comparison. */
#ifndef LRMOE_TESTS_KERNELS_NAIVE_H
#define LRMOE_TESTS_KERNELS_NAIVE_H

#include "kernels/rows.h"

/* Random numbers (splitmix64). */
struct naiveRandom {
  uint64_t state;
};

uint64_t naiveRandomBits(struct naiveRandom *random);
int64_t naiveRandomBelow(struct naiveRandom *random, int64_t limit);

/* Uniform in [-1, 1). */
double naiveRandomUnit(struct naiveRandom *random);

extern const lrmoeDataType_t naiveTypes[3];
const char *naiveTypeName(lrmoeDataType_t type);
size_t naiveTypeBytes(lrmoeDataType_t type);

/* Value of a bit pattern of fp16 or bf16, from its definition. */
double naiveDecode(lrmoeDataType_t type, uint16_t bits);

/* value rounded to nearest even in `type`, from the definition. */
double naiveRound(lrmoeDataType_t type, double value);

/* Element `index` of an array of `type`. */
double naiveGet(lrmoeDataType_t type, const void *data, int64_t index);

/* Stores a value that `type` can represent. */
void naivePut(lrmoeDataType_t type, void *data, int64_t index, double value);

/* A malloc'ed array of random values in [-scale, scale], rounded to type. */
void *naiveRandomArray(struct naiveRandom *random, lrmoeDataType_t type,
                       int64_t count, double scale);

/* Element (row, column) of rows; 0 for a row of index -1. */
double naiveRowGet(const struct lrmoeRows *rows, int64_t row, int64_t column);

/* The rule of design invariant 4, term by term. */
float naiveLaneSum(const float *terms, int64_t count);

/* phi of one column, and its derivatives, in double; up is not used by GELU. */
struct naiveActivation {
  double phi;
  double dGate;
  double dUp;
};
struct naiveActivation naiveActivate(lrmoeActivation_t activation, double gate,
                                     double up);

#endif
