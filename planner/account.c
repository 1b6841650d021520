/* The accounts of a split in which pairs that move cost memory: see
 * account.h. */
#include "planner/account.h"

void lrmoeMovingChange(struct lrmoeMoving *m, int32_t i, int64_t pairs) {
  int32_t g = m->instances->ranks[i];
  int64_t *kept = &m->instances->kept[i];
  int64_t more =
      lrmoeMovingMoves(m, i, *kept + pairs) - lrmoeMovingMoves(m, i, *kept);
  m->bytes[g] += lrmoeMovingKept(m, g, m->pairs[g] + pairs) -
                 lrmoeMovingKept(m, g, m->pairs[g]) + more * m->unit.move;
  m->pairs[g] += pairs;
  *kept += pairs;
}

void lrmoeMovingDrop(struct lrmoeMoving *m, int32_t i, int64_t pairs) {
  int32_t g = m->instances->ranks[i];
  m->bytes[g] += lrmoeMovingKept(m, g, m->pairs[g] - pairs) -
                 lrmoeMovingKept(m, g, m->pairs[g]);
  m->pairs[g] -= pairs;
  m->instances->kept[i] -= pairs;
}

/* Those beyond the forward pairs free more than the others. */
int64_t lrmoeMovingOver(const struct lrmoeMoving *m, int32_t g) {
  int64_t over = m->bytes[g] - m->budgets[g];
  int64_t each = m->unit.backward - m->unit.dropped;
  int64_t beyond = lrmoeGreater(0, m->pairs[g] - m->rankForward[g]);
  int64_t count = lrmoeGreater(0, m->pairs[g] - m->maxPairs);
  if (over <= 0) return count;
  if (over <= beyond * m->unit.backward)
    return lrmoeGreater(count,
                        (over + m->unit.backward - 1) / m->unit.backward);
  over -= beyond * m->unit.backward;
  return lrmoeGreater(count, beyond + (over + each - 1) / each);
}

/* What is not sure goes where most room is. */
static void placeRest(struct lrmoeMoving *m, int32_t e, int64_t rest) {
  int32_t best = m->instances->offsets[e];
  for (int32_t i = best + 1; i < m->instances->offsets[e + 1]; i++)
    if (lrmoeMovingRoom(m, m->instances->ranks[i]) >
        lrmoeMovingRoom(m, m->instances->ranks[best]))
      best = i;
  if (rest) lrmoeMovingChange(m, best, rest);
}

void lrmoeMovingBegin(struct lrmoeMoving *m) {
  const struct lrmoeInstances *instances = m->instances;
  for (int32_t g = 0; g < m->work->numRanks; g++)
    m->bytes[g] = m->pairs[g] = 0;
  for (int32_t e = 0; e < m->work->numExperts; e++)
    for (int32_t i = instances->offsets[e]; i < instances->offsets[e + 1];
         i++) {
      int64_t dropped = m->work->pairs[e] - m->quotas[e];
      m->sure[i] = lrmoeGreater(0, instances->forward[i] - dropped);
      instances->kept[i] = 0;
      lrmoeMovingChange(m, i, m->sure[i]);
    }
  for (int32_t e = 0; e < m->work->numExperts; e++) {
    int64_t rest = m->quotas[e];
    for (int32_t i = instances->offsets[e]; i < instances->offsets[e + 1]; i++)
      rest -= instances->kept[i];
    placeRest(m, e, rest);
  }
}
