/* What a fuzz target is: libFuzzer calls it with its inputs, and replay.c with
 * those of a folder, where there is no libFuzzer. */
#ifndef LRMOE_TESTS_FUZZ_H
#define LRMOE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Ends the process, so that the input is kept. */
#define FUZZ_CHECK(condition)                                                 \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

#endif
