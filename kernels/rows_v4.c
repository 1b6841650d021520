/* The row kernels of x86-64-v4 (AVX-512). */
#define LRMOE_LEVEL v4
#include "kernels/rows_cpu.h"
