/* Cases: see oracle.h. */
#include "oracle.h"

struct oracleCase oraclePlainCase(void) {
  struct oracleCase c = {.seed = 11,
                         .numRanks = 3,
                         .numTokens = {17, 9, 12},
                         .numExperts = 7,
                         .topk = 3,
                         .hidden = 40,
                         .ffn = 24,
                         .type = lrmoeBfloat16,
                         .activation = lrmoeSwiglu,
                         .retainPpm = 700000,
                         .hotExpert = -1,
                         .unusedExpert = -1};
  c.backward = (lrmoeBackwardConfig_t)LRMOE_BACKWARD_CONFIG_INITIALIZER;
  return c;
}

int64_t oraclePick(uint64_t seed, uint64_t stream, int64_t low, int64_t high) {
  return low +
         (int64_t)(oracleUniform(seed, stream, 7) * (double)(high - low + 1));
}

struct oracleCase oracleRandomCase(uint64_t seed) {
  static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                          lrmoeFloat32};
  static const int64_t retains[] = {0, 100000, 500000, 700000, 999999, 1000000};
  struct oracleCase c = {.seed = seed, .hotExpert = -1, .unusedExpert = -1};
  c.numRanks = (int)oraclePick(seed, 20, 1, 9);
  for (int r = 0; r < c.numRanks; r++)
    c.numTokens[r] = oraclePick(seed, 30 + (uint64_t)r, 0, 24);
  c.numExperts = (int32_t)oraclePick(seed, 21, 1, 12);
  c.topk =
      (int32_t)oraclePick(seed, 22, 1, c.numExperts < 6 ? c.numExperts : 6);
  c.hidden = 8 * oraclePick(seed, 23, 1, 6);
  c.ffn = 8 * oraclePick(seed, 24, 1, 4);
  c.type = types[oraclePick(seed, 25, 0, 2)];
  c.activation = (lrmoeActivation_t)oraclePick(seed, 26, 0, 1);
  c.retainPpm = retains[oraclePick(seed, 27, 0, 5)];
  c.backward = (lrmoeBackwardConfig_t)LRMOE_BACKWARD_CONFIG_INITIALIZER;
  c.backward.metric = (lrmoeMetric_t)oraclePick(seed, 28, 0, 4);
  c.backward.scope = (lrmoeScope_t)(oraclePick(seed, 29, 0, 5) % 3);
  c.backward.wire = (lrmoeWire_t)oraclePick(seed, 40, 0, 2);
  c.backward.seed = seed;
  c.isFused = (int)oraclePick(seed, 41, 0, 1);
  c.noneShare = 0.3 * (double)oraclePick(seed, 42, 0, 1);
  c.isHomesMixed = (int)oraclePick(seed, 43, 0, 1);
  c.numSlots = c.numRanks > 1 ? (int)oraclePick(seed, 44, 0, 2) : 0;
  c.convention = (lrmoeWeightConvention_t)oraclePick(seed, 45, 0, 1);
  c.savedState = (lrmoeSavedState_t)oraclePick(seed, 46, 0, 1);
  c.routerGrad = (lrmoeRouterGrad_t)oraclePick(seed, 47, 0, 2);
  c.gatherRanks = oraclePick(seed, 48, 0, 1) ? 64 : 1;
  c.ranksPerNode = (int)oraclePick(seed, 49, 0, 3);
  if (c.ranksPerNode && oraclePick(seed, 50, 0, 1))
    c.backward.wire = lrmoeWireNode;
  c.overlapsReturn = (int)oraclePick(seed, 51, 0, 1);
  c.packsX = (int)oraclePick(seed, 52, 0, 1);
  c.forwardWire = oraclePick(seed, 53, 0, 1) ? lrmoeWireNode : lrmoeWireDedup;
  if (c.routerGrad == lrmoeRouterGradExecutor) {
    c.savedState = lrmoeSavedFull;
    if (c.backward.wire != lrmoeWireNode) c.backward.wire = lrmoeWireDedup;
  }
  return c;
}
