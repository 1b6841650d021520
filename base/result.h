/* Results and the last error of a thread.
 *
 * The place that first detects an error records it with LRMOE_FAIL; callers
 * pass it on with LRMOE_CHECK.  A message says what, where (which rank, which
 * index) and by how much. */
#ifndef LRMOE_BASE_RESULT_H
#define LRMOE_BASE_RESULT_H

#include "lrmoe.h"

/* Records the message for lrmoeGetLastError() and returns `result`. */
lrmoeResult_t lrmoeErrorRecord(lrmoeResult_t result, const char *file, int line,
                               const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define LRMOE_FAIL(result, ...) \
  lrmoeErrorRecord(result, __FILE__, __LINE__, __VA_ARGS__)

/* Returns from the caller when `call` does not succeed. */
#define LRMOE_CHECK(call)                          \
  do {                                             \
    lrmoeResult_t checked_ = (call);               \
    if (checked_ != lrmoeSuccess) return checked_; \
  } while (0)

/* As LRMOE_CHECK, with the result in `result` and a jump to `label`. */
#define LRMOE_CHECK_GOTO(call, result, label) \
  do {                                        \
    (result) = (call);                        \
    if ((result) != lrmoeSuccess) goto label; \
  } while (0)

/* Fails with lrmoeInvalidArgument unless `condition` holds. */
#define LRMOE_REQUIRE(condition, ...)                                       \
  do {                                                                      \
    if (!(condition)) return LRMOE_FAIL(lrmoeInvalidArgument, __VA_ARGS__); \
  } while (0)

#endif
