/* Ranks that a launcher made, one a process, maybe on many machines.
 *
 * Two kinds are known: mpirun, in programs that brought an MPI with
 * toolLaunchOffer, and torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK,
 * MASTER_ADDR, MASTER_PORT), which other launchers set too.  In the latter the
 * ranks meet at LRMOE_RENDEZVOUS=HOST:PORT, by default on MASTER_ADDR at the
 * port after MASTER_PORT, since torchrun listens on that one itself.
 *
 * Between ranks go only ids and results, before and after what is measured. */
#ifndef LRMOE_TOOLS_LAUNCH_H
#define LRMOE_TOOLS_LAUNCH_H

#include "tools/common/fail.h"

#include <stddef.h>

struct toolLaunch {
  int rank;
  int numRanks;
  int localRank; /* on its machine */
};

/* A way between the ranks.  Calls are collective, with equal sizes. */
struct toolWire {
  /* Whether this process was started for it. */
  int (*isHere)(void);
  enum toolExit (*start)(struct toolLaunch *launch, struct toolError *error);
  /* Rank 0's bytes to all. */
  enum toolExit (*spread)(void *data, size_t bytes, struct toolError *error);
  /* Everybody's bytes to rank 0, by rank; all is ignored elsewhere. */
  enum toolExit (*gather)(const void *mine, size_t bytes, void *all,
                          struct toolError *error);
  /* When the process exits.  A code that is not 0: the other ranks do not know
   * of it, and are ended. */
  void (*stop)(int code);
};

/* torchrun's environment, over TCP. */
const struct toolWire *toolWireStar(void);

/* Offers mpirun's, before the first toolLaunchFind; NULL offers none. */
void toolLaunchOffer(const struct toolWire *mpi);

/* What launched this process; *launch is NULL where nothing did and the program
 * makes its own ranks.  The first call starts the wire, and silences the
 * standard output of all ranks but 0. */
enum toolExit toolLaunchFind(const struct toolLaunch **launch,
                             struct toolError *error);

/* Whether another rank has the output, files included. */
int toolLaunchIsSilent(void);

/* Of a launched process. */
enum toolExit toolLaunchSpread(void *data, size_t bytes,
                               struct toolError *error);
enum toolExit toolLaunchGather(const void *mine, size_t bytes, void *all,
                               struct toolError *error);

/* All ranks know that the last run ended with this code.  A process that exits
 * otherwise ends the others with it. */
void toolLaunchAgreed(enum toolExit code);

#endif
