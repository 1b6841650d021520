/* Results and the last error of a thread: see result.h. */
#include "base/result.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char lastError[512] = "no error";

static const struct {
  lrmoeResult_t result;
  const char *name;
} resultNames[] = {
    {lrmoeSuccess, "success"},
    {lrmoeUnhandledCudaError, "CUDA error"},
    {lrmoeSystemError, "system error"},
    {lrmoeInternalError, "internal error"},
    {lrmoeInvalidArgument, "invalid argument"},
    {lrmoeInvalidUsage, "invalid usage"},
    {lrmoeRemoteError, "remote error"},
    {lrmoeInProgress, "in progress"},
    {lrmoeOutOfMemory, "out of memory"},
    {lrmoeUnsupported, "unsupported"},
    {lrmoeInfeasible, "infeasible"},
    {lrmoeNotInstalled, "not installed"},
    {lrmoeCorrupt, "corrupt data"},
};

const char *lrmoeGetErrorString(lrmoeResult_t result) {
  size_t numNames = sizeof resultNames / sizeof *resultNames;
  for (size_t i = 0; i < numNames; i++)
    if (resultNames[i].result == result) return resultNames[i].name;
  return "unknown result";
}

const char *lrmoeGetLastError(void) {
  return lastError;
}

lrmoeResult_t lrmoeErrorRecord(lrmoeResult_t result, const char *file, int line,
                               const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(lastError, sizeof lastError, format, arguments);
  va_end(arguments);
  const char *name = strrchr(file, '/');
  lrmoeLog(lrmoeLogInfo, "%s:%d: %s: %s", name ? name + 1 : file, line,
           lrmoeGetErrorString(result), lastError);
  return result;
}

lrmoeResult_t lrmoeGetVersion(int *version) {
  LRMOE_REQUIRE(version, "version is NULL");
  *version = LRMOE_VERSION;
  return lrmoeSuccess;
}
