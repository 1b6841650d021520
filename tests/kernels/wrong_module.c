/* GEMM modules that the loader must refuse: WRONG_ABI, WRONG_NAME, or one
 * without an entry. */
#include "kernels/gemm.h"

#ifdef WRONG_ENTRY
lrmoeResult_t WRONG_ENTRY(int numThreads,
                          const struct lrmoeGemmModule **module);

lrmoeResult_t WRONG_ENTRY(int numThreads,
                          const struct lrmoeGemmModule **module) {
  static const struct lrmoeGemmModule wrong = {.abi = WRONG_ABI,
                                               .name = WRONG_NAME};
  (void)numThreads;
  *module = &wrong;
  return WRONG_RESULT;
}
#endif
