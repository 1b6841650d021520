/* The rival: MPI_Alltoallv of the MPI that was found at build time, with its
 * defaults.
 *
 * Both ways have to be timed in one set of processes, and only mpirun can make
 * MPI's: so the program starts itself again under mpirun, and its ranks join
 * LRMoE with an id that rank 0 broadcasts. */
#include "perf/alltoallv.h"
#include "perf/launch_mpi.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rivalIsBuilt(void) {
  return 1;
}

int rivalIsInside(void) {
  return perfMpi()->isHere();
}

enum toolExit rivalLaunch(int numRanks, char **argv, struct toolError *error) {
  /* Root is refused and more ranks than cores are refused, unless asked for;
   * neither changes how messages travel. */
  char count[16];
  snprintf(count, sizeof count, "%d", numRanks);
  char *fixed[] = {"mpirun", "--allow-run-as-root", "--oversubscribe", "-np",
                   count,    "/proc/self/exe"};
  size_t numFixed = sizeof fixed / sizeof *fixed, numArgs = 0;
  while (argv[numArgs])
    numArgs++;
  char **command = calloc(numFixed + numArgs + 1, sizeof *command);
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (!command || length < 0) {
    free(command);
    return toolFail(error, toolRunFailed, "cannot start again under mpirun");
  }
  path[length] = 0;
  fixed[numFixed - 1] = path;
  memcpy(command, fixed, sizeof fixed);
  for (size_t i = 1; i < numArgs; i++)
    command[numFixed + i - 1] = argv[i];
  execvp(command[0], command);
  free(command);
  return toolFail(error, toolNotInstalled,
                  "mpirun: %s (--no-mpi measures without it)", strerror(errno));
}

enum toolExit rivalStart(struct toolRank *self, struct toolError *error) {
  struct toolLaunch launch;
  enum toolExit code = perfMpi()->start(&launch, error);
  if (code != toolGood) return code;
  self->rank = launch.rank;
  self->numRanks = launch.numRanks;
  int isMade = self->rank || lrmoeGetUniqueId(&self->id) == lrmoeSuccess;
  perfMpi()->spread(&self->id, sizeof self->id, error);
  return isMade ? toolGood
                : toolFail(error, toolRunFailed, "%s", lrmoeGetLastError());
}

void rivalStop(void) {
  perfMpi()->stop(0);
}

void rivalAlltoallv(const void *send, const int *sendCounts,
                    const int *sendOffsets, void *recv, const int *recvCounts,
                    const int *recvOffsets) {
  /* Errors end the program: MPI's default. */
  MPI_Alltoallv(send, sendCounts, sendOffsets, MPI_BYTE, recv, recvCounts,
                recvOffsets, MPI_BYTE, MPI_COMM_WORLD);
}
