/* LRMOE_* parameters: every environment variable that the library reads.
 *
 * One table in param.c holds name, default, range and description; the table
 * in README.md is generated from it.  Values are read when they are needed
 * (creation calls only, never a hot path), so a program may set them. */
#ifndef LRMOE_BASE_PARAM_H
#define LRMOE_BASE_PARAM_H

#include <stdint.h>

enum lrmoeParam {
  lrmoeParamDebug,
  lrmoeParamTimeoutMs,
  lrmoeParamHeapBytes,
  lrmoeParamRingBytes,
  lrmoeParamSpins,
  lrmoeParamYields,
  lrmoeParamGemm,
  lrmoeParamModulePath,
  lrmoeParamGemmThreads,
  lrmoeParamIsa,
  lrmoeParamGatherRanks,
  lrmoeParamFused,
  lrmoeParamGin,
  lrmoeParamBackend,
  lrmoeParamNcclPath,
  lrmoeParamTrace,
  lrmoeParamPreload,
  lrmoeParamPreloadReport,
  lrmoeParamTopology,
  lrmoeParamNcclReport,
  lrmoeParamRowBytes,
  lrmoeNumParams
};

/* Value of a numeric parameter; text, and values out of range, give the
 * default with one warning a call. */
int64_t lrmoeParamGet(enum lrmoeParam param);

/* Value of a text parameter, its default if unset. */
const char *lrmoeParamGetText(enum lrmoeParam param);

#endif
