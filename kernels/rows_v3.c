/* The row kernels of x86-64-v3 (AVX2). */
#define LRMOE_LEVEL v3
#include "kernels/rows_cpu.h"
