/* Selection at the experts' homes (two rounds).
 *
 * Out: the tag and the keys of a home's experts, by expert and ordinal.  Back:
 * one bit a pair, in the same order.  The home executes what it selects, so
 * nobody else needs to know. */
#include "collectives/reroute.h"
#include "collectives/select.h"

#include <string.h>

struct homes {
  int64_t *sendOffsets; /* [G + 1] pairs of this rank to each home */
  int64_t *recvOffsets; /* [G + 1] pairs of each rank for this home */
  int64_t *bytesOut;    /* [G + 1] byte offsets of the key messages */
  int64_t *bytesIn;
  int64_t *bitsOut; /* [G + 1] byte offsets of the answers, as home */
  int64_t *bitsIn;
  int64_t *cursors; /* [G + 1] */
  int64_t *order;   /* [numPairs] index into sorted, by (home, expert) */
  unsigned char *out;
  unsigned char *in;
  uint32_t *keys; /* of one expert */
  uint8_t *flags;
};

enum {
  numHomeOffsets = 7
};

static int64_t bitBytes(int64_t count) {
  return (count + 7) / 8;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Counts per rank, and the byte offsets that follow from them. */
static void countPairs(const struct lrmoeStep *step, struct homes *h) {
  const struct lrmoePlan *plan = step->plan;
  int64_t numRanks = plan->numRanks;
  int64_t rank = step->layer->comm->rank;
  memset(h->sendOffsets, 0,
         (size_t)(numHomeOffsets * (numRanks + 1)) * sizeof(int64_t));
  for (int64_t e = 0; e < plan->numExperts; e++) {
    int32_t home = plan->homes[e];
    h->sendOffsets[home + 1] += step->demand[rank * plan->numExperts + e];
    for (int64_t s = 0; s < numRanks && home == rank; s++)
      h->recvOffsets[s + 1] += step->demand[s * plan->numExperts + e];
  }
  for (int64_t r = 0; r < numRanks; r++) {
    int64_t sent = h->sendOffsets[r + 1];
    int64_t received = h->recvOffsets[r + 1];
    h->bytesOut[r + 1] = h->bytesOut[r] + 8 + sent * 4;
    h->bytesIn[r + 1] = h->bytesIn[r] + 8 + received * 4;
    h->bitsOut[r + 1] = h->bitsOut[r] + bitBytes(received);
    h->bitsIn[r + 1] = h->bitsIn[r] + bitBytes(sent);
    h->sendOffsets[r + 1] += h->sendOffsets[r];
    h->recvOffsets[r + 1] += h->recvOffsets[r];
  }
}

static int64_t mostPairs(const struct lrmoeStep *step) {
  const struct lrmoePlan *plan = step->plan;
  int64_t last = (int64_t)(plan->numRanks - 1) * plan->numExperts;
  int64_t most = 0;
  for (int64_t e = 0; e < plan->numExperts; e++) {
    int64_t count = step->sourceBase[last + e] + step->demand[last + e];
    if (plan->homes[e] == step->layer->comm->rank && count > most) most = count;
  }
  return most;
}

static lrmoeResult_t layOut(struct lrmoeStep *step, struct homes *h) {
  int64_t length = step->plan->numRanks + 1;
  int64_t words = numHomeOffsets * length + step->numPairs;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch2, words, &h->sendOffsets));
  h->recvOffsets = h->sendOffsets + length;
  h->bytesOut = h->recvOffsets + length;
  h->bytesIn = h->bytesOut + length;
  h->bitsOut = h->bytesIn + length;
  h->bitsIn = h->bitsOut + length;
  h->cursors = h->bitsIn + length;
  h->order = h->cursors + length;
  countPairs(step, h);
  int64_t most = mostPairs(step);
  /* Answers take the place of keys, and a rank with few tokens may be the
   * home of many. */
  int64_t numOut = larger(h->bytesOut[length - 1], h->bitsOut[length - 1]);
  int64_t numIn = larger(h->bytesIn[length - 1], h->bitsIn[length - 1]);
  int64_t bytes = numOut + numIn + most * 5;
  LRMOE_CHECK(lrmoeStepReserve(step, lrmoeArrayScratch, bytes, 1, &h->keys));
  h->out = (unsigned char *)(h->keys + most);
  h->in = h->out + numOut;
  h->flags = h->in + numIn;
  lrmoeMeterAdd(&step->meter, bytes + words * (int64_t)sizeof(int64_t));
  return lrmoeSuccess;
}

/* order: sorted places by (home, expert, ordinal). */
static void listByHome(const struct lrmoeStep *step, struct homes *h) {
  const struct lrmoePlan *plan = step->plan;
  memcpy(h->cursors, h->sendOffsets,
         (size_t)plan->numRanks * sizeof *h->cursors);
  for (int32_t e = 0; e < plan->numExperts; e++) {
    int64_t *cursor = &h->cursors[plan->homes[e]];
    for (int64_t i = step->expertOffsets[e]; i < step->expertOffsets[e + 1];
         i++)
      h->order[(*cursor)++] = i;
  }
}

