/* Splits of quotas where pairs that move cost memory.
 *
 * With quotas and forward fixed, so are the pairs that an instance is sure of:
 * s = max(0, F - (n - K)).  Up to s a kept pair takes b bytes of its rank, from
 * there on b + m.  Which split fits is then a generalised flow: a pair that
 * goes from rank to rank takes as many bytes there as it freed here, times 1,
 * (b + m) / b or b / (b + m).  Without a path that gains by going in a circle,
 * the paths of best gain from ranks that are over to ranks with room take off
 * all that can be (Onaga 1967); the split that gives every instance its sure
 * pairs first has no such circle, and the paths make none.
 *
 * Paths by gain carry many pairs at once, each rank on the way letting as many
 * out as make room for those that come in.  In whole pairs that rounds, so
 * what is left goes pair by pair, on paths whose every number is exact.  In
 * whole pairs the question is hard (b and b + m do not divide each other), and
 * what is found is in theory short by few pairs per rank. */
#include "planner/account.h"

enum {
  unitGain = 1 << 20, /* bytes in the label of a rank that is over */
  maxPasses = 32,     /* of labels over all ranks: hops of a path */
  /* Paths of one split, and those of them that are looked for pair by pair; in
   * large groups as few as keep the instances that are passed within
   * maxWork. */
  maxSteps = 1 << 12,
  maxHunts = 1 << 10,
  minHunts = 16,
  maxWork = 1 << 16
};

static const int64_t unreached = INT64_MAX;

/* ---- Bytes ----------------------------------------------------------- */

/* What `pairs` more of instance i take. */
static int64_t bytesIn(const struct lrmoeMoving *m, int32_t i, int64_t pairs) {
  int32_t g = m->instances->ranks[i];
  int64_t kept = m->instances->kept[i];
  return lrmoeMovingKept(m, g, m->pairs[g] + pairs) -
         lrmoeMovingKept(m, g, m->pairs[g]) +
         (lrmoeMovingMoves(m, i, kept + pairs) - lrmoeMovingMoves(m, i, kept)) *
             m->unit.move;
}

/* One pair more, or less, of instance i on a rank that has `pairs`. */
static int64_t byteOf(const struct lrmoeMoving *m, int32_t i, int64_t kept,
                      int isKept) {
  int64_t each = m->unit.backward - (isKept ? 0 : m->unit.dropped);
  return each + (kept >= m->sure[i] ? m->unit.move : 0);
}

static int64_t byteIn(const struct lrmoeMoving *m, int32_t i) {
  int32_t g = m->instances->ranks[i];
  return byteOf(m, i, m->instances->kept[i], m->pairs[g] >= m->rankForward[g]);
}

/* Of a pair that goes where another has come. */
static int64_t byteOut(const struct lrmoeMoving *m, int32_t i) {
  int32_t g = m->instances->ranks[i];
  return byteOf(m, i, m->instances->kept[i] - 1,
                m->pairs[g] >= m->rankForward[g]);
}

/* Pairs that come, or go, at the same bytes each. */
static int64_t runIn(const struct lrmoeMoving *m, int32_t i) {
  int32_t g = m->instances->ranks[i];
  int64_t sure = m->sure[i] - m->instances->kept[i];
  int64_t forward = m->rankForward[g] - m->pairs[g];
  return lrmoeLesser(sure > 0 ? sure : INT64_MAX,
                     m->unit.dropped && forward > 0 ? forward : INT64_MAX);
}

static int64_t runOut(const struct lrmoeMoving *m, int32_t i) {
  int32_t g = m->instances->ranks[i];
  int64_t kept = m->instances->kept[i], beyond = kept - m->sure[i];
  int64_t over = m->pairs[g] - m->rankForward[g];
  return lrmoeLesser(beyond > 0 ? beyond : kept,
                     m->unit.dropped && over > 0 ? over : INT64_MAX);
}

/* The fewest pairs of instance i that free `bytes` of a rank that has `pairs`
 * with those that come in; -1: all are too few. */
static int64_t leastOut(const struct lrmoeMoving *m, int32_t i, int64_t bytes,
                        int64_t pairs) {
  int64_t kept = m->instances->kept[i], count = 0;
  int64_t forward = m->rankForward[m->instances->ranks[i]];
  while (bytes > 0 && kept > 0) {
    int64_t each = byteOf(m, i, kept - 1, pairs > forward);
    int64_t run = kept > m->sure[i] ? kept - m->sure[i] : kept;
    if (m->unit.dropped && pairs > forward)
      run = lrmoeLesser(run, pairs - forward);
    run = lrmoeLesser(run, (bytes + each - 1) / each);
    bytes -= run * each;
    kept -= run;
    pairs -= run;
    count += run;
  }
  return bytes > 0 ? -1 : count;
}

/* ---- Labels ------------------------------------------------------------- */

/* How paths are looked for. */
struct hunt {
  struct lrmoeMoving *moving;
  int isExact; /* pair by pair */
  int32_t end; /* the first rank that can take what arrives, or -1 */
};

