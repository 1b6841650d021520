/* lrmoe-plan's command line: see plan.h. */
#include "tools/plan/plan.h"

static const char *const typeNames[] = {"bf16", "fp16", "fp32", NULL};
static const char *const activationNames[] = {"swiglu", "gelu", NULL};
static const char *const routerGradNames[] = {"kept", "owner", "executor",
                                              NULL};
static const char *const savedNames[] = {"full", "none", NULL};

struct planSettings planSettings = {
    .trace = {.routing = "lognormal:1",
              .step = -1,
              .layer = -1,
              .numLayers = 1},
    .numRanks = 8,
    .topk = 8,
    .seed = 1,
    .numSlots = 1,
    .numRounds = 3,
    .retain = 1,
    .windowWork = 1 << 26,
    .copies = 1,
    .gigabytesPerSecond = 50,
    .teraflops = 400,
    .policy = "lrmoe",
    .quota = lrmoeQuotaUniform,
};

#define INTEGER(field, low, high) TOOL_INTEGER(planSettings.field, low, high)
#define REAL(field, low, high)    TOOL_REAL(planSettings.field, low, high)
#define TEXT(field)               TOOL_TEXT(planSettings.field)
#define ENUM(field, list)         TOOL_ENUM(planSettings.field, list)

const struct toolArg planArgs[] = {
    {.name = "load",
     TEXT(trace.load),
     .meta = "FILE",
     .help = "Expert loads: CSV with layer,expert,count, optional step, rank, "
             "importance."},
    {.name = "routing",
     TEXT(trace.routing),
     .meta = "KIND",
     .help = "Without --load: balanced, lognormal:S or zipf:S."},
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 1, 1024),
     .help = "Ranks."},
    {.name = "slots",
     INTEGER(numSlots, 0, 1024),
     .help = "Spare slots for replicas per rank."},
    {.name = "policy",
     TEXT(policy),
     .meta = "NAME[,...]",
     .help = "fixed, lrmoe, proportional, eplb, quota, shadow, flex, permute, "
             "relayout, topo, balanced, local, or all."},
    {.name = "quota",
     ENUM(quota, toolQuotaNames),
     .help = "How many pairs of each expert backward keeps."},
    {.name = "retain",
     REAL(retain, 0, 1),
     .help = "Retention; with a limit below, the most of it."},
    {.name = "memory-gib",
     REAL(memoryGib, 0, 1e6),
     .help = "Memory of a rank for this layer: the largest retention that fits "
             "is taken; 0: no limit."},
    {.name = "window-us",
     REAL(windowUs, 0, 1e9),
     .help =
         "Time that backward's rows may take on the wire, out and home, the "
         "same way; 0: no limit.  Rows home are hidden beside weight "
         "gradients where the layer has overlapsReturn."},
    {.name = "window-work",
     .kind = toolArgInt,
     .value = &planSettings.windowWork,
     .maximum = 9e15,
     .help = "Steps of the search for more under a window; 0: none."},
    {.name = "grid",
     .kind = toolArgFlag,
     .value = &planSettings.isGrid,
     .help = "With these limits: retention 1, 0.9, 0.8 or 0.7 only."},
    {.name = "min-retain",
     REAL(minRetain, 0, 1),
     .help = "Least retention of every expert."},
    {.name = "topology",
     TEXT(topology),
     .meta = "FILE",
     .help = "Machine of the ranks (hwloc or NCCL XML); without: ranks that "
             "share this machine's memory."},
    {.name = "copies",
     INTEGER(copies, 1, 1 << 16),
     .help = "So many hosts like the topology's."},
    {.name = "experts",
     INTEGER(numExperts, 0, 1 << 20),
     .help = "Experts; 0: 64, or as many as --load has."},
    {.name = "topk",
     .letter = 'k',
     INTEGER(topk, 1, 64),
     .help = "Routing slots per token."},
    {.name = "tokens",
     .letter = 'b',
     INTEGER(trace.numTokens, 0, 1 << 30),
     .help = "Tokens of a step over all ranks; a --load is scaled to them; 0: "
             "65536, or the --load as it is."},
    {.name = "hidden",
     INTEGER(hidden, 0, 1 << 20),
     .help = "Hidden size; 0: no model of memory and time."},
    {.name = "ffn",
     INTEGER(ffn, 0, 1 << 20),
     .help = "Expert intermediate size; 0: four times --hidden."},
    {.name = "dtype",
     .letter = 'd',
     ENUM(type, typeNames),
     .help = "Type of rows and weights."},
    {.name = "activation",
     ENUM(activation, activationNames),
     .help = "Activation of the experts."},
    {.name = "router-grad",
     ENUM(routerGrad, routerGradNames),
     .help = "Router gradients, which cost memory."},
    {.name = "saved",
     ENUM(savedState, savedNames),
     .help = "State between forward and backward."},
    {.name = "relays",
     .kind = toolArgFlag,
     .value = &planSettings.hasRelays,
     .help = "Charge what relays hold, which hand rows on between hosts "
             "(lrmoeWireNode)."},
    {.name = "tolerance",
     REAL(tolerance, 0, 1),
     .help = "Peaks up to 1 + this over the mean are as good; fewer replicas "
             "win."},
    {.name = "min-rows",
     INTEGER(minReplicaPairs, 0, 9e15),
     .help = "Least forward pairs of a replica."},
    {.name = "max-replicas",
     INTEGER(maxReplicas, 0, 1 << 20),
     .help = "Most replicas of a layer; 0: no limit."},
    {.name = "balanced",
     REAL(balanced, 0, 10),
     .help = "Keep the last step's instances while their peak is up to 1 + "
             "this over the mean."},
    {.name = "hysteresis",
     REAL(hysteresis, 0, 1),
     .help = "And unless new ones lower the peak by more than this part."},
    {.name = "history",
     REAL(history, 0, 1),
     .help = "Place by the moving average of earlier steps, in which the last "
             "one weighs this; 0: by this step's loads."},
    {.name = "capacity-factor",
     REAL(capacityFactor, 0, 1e6),
     .help = "What capacity factor C drops, wastes and costs, instead of "
             "plans; with --quota capacity, its factor."},
    {.name = "gbps",
     REAL(gigabytesPerSecond, 1e-3, 1e6),
     .meta = "GB/S",
     .help = "Bandwidth of a rank, for --capacity-factor."},
    {.name = "tflops",
     REAL(teraflops, 1e-3, 1e6),
     .meta = "TFLOP/S",
     .help = "Realised speed of a rank, for --capacity-factor."},
    {.name = "svg",
     TEXT(svg),
     .meta = "FILE",
     .help = "Draw load per rank before and after."},
    {.name = "step",
     INTEGER(trace.step, -1, 9e15),
     .help = "Step of the CSV; -1: all."},
    {.name = "layer",
     INTEGER(trace.layer, -1, 9e15),
     .help = "Layer of the CSV; -1: all."},
    {.name = "layers",
     INTEGER(trace.numLayers, 1, 1 << 20),
     .help = "Layers to make without --load."},
    {.name = "iters",
     .letter = 'n',
     INTEGER(numRounds, 1, toolMaxPlanRounds),
     .help = "Times that each plan is made; its time is their median."},
    {.name = "seed", INTEGER(seed, 0, 9e15), .help = "Of made loads."},
    {0}};