/* Keys to their homes. */
static lrmoeResult_t exchangeKeys(struct lrmoeStep *step, struct homes *h) {
  int32_t numRanks = step->plan->numRanks;
  uint64_t tag = lrmoeSelectTag(step);
  listByHome(step, h);
  for (int32_t r = 0; r < numRanks; r++) {
    unsigned char *at = h->out + h->bytesOut[r];
    memcpy(at, &tag, sizeof tag);
    at += sizeof tag;
    for (int64_t i = h->sendOffsets[r]; i < h->sendOffsets[r + 1]; i++, at += 4)
      memcpy(at, &step->keys[h->order[i]], sizeof(uint32_t));
  }
  const struct lrmoeExchange exchange = {h->out,     h->bytesOut, h->in,
                                         h->bytesIn, 1,           0};
  LRMOE_CHECK(lrmoeExchangeRun(step->layer->comm, &exchange, 1,
                               &step->stats.selectBytes));
  for (int32_t s = 0; s < numRanks; s++)
    if (memcmp(h->in + h->bytesIn[s], &tag, sizeof tag) != 0)
      return LRMOE_FAIL(lrmoeInvalidUsage,
                        "rank %d is at another step, plan or backward config",
                        s);
  return lrmoeSuccess;
}

/* Flags of expert e to its executor (here) and into the answers, whose bits
 * run on from cursors[s]. */
static void answer(struct lrmoeStep *step, struct homes *h, int32_t instance,
                   int32_t e) {
  int32_t numExperts = step->plan->numExperts;
  int64_t local = step->instanceOffsets[instance];
  int64_t count = step->instanceOffsets[instance + 1] - local;
  if (count) memcpy(step->keptLocal + local, h->flags, (size_t)count);
  lrmoeRerouteLocal(step, instance);
  const uint8_t *flag = h->flags;
  for (int32_t s = 0; s < step->plan->numRanks; s++) {
    unsigned char *bits = h->out + h->bitsOut[s];
    int64_t bit = h->cursors[s];
    int64_t numPairs = step->demand[(int64_t)s * numExperts + e];
    for (int64_t o = 0; o < numPairs; o++, bit++)
      bits[bit >> 3] |= (unsigned char)(*flag++ << (bit & 7));
    h->cursors[s] = bit;
  }
}

/* Selects this home's experts and writes the answers over the keys it sent,
 * which are no longer needed. */
static void selectExperts(struct lrmoeStep *step, struct homes *h) {
  int32_t numRanks = step->plan->numRanks;
  int32_t numExperts = step->plan->numExperts;
  memset(h->out, 0, (size_t)h->bitsOut[numRanks]);
  memset(h->cursors, 0, (size_t)numRanks * sizeof *h->cursors);
  for (int32_t j = 0; j < step->numInstances; j++) {
    int32_t e = lrmoeStepExpert(step, j);
    int64_t numPairs = 0;
    for (int32_t s = 0; s < numRanks; s++) {
      /* cursors[s] counts pairs: keys and bits have the same order. */
      const unsigned char *keys = h->in + h->bytesIn[s] + 8 + h->cursors[s] * 4;
      int64_t count = step->demand[(int64_t)s * numExperts + e];
      memcpy(h->keys + numPairs, keys, (size_t)count * sizeof(uint32_t));
      numPairs += count;
    }
    lrmoeSelectTop(numPairs, h->keys, step->plan->quotas[e], h->flags);
    answer(step, h, j, e);
  }
}

lrmoeResult_t lrmoeSelectHome(struct lrmoeStep *step) {
  struct homes h;
  LRMOE_CHECK(layOut(step, &h));
  LRMOE_CHECK(exchangeKeys(step, &h));
  selectExperts(step, &h);
  const struct lrmoeExchange exchange = {h.out,    h.bitsOut, h.in,
                                         h.bitsIn, 1,         0};
  LRMOE_CHECK(lrmoeExchangeRun(step->layer->comm, &exchange, 1,
                               &step->stats.selectBytes));
  for (int32_t r = 0; r < step->plan->numRanks; r++) {
    const unsigned char *bits = h.in + h.bitsIn[r];
    int64_t first = h.sendOffsets[r];
    for (int64_t i = first; i < h.sendOffsets[r + 1]; i++)
      step->kept[step->sorted[h.order[i]]] =
          bits[(i - first) >> 3] >> ((i - first) & 7) & 1;
  }
  lrmoeRerouteOwn(step);
  return lrmoeSuccess;
}
