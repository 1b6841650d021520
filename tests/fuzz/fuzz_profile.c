/* Any bytes as a calibration profile: refused, with the topology as it was, or
 * figures that are written as a profile which gives them again. */
#include "base/alloc.h"
#include "fuzz/fuzz.h"
#include "topo/profile.h"

#include <string.h>

/* Four ranks of a machine with the key that the seeds have. */
static struct lrmoeTopology plainTopology(void) {
  struct lrmoeTopology topology;
  lrmoeTopologyDefaults(&topology);
  topology.numRanks = 4;
  topology.numHosts = topology.numDomains = topology.numCores = 1;
  topology.machineKey = 0x0123456789abcdef;
  return topology;
}

static void checkCrowd(const struct lrmoeTopology *topology) {
  int64_t ns = -1;
  const int64_t traffic[16] = {1, 2, 3, INT64_MAX, [15] = 1 << 20};
  int64_t room[32];
  if (!lrmoeTopologyHasCrowd(topology)) return;
  FUZZ_CHECK(lrmoeTopologyCrowdRoom(topology) <= 32);
  FUZZ_CHECK(lrmoeTopologyCrowdNs(topology, traffic, room, &ns) ==
             lrmoeSuccess);
  FUZZ_CHECK(ns >= 0);
}

static void checkFits(const struct lrmoeTopology *topology) {
  FUZZ_CHECK(topology->numFits >= 1 && topology->calibrated);
  for (int32_t i = 0; i < topology->numFits; i++) {
    const struct lrmoeFit *fit = &topology->fits[i];
    FUZZ_CHECK(fit->line.bytesPerSecond >= 1 && fit->line.latencyNs >= 0);
    FUZZ_CHECK(lrmoeTopologyFindFit(topology, fit->pattern, fit->linkClass) ==
               fit);
  }
}

static void checkAgain(const struct lrmoeTopology *topology) {
  struct lrmoeTopology again = plainTopology();
  char *text = NULL;
  FUZZ_CHECK(lrmoeProfileWrite(topology, &text) == lrmoeSuccess);
  FUZZ_CHECK(lrmoeProfileRead("again", text, strlen(text), &again) ==
             lrmoeSuccess);
  FUZZ_CHECK(again.numFits == topology->numFits);
  FUZZ_CHECK(memcmp(again.fits, topology->fits,
                    (size_t)again.numFits * sizeof *again.fits) == 0);
  free(text);
  lrmoeFree(again.fits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct lrmoeTopology topology = plainTopology();
  lrmoeResult_t result = lrmoeProfileRead(
      "fuzz", bytes ? (const char *)data : "", bytes, &topology);
  if (result == lrmoeSuccess) {
    checkFits(&topology);
    checkCrowd(&topology);
    checkAgain(&topology);
  } else {
    FUZZ_CHECK(result == lrmoeCorrupt || result == lrmoeUnsupported ||
               result == lrmoeInvalidArgument);
    FUZZ_CHECK(!topology.numFits && !topology.calibrated);
  }
  lrmoeFree(topology.fits);
  return 0;
}
