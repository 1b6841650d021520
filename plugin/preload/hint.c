/* Hints: see hint.h.  They are a thread's own, since exchanges of several
 * threads and communicators may be under way; at most one for a communicator,
 * which is known by its serial number: an address comes back, and a hint must
 * not meet another communicator there. */
#include "plugin/preload/hint.h"

#include "base/config.h"
#include "base/hash.h"
#include "base/log.h"
#include "lrmoe_hint.h"
#include "plugin/preload/mode.h"

#include <string.h>

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int hasKey;

static void freeAll(void *first) {
  for (struct lrmoeHint *hint = first; hint;) {
    struct lrmoeHint *next = hint->next;
    lrmoeHintFree(hint);
    hint = next;
  }
}

static void makeKey(void) {
  hasKey = !pthread_key_create(&key, freeAll);
}

void lrmoeHintFree(struct lrmoeHint *hint) {
  if (hint) lrmoeFree(hint->demand);
  lrmoeFree(hint);
}

struct lrmoeHint *lrmoeHintTake(const struct lrmoePreloadComm *comm) {
  pthread_once(&once, makeKey);
  struct lrmoeHint *first = hasKey ? pthread_getspecific(key) : NULL;
  struct lrmoeHint **link = &first;
  while (*link && (*link)->serial != comm->serial)
    link = &(*link)->next;
  struct lrmoeHint *found = *link;
  if (!found) return NULL;
  *link = found->next;
  pthread_setspecific(key, first);
  return found;
}

static lrmoeResult_t put(struct lrmoeHint *hint) {
  hint->next = hasKey ? pthread_getspecific(key) : NULL;
  if (hasKey && !pthread_setspecific(key, hint)) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for this thread's hints");
}

void lrmoeHintRefuse(struct lrmoePreloadComm *comm, const char *why) {
  static atomic_flag hasWarned = ATOMIC_FLAG_INIT;
  comm->traffic.numRefused++;
  if (!atomic_flag_test_and_set(&hasWarned))
    lrmoeLog(lrmoeLogWarn,
             "preload: a hint is not followed and all rows cross: %s", why);
}

/* ---- Checks ---- */

/* Pairs of an expert over all ranks. */
static lrmoeResult_t addPairs(const struct lrmoeHint *hint, int numRanks,
                              int64_t expert, int64_t *total) {
  *total = 0;
  for (int s = 0; s < numRanks; s++) {
    int64_t pairs = hint->demand[s * hint->numExperts + expert];
    LRMOE_REQUIRE(pairs >= 0 && pairs <= INT64_MAX - *total,
                  "demand[%d][%lld] is %lld", s, (long long)expert,
                  (long long)pairs);
    *total += pairs;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t checkQuotas(const struct lrmoeHint *hint, int numRanks) {
  for (int64_t e = 0; e < hint->numExperts; e++) {
    int64_t total = 0, quota = hint->quotas[e];
    LRMOE_CHECK(addPairs(hint, numRanks, e, &total));
    LRMOE_REQUIRE(quota >= 0 && quota <= total,
                  "quotas[%lld] is %lld of %lld pairs", (long long)e,
                  (long long)quota, (long long)total);
  }
  return lrmoeSuccess;
}

/* What the arguments say by themselves; the exchange is not known yet. */
static lrmoeResult_t fill(struct lrmoeHint *hint,
                          const struct lrmoePreloadComm *comm,
                          const int64_t *demand, const int64_t *quotas) {
  int64_t numExperts = hint->numExperts, numRanks = comm->numRanks;
  LRMOE_REQUIRE(
      numExperts > 0 && numExperts < 1 << 20 && numExperts % numRanks == 0,
      "%lld experts on %lld ranks", (long long)numExperts, (long long)numRanks);
  LRMOE_REQUIRE(hint->rowBytes > 0, "rowBytes is %lld",
                (long long)hint->rowBytes);
  LRMOE_REQUIRE(demand && quotas, "demand or quotas is NULL");
  LRMOE_CHECK(LRMOE_ALLOCATE((numRanks + 1) * numExperts + 2 * numRanks,
                             &hint->demand));
  hint->quotas = hint->demand + numRanks * numExperts;
  hint->counters = hint->quotas + numExperts;
  memcpy(hint->demand, demand, (size_t)(numRanks * numExperts) * 8);
  memcpy(hint->quotas, quotas, (size_t)numExperts * 8);
  return checkQuotas(hint, comm->numRanks);
}

static uint64_t hashOf(const struct lrmoeHint *hint, int64_t numRanks) {
  const int64_t head[] = {hint->layer, hint->rowBytes, hint->numExperts};
  uint64_t hash = lrmoeHash(0, head, sizeof head);
  size_t bytes = (size_t)((numRanks + 1) * hint->numExperts) * 8;
  return lrmoeHash(hash, hint->demand, bytes) | 1;
}

/* ---- The call ---- */

static lrmoeResult_t make(const struct lrmoePreloadComm *comm,
                          const struct lrmoeHint *given, const int64_t *demand,
                          const int64_t *quotas) {
  struct lrmoeHint *hint = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &hint));
  *hint = *given;
  hint->serial = comm->serial;
  lrmoeResult_t result = fill(hint, comm, demand, quotas);
  if (result == lrmoeSuccess) {
    hint->hash = hashOf(hint, comm->numRanks);
    result = put(hint);
  }
  if (result != lrmoeSuccess) lrmoeHintFree(hint);
  return result;
}

/* An earlier hint goes in any case. */
#pragma GCC visibility push(default)
lrmoeResult_t lrmoeHintBackward(struct ncclComm *comm,
                                const lrmoeHintLayer_t *layer, int64_t rowBytes,
                                const int64_t *demand, const int64_t *quotas,
                                const float *phiNorms) {
  lrmoeHintLayer_t about = LRMOE_HINT_LAYER_INITIALIZER;
  if (lrmoePreloadSettings()->mode != lrmoePreloadCalibrate)
    return lrmoeSuccess;
  struct lrmoePreloadComm *known = lrmoePreloadCommTake(comm);
  LRMOE_REQUIRE(known, "comm is no communicator");
  lrmoeHintFree(lrmoeHintTake(known));
  known->traffic.numHints++;
  lrmoeResult_t result =
      lrmoeConfigRead("lrmoeHintLayer_t", layer, sizeof about, &about);
  const struct lrmoeHint given = {.layer = about.id,
                                  .numExperts = about.numExperts,
                                  .rowBytes = rowBytes,
                                  .phiNorms = phiNorms};
  if (result == lrmoeSuccess) result = make(known, &given, demand, quotas);
  lrmoePreloadCommGive(known);
  return result;
}
#pragma GCC visibility pop