int planWantsCapacity(void) {
  return planSettings.capacityFactor > 0 &&
         planSettings.quota != lrmoeQuotaCapacity;
}

static enum toolExit checkModel(struct toolError *error) {
  const struct planSettings *s = &planSettings;
  int isLimited = s->memoryGib > 0 || s->windowUs > 0;
  if (isLimited && !s->hidden)
    return toolFail(error, toolBadInput,
                    "--memory-gib and --window-us need --hidden and --ffn");
  if (s->hasRelays && !s->hidden)
    return toolFail(error, toolBadInput, "--relays needs --hidden and --ffn");
  if (s->isGrid && !isLimited)
    return toolFail(error, toolBadInput,
                    "--grid needs --memory-gib or --window-us");
  if (s->minRetain > s->retain)
    return toolFail(error, toolBadInput, "--min-retain %g is over --retain %g",
                    s->minRetain, s->retain);
  if (s->quota == lrmoeQuotaCapacity && s->capacityFactor == 0)
    return toolFail(error, toolBadInput,
                    "--quota capacity needs --capacity-factor");
  if (planWantsCapacity() && s->svg)
    return toolFail(error, toolBadInput,
                    "--svg draws plans, and --capacity-factor makes none");
  return toolGood;
}

enum toolExit planSettingsFinish(struct toolError *error) {
  struct planSettings *s = &planSettings;
  enum toolExit code = checkModel(error);
  if (code == toolGood)
    code = toolPoliciesRead(s->policy, "policy", s->policies, &s->numPolicies,
                            error);
  if (code) return code;
  if (!s->trace.load && !s->numExperts) s->numExperts = 64;
  if (!s->trace.load && !s->trace.numTokens) s->trace.numTokens = 65536;
  if (!s->ffn) s->ffn = 4 * s->hidden;
  s->trace.numRanks = (int32_t)s->numRanks;
  s->trace.numExperts = (int32_t)s->numExperts;
  s->trace.topk = (int32_t)s->topk;
  s->trace.seed = (uint64_t)s->seed;
  return toolGood;
}
