/* mpirun's ranks, where MPI was found at build time. */
#ifndef LRMOE_PERF_LAUNCH_MPI_H
#define LRMOE_PERF_LAUNCH_MPI_H

#include "tools/common/launch.h"

/* For toolLaunchOffer; NULL without MPI. */
const struct toolWire *perfMpi(void);

#endif
