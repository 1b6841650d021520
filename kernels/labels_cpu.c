/* Labels on the CPU, pair by pair: see labels.h. */
#include "kernels/labels.h"

/* Kept, and not yet given to an instance. */
enum {
  notPlaced = 255
};

/* One expert while its pairs are labelled. */
struct share {
  const struct lrmoeLabels *args;
  int64_t expert;
  int64_t first; /* of its instances */
  int64_t count;
  int64_t *room; /* [count] how many more may come */
};

static uint8_t labelOf(int64_t i) {
  return (uint8_t)(lrmoeLabelMoved + i);
}

/* The first X kept pairs of instance i stay. */
static void stay(const struct share *share, int64_t i) {
  const struct lrmoeLabels *args = share->args;
  const int64_t *cells = args->instanceCells + share->first + i;
  int64_t left = args->shares[share->first + i];
  int64_t wanted = left;
  uint8_t label = args->comesWithX ? labelOf(i) : lrmoeLabelStayed;
  for (int64_t c = cells[0]; c < cells[1]; c++) {
    uint8_t *flags = args->flags + args->cellFirsts[c];
    for (int64_t q = 0; q < args->cellCounts[c]; q++) {
      if (!flags[q]) continue;
      flags[q] = left > 0 ? label : notPlaced;
      left -= left > 0;
    }
  }
  share->room[i] = wanted == INT64_MAX ? 0 : left;
}

static int isWithin(const struct lrmoeLabels *args, int near, int64_t source,
                    int64_t rank) {
  switch (near) {
  case lrmoeNearRank:
    return rank == source;
  case lrmoeNearDomain:
    return args->domains[rank] == args->domains[source];
  case lrmoeNearHost:
    return args->hosts[rank] == args->hosts[source];
  default:
    return 1;
  }
}

/* The first instance that is near enough and has room. */
static int64_t findRoom(const struct share *share, int near, int64_t source) {
  const int64_t *ranks = share->args->ranks + share->first;
  int64_t i = 0;
  while (i < share->count &&
         (!share->room[i] || !isWithin(share->args, near, source, ranks[i])))
    i++;
  return i;
}

/* Pairs of one cell that are not placed go where there is room; how many are
 * left. */
static int64_t move(const struct share *share, int near, int64_t cell) {
  const struct lrmoeLabels *args = share->args;
  uint8_t *flags = args->flags + args->cellFirsts[cell];
  int64_t left = 0;
  for (int64_t q = 0; q < args->cellCounts[cell]; q++) {
    if (flags[q] != notPlaced) continue;
    int64_t i = findRoom(share, near, args->cellSources[cell]);
    if (i == share->count) {
      left++;
      continue;
    }
    flags[q] = labelOf(i);
    share->room[i]--;
  }
  return left;
}

void lrmoeLabelPairs(const struct lrmoeLabels *args) {
  for (int64_t e = 0; e < args->numExperts; e++) {
    int64_t first = args->instanceFirsts[e];
    const struct share share = {
        args, e, first, args->instanceFirsts[e + 1] - first, args->work};
    const int64_t *cells = args->sourceCells + e * args->numRanks;
    int64_t left = 0;
    for (int64_t i = 0; i < share.count; i++)
      stay(&share, i);
    for (int near = lrmoeNearRank; near < lrmoeNumNear; near++) {
      left = 0;
      for (int64_t c = cells[0]; c < cells[args->numRanks]; c++)
        left += move(&share, near, c);
    }
    args->missing[e] = left;
  }
}