/* Bytes that arrive with one hop if unitGain bytes leave the first rank. */
static int64_t gainLabel(const struct lrmoeMoving *m, int32_t from,
                         int32_t to) {
  int64_t out = byteOut(m, from), in = byteIn(m, to);
  int64_t label = m->arriving[m->instances->ranks[from]];
  return label > (int64_t)unitGain << 10 ? unreached
                                         : (label * in + out - 1) / out;
}

/* Pairs that have to go on from the rank of instance `from`; -1: too many. */
static int64_t passOn(const struct lrmoeMoving *m, int32_t from,
                      int64_t arriving, int64_t count) {
  int64_t pairs = m->pairs[m->instances->ranks[from]] + count;
  int64_t out = leastOut(m, from, arriving, pairs);
  int64_t most = lrmoeLesser(pairs - m->maxPairs, count);
  if (out >= 0 && out < most) out = most;
  return out > m->instances->kept[from] ? -1 : out;
}

/* What is over of a rank, beyond what was, if `count` pairs come. */
static int64_t overWith(const struct lrmoeMoving *m, int32_t to,
                        int64_t count) {
  int64_t room = lrmoeMovingRoom(m, m->instances->ranks[to]);
  return bytesIn(m, to, count) - lrmoeGreater(room, 0);
}

static int canTake(const struct lrmoeMoving *m, int32_t g, int64_t over,
                   int64_t count) {
  return over <= 0 && m->pairs[g] + count <= m->maxPairs;
}

static void relax(struct hunt *hunt, int32_t from, int32_t to) {
  struct lrmoeMoving *m = hunt->moving;
  int32_t g = m->instances->ranks[from], h = m->instances->ranks[to];
  int64_t count = 0, label;
  if (hunt->isExact) {
    count = passOn(m, from, m->arriving[g], m->counts[g]);
    if (count < 0) return;
    label = overWith(m, to, count);
  } else {
    label = gainLabel(m, from, to);
  }
  if (label >= m->arriving[h]) return;
  m->arriving[h] = label;
  m->counts[h] = count;
  m->work->from[h] = from;
  m->work->to[h] = to;
  m->isChanged[h] = 1;
  if (hunt->isExact && canTake(m, h, label, count)) hunt->end = h;
}

/* Hops off rank g. */
static void spread(struct hunt *hunt, int32_t g) {
  struct lrmoeMoving *m = hunt->moving;
  const struct lrmoeInstances *instances = m->instances;
  for (int32_t k = instances->rankOffsets[g];
       k < instances->rankOffsets[g + 1] && hunt->end < 0; k++) {
    int32_t from = instances->ofRank[k], e = instances->experts[from];
    if (instances->kept[from] <= 0) continue;
    for (int32_t to = instances->offsets[e];
         to < instances->offsets[e + 1] && hunt->end < 0; to++)
      if (to != from) relax(hunt, from, to);
  }
}

/* Labels of all ranks, those that are set at the beginning included. */
static void label(struct hunt *hunt) {
  struct lrmoeMoving *m = hunt->moving;
  int isGoing = 1;
  for (int pass = 0; pass < maxPasses && isGoing && hunt->end < 0; pass++) {
    isGoing = 0;
    for (int32_t g = 0; g < m->work->numRanks && hunt->end < 0; g++) {
      if (!m->isChanged[g]) continue;
      m->isChanged[g] = 0;
      isGoing = 1;
      spread(hunt, g);
    }
  }
}

static void begin(struct hunt *hunt, int64_t bytes) {
  struct lrmoeMoving *m = hunt->moving;
  hunt->end = -1;
  for (int32_t g = 0; g < m->work->numRanks; g++) {
    m->arriving[g] = m->isChanged[g] ? bytes : unreached;
    m->counts[g] = 0;
    m->work->from[g] = -1;
  }
}

void lrmoeMovingLabel(struct lrmoeMoving *m, int64_t bytes) {
  struct hunt hunt = {.moving = m};
  begin(&hunt, bytes);
  label(&hunt);
}

/* ---- Paths -------------------------------------------------------------- */

/* Ranks from the one that is over to `end`; 0 if labels run in a circle. */
static int32_t tracePath(struct lrmoeMoving *m, int32_t end) {
  int32_t length = 1, g = end;
  for (; m->work->from[g] >= 0; length++) {
    if (length >= m->work->numRanks) return 0;
    g = m->instances->ranks[m->work->from[g]];
  }
  for (int32_t k = length - 1, h = end; k >= 0; k--) {
    m->path[k] = h;
    if (k) h = m->instances->ranks[m->work->from[h]];
  }
  return length;
}

/* counts[k]: what leaves the k-th rank if `first` pairs leave the first one;
 * returns how many hops that takes, 0 if the path cannot carry them, or not at
 * the bytes of the labels. */
