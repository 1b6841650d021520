/* Exact top-quota selection by radix histograms: see select.h.
 *
 * The threshold is found digit by digit, highest first (11, 11 and 10 bits, or
 * four times 8 when there are not so many keys): of the keys that share the
 * digits found so far, a histogram of the next digit tells in which bin the
 * quota-th largest key lies.  When a bin is needed whole, lower digits do not
 * matter and the search ends.  The cost does not depend on the quota, and the
 * result is that of a stable sort.
 *
 * Scores of one expert share few exponents, so successive keys hit the same
 * bin; several histograms side by side keep their additions independent.
 * A few dozen keys are cheaper to compare with each other. */
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
    float weight = weights ? weights[i] : 1;
    if (weight < 0) weight = -weight;
    keys[i] = lrmoeScoreKey(weight * gNorm[token[i]] * phiNorm[i]);
  }
}

enum {
  fewKeys = 32,     /* up to here every key is compared with every other */
  manyKeys = 32768, /* from here on a pass costs more than clearing bins */
  maxBins = 2048, /* of one digit; one more takes the keys of other prefixes */
  numHistograms = 4 /* side by side */
};

struct histograms {
  int64_t counts[numHistograms][maxBins + 1];
};

/* The quota-th largest key lies among those with key >> shift == prefix, of
 * which the `needed` largest are kept. */
struct threshold {
  uint64_t prefix;
  int shift;
  int64_t needed;
  int64_t available;
};

/* The bin of a key among those that begin with `first`'s digits. */
static inline uint64_t binOf(uint32_t key, int shift, uint64_t first,
                             int numBins) {
  uint64_t bin = ((uint64_t)key >> shift) - first;
  return bin < (uint64_t)numBins ? bin : (uint64_t)numBins;
}

/* Sums up in counts[0] how many keys of the prefix have each next digit. */
static void countDigits(int64_t numKeys, const uint32_t *keys,
                        const struct threshold *threshold, int bits,
                        struct histograms *histograms) {
  int shift = threshold->shift - bits;
  int numBins = 1 << bits;
  uint64_t first = threshold->prefix << bits;
  for (int h = 0; h < numHistograms; h++)
    memset(histograms->counts[h], 0, (size_t)(numBins + 1) * sizeof(int64_t));
  int64_t whole = numKeys - numKeys % numHistograms;
  for (int64_t i = 0; i < whole; i += numHistograms)
    for (int h = 0; h < numHistograms; h++)
      histograms->counts[h][binOf(keys[i + h], shift, first, numBins)]++;
  for (int64_t i = whole; i < numKeys; i++)
    histograms->counts[0][binOf(keys[i], shift, first, numBins)]++;
  for (int h = 1; h < numHistograms; h++)
    for (int bin = 0; bin < numBins; bin++)
      histograms->counts[0][bin] += histograms->counts[h][bin];
}

static void refine(int64_t numKeys, const uint32_t *keys, int bits,
                   struct threshold *threshold) {
  struct histograms histograms;
  countDigits(numKeys, keys, threshold, bits, &histograms);
  const int64_t *counts = histograms.counts[0];
  uint64_t digit = (1u << bits) - 1;
  int64_t needed = threshold->needed;
  while (counts[digit] < needed)
    needed -= counts[digit--];
  threshold->prefix = threshold->prefix << bits | digit;
  threshold->shift -= bits;
  threshold->needed = needed;
  threshold->available = counts[digit];
}

static void selectByDigits(int64_t numKeys, const uint32_t *keys, int64_t quota,
                           uint8_t *kept) {
  static const int shortDigits[] = {8, 8, 8, 8};
  static const int longDigits[] = {11, 11, 10};
  const int *bits = numKeys < manyKeys ? shortDigits : longDigits;
  int numDigits = numKeys < manyKeys ? 4 : 3;
  struct threshold threshold = {0, 32, quota, numKeys};
  for (int digit = 0; digit < numDigits; digit++)
    if (threshold.needed < threshold.available)
      refine(numKeys, keys, bits[digit], &threshold);
  /* All of the last bin, or its first ones if they are equal. */
  uint32_t least = (uint32_t)(threshold.prefix << threshold.shift);
  if (threshold.needed == threshold.available) {
    for (int64_t i = 0; i < numKeys; i++)
      kept[i] = keys[i] >= least;
    return;
  }
  for (int64_t i = 0; i < numKeys; i++)
    kept[i] = keys[i] > least;
  for (int64_t i = 0; threshold.needed > 0; i++)
    if (keys[i] == least) {
      kept[i] = 1;
      threshold.needed--;
    }
}

/* Keeps a key if fewer than `quota` others come before it. */
static void selectByRank(int64_t numKeys, const uint32_t *keys, int64_t quota,
                         uint8_t *kept) {
  for (int64_t i = 0; i < numKeys; i++) {
    uint32_t key = keys[i];
    uint32_t rank = 0;
    for (int64_t j = 0; j < i; j++)
      rank += keys[j] >= key;
    for (int64_t j = i + 1; j < numKeys; j++)
      rank += keys[j] > key;
    kept[i] = rank < quota;
  }
}

void lrmoeSelectTop(int64_t numPairs, const uint32_t *keys, int64_t quota,
                    uint8_t *kept) {
  if (quota == 0 || quota == numPairs)
    for (int64_t i = 0; i < numPairs; i++)
      kept[i] = quota > 0;
  else if (numPairs <= fewKeys)
    selectByRank(numPairs, keys, quota, kept);
  else
    selectByDigits(numPairs, keys, quota, kept);
}
