/* Random numbers: see workload.h. */
#include "tools/common/workload.h"

#include <math.h>

static const uint64_t goldenGamma = 0x9e3779b97f4a7c15u;

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

struct toolRandom toolRandomMake(uint64_t seed, uint64_t stream) {
  return (struct toolRandom){mix(mix(seed + goldenGamma) ^ mix(stream))};
}

uint64_t toolRandomNext(struct toolRandom *random) {
  return mix(random->state += goldenGamma);
}

/* High half of a 128-bit product; its bias is below bound / 2^64. */
uint64_t toolRandomBelow(struct toolRandom *random, uint64_t bound) {
  __extension__ typedef unsigned __int128 wide;
  return (uint64_t)(((wide)toolRandomNext(random) * bound) >> 64);
}

double toolRandomUniform(struct toolRandom *random) {
  return ((double)(toolRandomNext(random) >> 12) + 0.5) * 0x1p-52;
}

double toolRandomNormal(struct toolRandom *random) {
  const double twoPi = 6.283185307179586;
  double radius = sqrt(-2 * log(toolRandomUniform(random)));
  return radius * cos(twoPi * toolRandomUniform(random));
}
