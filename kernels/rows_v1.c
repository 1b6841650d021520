/* The row kernels of baseline x86-64, and of any other machine. */
#define LRMOE_LEVEL v1
#include "kernels/rows_cpu.h"
