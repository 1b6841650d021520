/* Rows of numbers for programs: random values in a data type, and back. */
#ifndef LRMOE_TOOLS_TENSOR_H
#define LRMOE_TOOLS_TENSOR_H

#include "lrmoe.h"
#include "tools/common/workload.h"

/* Bytes of an element of bf16, fp16 or fp32. */
size_t toolTypeBytes(lrmoeDataType_t type);

/* Writes count values, uniform around 0 with standard deviation `scale`,
 * rounded to nearest even. */
void toolTensorRandom(lrmoeDataType_t type, int64_t count, double scale,
                      struct toolRandom *random, void *out);

/* Value i of a tensor. */
float toolTensorGet(lrmoeDataType_t type, const void *tensor, int64_t i);

/* The value rounded to the type. */
float toolTensorRound(lrmoeDataType_t type, double value);

#endif
