/* NCCL's environment plugin: parameters of sends and receives that the topology
 * suggests, for those that the user has not set.
 *
 * There is one so far.  A message to another host goes by as many channels as
 * NCCL_NCHANNELS_PER_NET_PEER says, and a channel uses one port: with fewer
 * channels than ports that carry the rank's traffic some ports idle while a
 * single peer is served.  So it is the number of ports, rounded up to a power
 * of two as NCCL does.  Where ranks differ in ports or have one there is no
 * suggestion: NCCL needs the same value everywhere, and hosts that are not
 * alike must be described by one LRMOE_TOPOLOGY on all of them.
 *
 * NCCL asks this plugin instead of the environment, for every variable. */
#include "plugin/nccl/env.h"

#include "base/log.h"
#include "base/param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char channels[12]; /* "": no suggestion */

static const char channelsName[] = "NCCL_NCHANNELS_PER_NET_PEER";

static lrmoeResult_t openTopology(lrmoeTopology_t *topology) {
  const char *path = lrmoeParamGetText(lrmoeParamTopology);
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  if (*path) {
    source.text = path;
    config.sources = &source;
    config.numSources = 1;
  }
  return lrmoeTopologyOpen(&config, topology);
}

/* Ports of each rank, 0 if they differ. */
static int32_t countPorts(lrmoeTopology_t topology) {
  lrmoeTopologyInfo_t info = LRMOE_TOPOLOGY_INFO_INITIALIZER;
  int32_t numPorts = 0;
  if (lrmoeTopologyGetInfo(topology, &info) != lrmoeSuccess) return 0;
  for (int rank = 0; rank < info.numRanks; rank++) {
    lrmoeTopologyRank_t view = LRMOE_TOPOLOGY_RANK_INITIALIZER;
    if (lrmoeTopologyGetRank(topology, rank, &view) != lrmoeSuccess) return 0;
    if (rank && view.numPorts != numPorts) return 0;
    numPorts = view.numPorts;
  }
  return numPorts;
}

static void suggest(int32_t numPorts) {
  enum {
    mostChannels = 32
  };
  int32_t count = 1;
  while (count < numPorts && count < mostChannels)
    count *= 2;
  if (count > 1) snprintf(channels, sizeof channels, "%d", count);
}

/* Never fails: without a topology NCCL goes by its own defaults. */
static lrmoeResult_t init(uint8_t major, uint8_t minor, uint8_t patch,
                          const char *suffix) {
  lrmoeTopology_t topology = NULL;
  (void)suffix;
  *channels = 0;
  if (openTopology(&topology) == lrmoeSuccess) {
    suggest(countPorts(topology));
    lrmoeTopologyDestroy(topology);
  } else {
    lrmoeLog(lrmoeLogWarn, "env plugin: no suggestions: %s",
             lrmoeGetLastError());
  }
  lrmoeLog(lrmoeLogInfo, "env plugin: NCCL %d.%d.%d: %s=%s", major, minor,
           patch, channelsName, *channels ? channels : "(NCCL's default)");
  return lrmoeSuccess;
}

static lrmoeResult_t finalize(void) {
  *channels = 0;
  return lrmoeSuccess;
}

/* What the user says goes, an empty value too. */
static const char *getEnv(const char *name) {
  const char *given = getenv(name);
  if (given || !*channels || strcmp(name, channelsName) != 0) return given;
  return channels;
}

__attribute__((visibility("default")))
const struct lrmoeNcclEnvPlugin ncclEnvPlugin_v1 = {"lrmoe", init, finalize,
                                                    getEnv};
