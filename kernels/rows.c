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

/* Best first. */
static const struct lrmoeRowKernels *const levels[] = {
#ifdef __x86_64__
    &lrmoeRowKernels_v4,
    &lrmoeRowKernels_v3,
#endif
    &lrmoeRowKernels_v1,
    NULL,
};

static int runsHere(const struct lrmoeRowKernels *kernels) {
#ifdef __x86_64__
  if (kernels == &lrmoeRowKernels_v4) return hasV4();
  if (kernels == &lrmoeRowKernels_v3) return hasV3();
#endif
  return kernels == &lrmoeRowKernels_v1;
}

/* The best level of that name (any, if it is empty) that runs here. */
static const struct lrmoeRowKernels *findLevel(const char *name) {
  for (int i = 0; levels[i]; i++)
    if ((!*name || !strcmp(levels[i]->isa, name)) && runsHere(levels[i]))
      return levels[i];
  return NULL;
}

const struct lrmoeRowKernels *lrmoeRowKernelsFind(const char *isa) {
  return *isa ? findLevel(isa) : NULL;
}

lrmoeResult_t lrmoeRowKernelsGet(const struct lrmoeRowKernels **kernels) {
  const char *wanted = lrmoeParamGetText(lrmoeParamIsa);
  const struct lrmoeRowKernels *found = findLevel(wanted);
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