static int32_t carry(struct lrmoeMoving *m, int32_t length, int64_t first,
                     int isExact) {
  int64_t count = first;
  for (int32_t k = 0; k + 1 < length; k++) {
    int32_t h = m->path[k + 1];
    int32_t from = m->work->from[h], to = m->work->to[h];
    if (count > m->instances->kept[from]) return 0;
    if (!isExact && (count > runOut(m, from) || count > runIn(m, to))) return 0;
    m->counts[k] = count;
    int64_t over = overWith(m, to, count);
    if (canTake(m, h, over, count)) return k + 1;
    if (k + 2 == length) return 0;
    count = passOn(m, m->work->from[m->path[k + 2]], over, count);
    if (count < 0) return 0;
  }
  return 0;
}

/* All that is over, on the ranks of the path. */
static int64_t sumOver(const struct lrmoeMoving *m, int32_t hops) {
  int64_t sum = 0;
  for (int32_t k = 0; k <= hops; k++)
    sum += lrmoeGreater(0, -lrmoeMovingRoom(m, m->path[k]));
  return sum;
}

static void shift(struct lrmoeMoving *m, int32_t hops, int direction) {
  for (int32_t k = 0; k < hops; k++) {
    int32_t h = m->path[k + 1];
    lrmoeMovingChange(m, m->work->from[h], -m->counts[k] * direction);
    lrmoeMovingChange(m, m->work->to[h], m->counts[k] * direction);
  }
}

/* Carries pairs along the path; 0, with nothing done, if that takes nothing
 * off: the path then goes through an instance twice. */
static int follow(struct lrmoeMoving *m, int32_t hops) {
  int64_t before = sumOver(m, hops);
  shift(m, hops, 1);
  if (sumOver(m, hops) < before) return 1;
  shift(m, hops, -1);
  return 0;
}

/* The most pairs that the path carries at the bytes of its labels, or one. */
static int followGain(struct lrmoeMoving *m, int32_t length) {
  int32_t from = m->work->from[m->path[1]], g = m->path[0];
  int64_t low = 0,
          high = leastOut(m, from, -lrmoeMovingRoom(m, g), m->pairs[g]);
  if (high < 0) high = m->instances->kept[from];
  high = lrmoeLesser(high, runOut(m, from));
  while (low < high) {
    int64_t middle = high - (high - low) / 2;
    if (carry(m, length, middle, 0))
      low = middle;
    else
      high = middle - 1;
  }
  int32_t hops = carry(m, length, low ? low : 1, !low);
  return hops && follow(m, hops);
}

/* By gain, from all ranks that are over at once. */
static int stepByGain(struct lrmoeMoving *m) {
  int32_t best = -1;
  for (int32_t g = 0; g < m->work->numRanks; g++)
    m->isChanged[g] = lrmoeMovingRoom(m, g) < 0;
  lrmoeMovingLabel(m, unitGain);
  for (int32_t g = 0; g < m->work->numRanks; g++) {
    int32_t to = m->work->to[g];
    if (m->work->from[g] < 0 || !canTake(m, g, overWith(m, to, 1), 1) ||
        lrmoeMovingRoom(m, g) < 0)
      continue;
    if (best < 0 || m->arriving[g] < m->arriving[best]) best = g;
  }
  int32_t length = best < 0 ? 0 : tracePath(m, best);
  return length > 1 && followGain(m, length);
}

/* One pair of a rank that is over, with so many hunts for paths left. */
static int stepExactly(struct lrmoeMoving *m, int64_t *hunts) {
  for (int32_t g = 0; g < m->work->numRanks; g++) {
    struct hunt hunt = {.moving = m, .isExact = 1};
    if (lrmoeMovingRoom(m, g) >= 0) continue;
    if (--*hunts < 0) return 0;
    for (int32_t h = 0; h < m->work->numRanks; h++)
      m->isChanged[h] = h == g;
    begin(&hunt, 1);
    label(&hunt);
    int32_t length = hunt.end < 0 ? 0 : tracePath(m, hunt.end);
    if (length < 2) continue;
    int32_t hops = carry(m, length, 1, 1);
    if (hops && follow(m, hops)) return 1;
  }
  return 0;
}

static int isOver(const struct lrmoeMoving *m) {
  for (int32_t g = 0; g < m->work->numRanks; g++)
    if (lrmoeMovingRoom(m, g) < 0) return 1;
  return 0;
}

int lrmoeMovingRelieve(struct lrmoeMoving *m) {
  int64_t hunts = maxWork / m->instances->count;
  hunts = lrmoeGreater(minHunts, lrmoeLesser(hunts, maxHunts));
  for (int step = 0; step < maxSteps && isOver(m); step++)
    if (!stepByGain(m) && !stepExactly(m, &hunts)) return 0;
  return !isOver(m);
}

int lrmoeMovingSplit(struct lrmoeMoving *m) {
  for (int32_t g = 0; g < m->work->numRanks; g++)
    if (m->budgets[g] < 0) return 0;
  lrmoeMovingBegin(m);
  return lrmoeMovingRelieve(m);
}
