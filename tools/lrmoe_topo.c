/* lrmoe-topo: what the library makes of a machine: its devices and links, what
 * each rank reaches at which rate, what ranks share, and what was guessed.
 *
 * The machine is a recorded file (hwloc's or NCCL's XML, told by its content),
 * this machine, or a description in one line; --copies joins several of it. */
#include "tools/common/args.h"
#include "tools/topo/topo.h"

static struct {
  int isLive;
  int isMemory;
  int isCheck;
  const char *synthetic;
  const char *profile;
  const char *svg;
  int64_t numRanks;
  int64_t numCopies;
  int order;
} options = {.numCopies = 1};

static const char *const orders[] = {"auto", "bus", "index", NULL};

static const struct toolArg args[] = {
    {.name = "live",
     .kind = toolArgFlag,
     .value = &options.isLive,
     .help = "This machine, in place of FILE."},
    {.name = "memory",
     .kind = toolArgFlag,
     .value = &options.isMemory,
     .help = "This machine's memory: --ranks processes on its cores."},
    {.name = "synthetic",
     .kind = toolArgText,
     .value = &options.synthetic,
     .meta = "TEXT",
     .help = "A machine described in one line, in place of FILE."},
    {.name = "copies",
     .kind = toolArgInt,
     .value = &options.numCopies,
     .minimum = 1,
     .maximum = 1 << 20,
     .help = "So many hosts like it, joined by their NICs."},
    {.name = "ranks",
     .letter = 'g',
     .kind = toolArgInt,
     .value = &options.numRanks,
     .minimum = 0,
     .maximum = 1 << 20,
     .help = "Ranks; 0: one per device."},
    {.name = "order",
     .kind = toolArgEnum,
     .value = &options.order,
     .names = orders,
     .help = "Which rank has which device."},
    {.name = "profile",
     .kind = toolArgText,
     .value = &options.profile,
     .meta = "FILE",
     .help = "Calibration profile of that machine."},
    {.name = "svg",
     .kind = toolArgText,
     .value = &options.svg,
     .meta = "FILE",
     .help = "Draws the tree and the matrix."},
    {.name = "check",
     .kind = toolArgFlag,
     .value = &options.isCheck,
     .help = "Prints nothing but the reason why it is no machine."},
    {0}};

static struct toolProgram program = {
    .name = "lrmoe-topo",
    .summary = "Shows the topology that the library makes of a machine.",
    .args = args,
    .operandMeta = "FILE"};

static enum toolExit failCall(lrmoeResult_t result, struct toolError *error) {
  return toolFail(error,
                  result == lrmoeOutOfMemory ? toolRunFailed : toolBadInput,
                  "%s", lrmoeGetLastError());
}

static enum toolExit openMemory(struct topoShown *shown,
                                struct toolError *error) {
  if (!options.numRanks)
    return toolFail(error, toolBadInput, "--memory needs --ranks");
  lrmoeResult_t result =
      lrmoeTopologyCreate((int)options.numRanks, &shown->topology);
  if (result == lrmoeSuccess && options.profile)
    result = lrmoeTopologyLoadProfile(shown->topology, options.profile);
  shown->source = "this machine's memory";
  return result == lrmoeSuccess ? toolGood : failCall(result, error);
}

static enum toolExit openMachine(struct topoShown *shown,
                                 struct toolError *error) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  lrmoeTopologyConfig_t config = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  source.copies = (int32_t)options.numCopies;
  source.text = options.synthetic ? options.synthetic : program.operand;
  if (options.synthetic) source.kind = lrmoeSourceSynthetic;
  if (options.isLive) source.kind = lrmoeSourceLive;
  config.sources = &source;
  config.numSources = 1;
  config.profile = options.profile;
  config.numRanks = (int32_t)options.numRanks;
  config.rankOrder = (lrmoeRankOrder_t)options.order;
  shown->source = options.isLive ? "this machine" : source.text;
  lrmoeResult_t result = lrmoeTopologyOpen(&config, &shown->topology);
  return result == lrmoeSuccess ? toolGood : failCall(result, error);
}

static enum toolExit openShown(struct topoShown *shown,
                               struct toolError *error) {
  int numSources = options.isLive + options.isMemory +
                   (options.synthetic != NULL) + (program.operand != NULL);
  if (numSources != 1)
    return toolFail(error, toolBadInput,
                    "one of FILE, --live, --memory and --synthetic is needed, "
                    "%d are given (try --help)",
                    numSources);
  enum toolExit code =
      options.isMemory ? openMemory(shown, error) : openMachine(shown, error);
  if (code != toolGood) return code;
  shown->info = (lrmoeTopologyInfo_t)LRMOE_TOPOLOGY_INFO_INITIALIZER;
  lrmoeResult_t result = lrmoeTopologyGetInfo(shown->topology, &shown->info);
  return result == lrmoeSuccess ? toolGood : failCall(result, error);
}

static enum toolExit show(const struct topoShown *shown, struct toolJson *json,
                          struct toolError *error) {
  topoPutJson(shown, json);
  enum toolExit code = topoDraw(shown, options.svg, error);
  if (code != toolGood || options.isCheck) return code;
  return topoPrint(shown, error);
}

static enum toolExit run(struct toolError *error) {
  struct toolJson *json = NULL;
  struct topoShown shown = {0};
  enum toolExit code = toolJsonBegin(&program, &json, error);
  if (code == toolGood) code = openShown(&shown, error);
  if (code == toolGood) code = show(&shown, json, error);
  lrmoeTopologyDestroy(shown.topology);
  if (code == toolGood) return toolJsonEnd(json, error);
  toolJsonDrop(json);
  return code;
}

int main(int argc, char **argv) {
  struct toolError error = {""};
  toolArgsStart(&program, argc, argv);
  enum toolExit code = run(&error);
  return code == toolGood ? 0 : (int)toolComplain(program.name, code, &error);
}
