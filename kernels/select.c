/* Exact top-quota selection by radix histograms: see select.h.
 *
 * The threshold is found digit by digit (11, 11, 10 bits, highest first): of
 * the keys that share the digits found so far, a histogram of the next digit
 * tells in which bin the quota-th largest key lies.  When a bin is needed
 * whole, lower digits do not matter and the search ends.  The cost does not
 * depend on the quota, and the result is that of a stable sort. */
#include "kernels/select.h"

#include <string.h>

uint32_t lrmoeScoreKey(float score) {
  uint32_t bits;
  memcpy(&bits, &score, sizeof bits);
  bits &= 0x7fffffff;
  return bits >= 0x7f800000 ? LRMOE_KEY_NON_FINITE : bits;
}

void lrmoeScoreLrm(int64_t numPairs, const float *weights, const int64_t *token,
                   const float *gNorm, const float *phiNorm, uint32_t *keys) {
  for (int64_t i = 0; i < numPairs; i++) {
    float weight = weights[i] < 0 ? -weights[i] : weights[i];
    keys[i] = lrmoeScoreKey(weight * gNorm[token[i]] * phiNorm[i]);
  }
}

enum {
  maxBins = 2048
};

/* The quota-th largest key lies among those with key >> shift == prefix, of
 * which the `needed` largest are kept. */
struct threshold {
  uint64_t prefix;
  int shift;
  int64_t needed;
  int64_t available;
};

/* counts[d]: keys below the threshold's prefix whose next digit is d. */
static void countDigits(int64_t numKeys, const uint32_t *keys,
                        const struct threshold *threshold, int bits,
                        int64_t *counts) {
  int shift = threshold->shift - bits;
  uint32_t mask = (1u << bits) - 1;
  memset(counts, 0, (maxBins + 1) * sizeof *counts);
  for (int64_t i = 0; i < numKeys; i++) {
    uint64_t key = keys[i];
    uint32_t digit = (uint32_t)(key >> shift) & mask;
    /* Keys with another prefix go to a bin of their own: no branch. */
    counts[key >> threshold->shift == threshold->prefix ? digit : maxBins]++;
  }
}

static void refine(int64_t numKeys, const uint32_t *keys, int bits,
                   struct threshold *threshold) {
  int64_t counts[maxBins + 1];
  countDigits(numKeys, keys, threshold, bits, counts);
  uint64_t digit = (1u << bits) - 1;
  int64_t needed = threshold->needed;
  while (counts[digit] < needed)
    needed -= counts[digit--];
  threshold->prefix = threshold->prefix << bits | digit;
  threshold->shift -= bits;
  threshold->needed = needed;
  threshold->available = counts[digit];
}

void lrmoeSelectTop(int64_t numPairs, const uint32_t *keys, int64_t quota,
                    uint8_t *kept) {
  static const int digitBits[] = {11, 11, 10};
  if (quota == 0 || quota == numPairs) {
    for (int64_t i = 0; i < numPairs; i++)
      kept[i] = quota > 0;
    return;
  }
  struct threshold threshold = {0, 32, quota, numPairs};
  for (int digit = 0; digit < 3; digit++) {
    refine(numPairs, keys, digitBits[digit], &threshold);
    if (threshold.needed == threshold.available) break;
  }
  /* All of the last bin, or its first ones if they are equal. */
  uint32_t least = (uint32_t)(threshold.prefix << threshold.shift);
  if (threshold.needed == threshold.available) {
    for (int64_t i = 0; i < numPairs; i++)
      kept[i] = keys[i] >= least;
    return;
  }
  for (int64_t i = 0; i < numPairs; i++)
    kept[i] = keys[i] > least;
  for (int64_t i = 0; threshold.needed > 0; i++)
    if (keys[i] == least) {
      kept[i] = 1;
      threshold.needed--;
    }
}
