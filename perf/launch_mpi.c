/* Ranks that mpirun made: see tools/common/launch.h. */
#include "perf/launch_mpi.h"

#include <mpi.h>
#include <stdlib.h>

static int isHere(void) {
  return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE");
}

/* Ranks of one machine are those that can share memory. */
static int findLocalRank(void) {
  MPI_Comm local;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                      &local);
  MPI_Comm_rank(local, &rank);
  MPI_Comm_free(&local);
  return rank;
}

/* Errors of later calls end all ranks: MPI's default. */
static enum toolExit start(struct toolLaunch *launch, struct toolError *error) {
  if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
    return toolFail(error, toolRunFailed, "MPI_Init failed");
  MPI_Comm_rank(MPI_COMM_WORLD, &launch->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &launch->numRanks);
  launch->localRank = findLocalRank();
  return toolGood;
}

static enum toolExit spread(void *data, size_t bytes, struct toolError *error) {
  (void)error;
  MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  return toolGood;
}

static enum toolExit gather(const void *mine, size_t bytes, void *all,
                            struct toolError *error) {
  (void)error;
  MPI_Gather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, 0,
             MPI_COMM_WORLD);
  return toolGood;
}

static void stop(int code) {
  if (code)
    MPI_Abort(MPI_COMM_WORLD, code);
  else
    MPI_Finalize();
}

const struct toolWire *perfMpi(void) {
  static const struct toolWire wire = {isHere, start, spread, gather, stop};
  return &wire;
}
