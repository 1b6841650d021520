/* Bytes and launches per kernel name: see simt.h. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_COUNTERS_H
#define LRMOE_TESTS_SUPPORT_SIMT_COUNTERS_H

#include "simt.h"

#include <string>

namespace simt {

/* Adds to the counters of a kernel, named as its launch has it. */
void addCounters(const char *written, const simtCounters &counters);

/* "(space::packKernel<T, 4>)" is packKernel. */
std::string kernelName(const char *written);

} // namespace simt

#endif
