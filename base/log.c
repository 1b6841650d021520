/* The log: see log.h.  One write(2) a line, so that the lines of several
 * ranks on one terminal do not mix. */
#include "base/log.h"

#include "base/param.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void lrmoeLog(enum lrmoeLogLevel level, const char *format, ...) {
  if ((int64_t)level > lrmoeParamGet(lrmoeParamDebug)) return;
  char line[640];
  int used = snprintf(line, sizeof line, "lrmoe %d: ", (int)getpid());
  va_list arguments;
  va_start(arguments, format);
  int added =
      vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
  va_end(arguments);
  used +=
      added < (int)sizeof line - used - 1 ? added : (int)sizeof line - used - 2;
  line[used++] = '\n';
  ssize_t written = write(STDERR_FILENO, line, (size_t)used);
  (void)written; /* nothing to be done when stderr is closed */
}
