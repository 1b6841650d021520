/* Error texts: see fail.h. */
#include "tools/common/fail.h"

#include <stdarg.h>
#include <stdio.h>

enum toolExit toolFail(struct toolError *error, enum toolExit code,
                       const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return code;
}

enum toolExit toolComplain(const char *program, enum toolExit code,
                           const struct toolError *error) {
  if (*error->text) fprintf(stderr, "%s: %s\n", program, error->text);
  return code;
}
