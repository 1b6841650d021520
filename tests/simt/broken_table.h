/* Broken kernels by name. */
#ifndef LRMOE_TESTS_SIMT_BROKEN_TABLE_H
#define LRMOE_TESTS_SIMT_BROKEN_TABLE_H

#include "broken.h"
#include "lrmoe_device.h"

#include <cstring>

struct BrokenCase {
  const char *name;
  cudaError_t (*launch)(unsigned *data, cudaStream_t stream);
};

#define BROKEN_CASE(kernel, blocks, threads, sharedBytes)             \
  {                                                                   \
#kernel, [](unsigned *data, cudaStream_t stream) {                  \
      return LRMOE_LAUNCH(kernel, dim3(blocks), dim3(threads),          \
                          sharedBytes, stream, data);                   \
    } \
  }

template <size_t count>
inline const BrokenCase *findCase(const BrokenCase (&cases)[count],
                                  const char *name) {
  for (const BrokenCase &each : cases)
    if (!strcmp(each.name, name)) return &each;
  return nullptr;
}

const BrokenCase *brokenReport(const char *name);
const BrokenCase *brokenOrder(const char *name);
const BrokenCase *brokenMemory(const char *name);

#endif
