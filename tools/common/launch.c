/* Which launcher made this process: see launch.h. */
#include "tools/common/launch.h"

#include <stdio.h>
#include <stdlib.h>

static struct {
  const struct toolWire *mpi;  /* on offer */
  const struct toolWire *wire; /* that was started */
  struct toolLaunch launch;
  enum toolExit agreed; /* what all ranks know */
} launched;

void toolLaunchOffer(const struct toolWire *mpi) {
  launched.mpi = mpi;
}

/* torchrun's environment first: mpirun can pass it on, and means it then. */
static const struct toolWire *choose(struct toolError *error) {
  const struct toolWire *star = toolWireStar();
  if (star->isHere()) return star;
  if (launched.mpi && launched.mpi->isHere()) return launched.mpi;
  const char *size = getenv("OMPI_COMM_WORLD_SIZE");
  if (!size) size = getenv("PMI_SIZE");
  if (size && atoi(size) > 1)
    toolFail(error, toolNotInstalled,
             "mpirun started %.20s ranks, and this program was built without "
             "MPI: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
             size);
  return NULL;
}

/* All see the same results, and so agree on wrong ones. */
static void stop(int status, void *unused) {
  (void)unused;
  int isKnown = status == (int)launched.agreed || status == toolWrongData;
  launched.wire->stop(isKnown ? 0 : status);
}

enum toolExit toolLaunchFind(const struct toolLaunch **launch,
                             struct toolError *error) {
  *launch = NULL;
  if (!launched.wire) {
    error->text[0] = 0;
    const struct toolWire *wire = choose(error);
    if (!wire) return error->text[0] ? toolNotInstalled : toolGood;
    enum toolExit code = wire->start(&launched.launch, error);
    if (code != toolGood) return code;
    launched.wire = wire;
    if (on_exit(stop, NULL))
      return toolFail(error, toolRunFailed, "out of memory");
    if (launched.launch.rank && !freopen("/dev/null", "w", stdout))
      return toolFail(error, toolRunFailed, "/dev/null cannot be opened");
  }
  *launch = &launched.launch;
  return toolGood;
}

enum toolExit toolLaunchSpread(void *data, size_t bytes,
                               struct toolError *error) {
  return launched.wire->spread(data, bytes, error);
}

enum toolExit toolLaunchGather(const void *mine, size_t bytes, void *all,
                               struct toolError *error) {
  return launched.wire->gather(mine, bytes, all, error);
}

void toolLaunchAgreed(enum toolExit code) {
  launched.agreed = code;
}

int toolLaunchIsSilent(void) {
  return launched.wire && launched.launch.rank;
}
