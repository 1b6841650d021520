/* The rival where no MPI was found at build time. */
#include "perf/alltoallv.h"

int rivalIsBuilt(void) {
  return 0;
}

int rivalIsInside(void) {
  return 0;
}

enum toolExit rivalLaunch(int numRanks, char **argv, struct toolError *error) {
  (void)numRanks;
  (void)argv;
  return toolFail(error, toolNotInstalled, "built without MPI");
}

enum toolExit rivalStart(struct toolRank *self, struct toolError *error) {
  (void)self;
  return toolFail(error, toolNotInstalled, "built without MPI");
}

void rivalStop(void) {
}

void rivalAlltoallv(const void *send, const int *sendCounts,
                    const int *sendOffsets, void *recv, const int *recvCounts,
                    const int *recvOffsets) {
  (void)send;
  (void)sendCounts;
  (void)sendOffsets;
  (void)recv;
  (void)recvCounts;
  (void)recvOffsets;
}
