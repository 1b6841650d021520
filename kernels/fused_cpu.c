/* Puts and meetings on the CPU: see fused.h.  They are what the CUDA kernels
 * are compared with; the CPU transport has its own way (collectives/compact.c).
 */
#include "base/clock.h"
#include "kernels/fused.h"

#include <sched.h>
#include <string.h>

static int64_t typeBytes(lrmoeDataType_t type) {
  return type == lrmoeFloat32 ? 4 : 2;
}

static void copyOwn(const struct lrmoeOwnRows *own) {
  int64_t rowBytes = own->rows.width * typeBytes(own->rows.type);
  for (int64_t i = 0; i < own->numRows; i++)
    if (own->isOwn[i] >= 0)
      memcpy((char *)own->out + i * rowBytes,
             (const char *)own->rows.data +
                 (own->rows.index ? own->rows.index[i] : i) * rowBytes,
             (size_t)rowBytes);
}

void lrmoePutRows(const struct lrmoePut *args) {
  const uint64_t rowMask = ((uint64_t)1 << lrmoePlaceBits) - 1;
  int64_t rowBytes = args->rows.width * typeBytes(args->rows.type);
  copyOwn(&args->own);
  if (!*args->gate) return;
  for (int64_t t = 0; t < args->numRows; t++)
    for (int64_t i = args->offsets[t]; i < args->offsets[t + 1]; i++) {
      uint64_t place = (uint64_t)args->list[i];
      memcpy(args->targets[place >> lrmoePlaceBits] +
                 (int64_t)(place & rowMask) * rowBytes,
             (const char *)args->rows.data + t * rowBytes, (size_t)rowBytes);
    }
}

static int64_t look(const int64_t *word) {
  return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static void say(int64_t *word, int64_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

/* A rank that has another tag than this one, or -1. */
static int32_t findOther(const struct lrmoeMeet *args) {
  for (int32_t r = 0; r < args->numRanks && args->tags; r++)
    if (args->tags[r] != args->tags[args->rank]) return r;
  return -1;
}

void lrmoeEnter(const struct lrmoeMeet *args) {
  struct lrmoeWatch *watch = args->watch;
  int32_t other = findOther(args);
  if (other >= 0 && !look(&watch->status)) {
    watch->peer = other;
    say(&watch->status, lrmoeMeetingOther);
  }
  say(&watch->numEntered, args->epoch);
  *args->gate = !look(&watch->isStopped) && !look(&watch->status);
  if (!*args->gate) say(&watch->numLeft, args->epoch);
}

static int64_t rowsOf(const int64_t *offsets, int32_t rank) {
  return offsets[rank + 1] - offsets[rank];
}

static int64_t *wordOf(const struct lrmoeMeet *args, int32_t to, int32_t from,
                       int64_t half) {
  return args->words[to] + half * args->numRanks + from;
}

static enum lrmoeMeeting await(const struct lrmoeMeet *args, int32_t peer,
                               int64_t endNs, int64_t *got) {
  const int64_t *word = wordOf(args, args->rank, peer, args->epoch % 2);
  for (;;) {
    int64_t seen = look(word);
    *got = lrmoeSignalRows(seen);
    if (seen == lrmoeSignalSpoiled) return lrmoeMeetingSpoiled;
    if (lrmoeSignalIsOf(seen, args->epoch))
      return *got == rowsOf(args->expected, peer) ? lrmoeMeetingGood
                                                  : lrmoeMeetingCount;
    if (look(&args->watch->isStopped)) return lrmoeMeetingStopped;
    if (lrmoeNowNs() > endNs) return lrmoeMeetingLate;
    sched_yield();
  }
}

static void fail(const struct lrmoeMeet *args, enum lrmoeMeeting meeting,
                 int32_t peer, int64_t got) {
  struct lrmoeWatch *watch = args->watch;
  for (int32_t r = 0; r < args->numRanks; r++) {
    say(wordOf(args, r, args->rank, 0), lrmoeSignalSpoiled);
    say(wordOf(args, r, args->rank, 1), lrmoeSignalSpoiled);
  }
  watch->peer = peer;
  watch->expected = rowsOf(args->expected, peer);
  watch->got = got;
  say(&watch->status, meeting);
}

void lrmoeMeetPeers(const struct lrmoeMeet *args) {
  int64_t endNs = lrmoeNowNs() + args->timeoutMs * 1000000;
  enum lrmoeMeeting meeting = lrmoeMeetingGood;
  if (!*args->gate) return;
  for (int32_t r = 0; r < args->numRanks; r++)
    say(wordOf(args, r, args->rank, args->epoch % 2),
        lrmoeSignalOf(args->epoch, rowsOf(args->sent, r)));
  for (int32_t r = 0; r < args->numRanks && !meeting; r++) {
    int64_t got = 0;
    meeting = await(args, r, endNs, &got);
    if (meeting) fail(args, meeting, r, got);
  }
  say(&args->watch->numLeft, args->epoch);
}
