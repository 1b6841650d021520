/* Choice of the row kernels at run time: a table of tables, because compiler
 * multiversioning (ifunc) crashes under ThreadSanitizer. */
#include "kernels/rows.h"

#include "base/log.h"
#include "base/param.h"

#include <string.h>

extern const struct lrmoeRowKernels lrmoeRowKernels_v1;

#ifdef __x86_64__
extern const struct lrmoeRowKernels lrmoeRowKernels_v3;
extern const struct lrmoeRowKernels lrmoeRowKernels_v4;

static int hasV3(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static int hasV4(void) {
  return hasV3() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

static int hasV1(void) {
  return 1;
}

/* Best first. */
static const struct {
  const struct lrmoeRowKernels *kernels;
  int (*runsHere)(void);
} levels[] = {
#ifdef __x86_64__
    {&lrmoeRowKernels_v4, hasV4},
    {&lrmoeRowKernels_v3, hasV3},
#endif
    {&lrmoeRowKernels_v1, hasV1},
};
enum {
  numLevels = sizeof levels / sizeof *levels
};

const struct lrmoeRowKernels *lrmoeRowKernelsFind(const char *isa) {
  for (int i = 0; i < numLevels; i++)
    if (!strcmp(levels[i].kernels->isa, isa) && levels[i].runsHere())
      return levels[i].kernels;
  return NULL;
}

lrmoeResult_t lrmoeRowKernelsGet(const struct lrmoeRowKernels **kernels) {
  const char *wanted = lrmoeParamGetText(lrmoeParamIsa);
  const struct lrmoeRowKernels *found = NULL;
  for (int i = 0; i < numLevels && !found; i++)
    if (!*wanted ? levels[i].runsHere()
                 : !strcmp(levels[i].kernels->isa, wanted))
      found = lrmoeRowKernelsFind(levels[i].kernels->isa);
  if (!found)
    return LRMOE_FAIL(lrmoeInvalidArgument,
                      "LRMOE_ISA=%s: no such level, or this CPU lacks it",
                      wanted);
  lrmoeLog(lrmoeLogTrace, "row kernels of level %s", found->isa);
  *kernels = found;
  return lrmoeSuccess;
}

int64_t lrmoeFc1Width(lrmoeActivation_t activation, int64_t ffn) {
  return activation == lrmoeSwiglu ? 2 * ffn : ffn;
}
