/* What nccl.h says that a compiler cannot check. */
#ifndef LRMOE_TESTS_COLLECTIVES_NCCL_VALUES_H
#define LRMOE_TESTS_COLLECTIVES_NCCL_VALUES_H

/* Of an initialised config. */
unsigned testNcclConfigMagic(void);
int testNcclConfigUnset(void);

#endif
