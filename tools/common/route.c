/* Routing for benchmarks: drawing the tokens' experts; see workload.h. */
#include "tools/common/workload.h"

#include <math.h>
#include <stdlib.h>

struct dealer {
  const struct toolWorkload *workload;
  struct toolRandom random;
  int32_t *deck; /* [E] experts in random order */
  int32_t next;  /* card of the deck to be dealt; balanced only */
};

static void swapCards(int32_t *deck, uint64_t a, uint64_t b) {
  int32_t card = deck[a];
  deck[a] = deck[b];
  deck[b] = card;
}

static void shuffle(struct dealer *dealer) {
  for (int32_t i = dealer->workload->numExperts - 1; i > 0; i--)
    swapCards(dealer->deck, (uint64_t)i,
              toolRandomBelow(&dealer->random, (uint64_t)i + 1));
}

/* Systematic sampling in random order.  No share is over a unit, so a hit
 * moves the next one past the expert's end; all shares add up to k units, so
 * k experts are hit. */
static void drawToken(struct dealer *dealer, int64_t *experts) {
  const uint64_t unit = UINT64_C(1) << 32;
  const struct toolWorkload *workload = dealer->workload;
  shuffle(dealer);
  uint64_t hit = toolRandomBelow(&dealer->random, unit), end = 0;
  int32_t slot = 0;
  for (int32_t i = 0; slot < workload->topk; i++) {
    int32_t expert = dealer->deck[i];
    end += workload->shares[expert];
    if (hit >= end) continue;
    experts[slot++] = expert;
    hit += unit;
  }
}

static int isHeld(const int64_t *experts, int32_t count, int32_t expert) {
  for (int32_t i = 0; i < count; i++)
    if (experts[i] == expert) return 1;
  return 0;
}

/* A new deck whose first `wanted` cards are none of the `numHeld` in hand.
 * The others hold enough such cards, because wanted + numHeld = k <= E. */
static void newDeck(struct dealer *dealer, const int64_t *held, int32_t numHeld,
                    int32_t wanted) {
  uint64_t numOthers = (uint64_t)(dealer->workload->numExperts - wanted);
  shuffle(dealer);
  for (int32_t i = 0; i < wanted; i++)
    while (isHeld(held, numHeld, dealer->deck[i]))
      swapCards(dealer->deck, (uint64_t)i,
                (uint64_t)wanted + toolRandomBelow(&dealer->random, numOthers));
}

static void dealToken(struct dealer *dealer, int64_t *experts) {
  int32_t topk = dealer->workload->topk;
  for (int32_t slot = 0; slot < topk; slot++) {
    if (dealer->next == dealer->workload->numExperts) {
      newDeck(dealer, experts, slot, topk - slot);
      dealer->next = 0;
    }
    experts[slot] = dealer->deck[dealer->next++];
  }
}

static void weighToken(struct dealer *dealer, float *weights) {
  double draws[toolMaxTopk], sum = 0;
  int32_t topk = dealer->workload->topk;
  for (int32_t i = 0; i < topk; i++) {
    draws[i] = -log(toolRandomUniform(&dealer->random));
    sum += draws[i];
  }
  for (int32_t i = 0; i < topk; i++)
    weights[i] = (float)(draws[i] / sum);
}

enum toolExit toolWorkloadRoute(const struct toolWorkload *workload, int rank,
                                int64_t round, int64_t numTokens,
                                int64_t *topkIdx, float *topkWeights) {
  struct dealer dealer = {.workload = workload, .next = workload->numExperts};
  /* Streams of ranks begin above those of the workload itself. */
  uint64_t stream = ((uint64_t)rank + 1) << 40 | (uint64_t)round;
  dealer.random = toolRandomMake(workload->seed, stream);
  dealer.deck = calloc((size_t)workload->numExperts, sizeof *dealer.deck);
  if (!dealer.deck) return toolRunFailed;
  for (int32_t e = 0; e < workload->numExperts; e++)
    dealer.deck[e] = e;
  for (int64_t t = 0; t < numTokens; t++) {
    if (workload->isBalanced)
      dealToken(&dealer, topkIdx + t * workload->topk);
    else
      drawToken(&dealer, topkIdx + t * workload->topk);
    weighToken(&dealer, topkWeights + t * workload->topk);
  }
  free(dealer.deck);
  return toolGood;
}
