/* Capacity: see capacity.h.  Counts are exact integers; ratios and times are
 * what people read, in double. */
#include "tools/plan/capacity.h"

#include <math.h>

static int64_t minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* CF * mu, rounded up; products like 1.1 * 20 are not to be one more for what
 * a double cannot hold. */
static int64_t findCapacity(const struct planCapacityInput *input,
                            int64_t pairs) {
  double exact = input->factor * (double)pairs / input->numExperts;
  double capacity = ceil(exact * (1 - 1e-12));
  return capacity < 0x1p62 ? (int64_t)capacity : INT64_C(1) << 62;
}

static double findAuxLoss(const struct planCapacityInput *input,
                          int64_t pairs) {
  double sum = 0;
  for (int32_t e = 0; e < input->numExperts; e++) {
    double f = (double)input->counts[e] / (double)pairs;
    sum += f * (input->importance ? input->importance[e] : f);
  }
  return input->numExperts * sum;
}

/* Experts and kept pairs of the device that has the most of them. */
static void findBusiest(const struct planCapacityInput *input, int64_t capacity,
                        int64_t *experts, int64_t *kept) {
  *experts = *kept = 0;
  int64_t numHere = 0, keptHere = 0;
  for (int64_t e = 0; e < input->numExperts; e++) {
    int64_t rank = e * input->numRanks / input->numExperts;
    int64_t before = e ? (e - 1) * input->numRanks / input->numExperts : rank;
    if (rank != before) numHere = keptHere = 0;
    numHere++;
    keptHere += minimum(input->counts[e], capacity);
    if (numHere > *experts) *experts = numHere;
    if (keptHere > *kept) *kept = keptHere;
  }
}

void planCapacityMake(const struct planCapacityInput *input,
                      struct planCapacity *capacity) {
  int64_t pairs = 0, carried = 0, experts, kept;
  for (int32_t e = 0; e < input->numExperts; e++)
    pairs += input->counts[e];
  int64_t most = findCapacity(input, pairs);
  for (int32_t e = 0; e < input->numExperts; e++)
    carried += minimum(input->counts[e], most);
  findBusiest(input, most, &experts, &kept);
  double slots = (double)most * input->numExperts;
  double rows = (double)most * (double)experts;
  double others = (input->numRanks - 1.0) / input->numRanks;
  *capacity = (struct planCapacity){
      .capacity = most,
      .drops = pairs - carried,
      .dropRate = pairs ? (double)(pairs - carried) / (double)pairs : 0,
      .utilisation = slots > 0 ? (double)carried / slots : 1,
      .auxLoss = pairs ? findAuxLoss(input, pairs) : 1,
      .commUs = 2e6 * others * rows * input->rowBytes / input->bytesPerSecond,
      .computeUs =
          1e6 * (double)kept * input->pairFlops / input->flopsPerSecond};
}
