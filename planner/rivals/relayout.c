/* Policy relayout: all slots are laid out anew, as LAER-MoE's planner does.
 *
 * Two sets of counts are tried, one slot at a time to the expert with most load
 * per slot, and as many for each; both are packed largest first, the copies of
 * an expert kept apart over hosts and then over ranks, and the one with the
 * lower peak is taken.  A source's pairs go to the copies on its own host, if
 * any stands there, else to all copies, in equal parts; what remains of them
 * begins at another copy for each source.
 *
 * Departures: an expert stands on a rank once at most; loads are of the past
 * only if the caller gives such; moving weights is not charged, because there
 * they travel in any case (they are sharded over all ranks).  Homes move. */
#include "planner/rivals/pack.h"
#include "planner/rivals/rivals.h"

#include <string.h>

/* What rank `source` has for expert e, over the copies on `host` (-1: all), of
 * which there are `count`. */
static void spreadPairs(struct lrmoeLayout *layout, int32_t e, int32_t source,
                        int32_t host, int32_t count) {
  const struct lrmoeRivalInput *input = layout->input;
  int64_t pairs = input->demand[(int64_t)source * layout->numExperts + e];
  int64_t each = pairs / count, rest = pairs % count;
  int32_t turn = source % count; /* the first copies get the rest otherwise */
  for (int32_t i = layout->offsets[e]; i < layout->offsets[e + 1]; i++) {
    int32_t slot = layout->instances[i];
    int32_t rank = lrmoeLayoutRankOf(layout, slot);
    if (host >= 0 && input->hosts[rank] != host) continue;
    layout->shares[slot] += each + (turn < rest);
    turn = turn ? turn - 1 : count - 1;
  }
}

/* rankValues [host]: copies of e there. */
static void splitExpert(struct lrmoeLayout *layout, int32_t e) {
  const int32_t *hosts = layout->input->hosts;
  memset(layout->rankValues, 0,
         (size_t)layout->numRanks * sizeof *layout->rankValues);
  for (int32_t i = layout->offsets[e]; i < layout->offsets[e + 1]; i++) {
    layout->shares[layout->instances[i]] = 0;
    layout
        ->rankValues[hosts[lrmoeLayoutRankOf(layout, layout->instances[i])]]++;
  }
  for (int32_t s = 0; s < layout->numRanks; s++) {
    int32_t near = (int32_t)layout->rankValues[hosts[s]];
    if (near)
      spreadPairs(layout, e, s, hosts[s], near);
    else
      spreadPairs(layout, e, s, -1, layout->counts[e]);
  }
}

void lrmoeRivalRelayout(struct lrmoeLayout *layout) {
  const int64_t *loads = layout->input->loads;
  lrmoeCountsEven(layout, loads, layout->numRanks);
  lrmoePackSpread(layout, loads);
  int64_t even = lrmoePackPeak(layout);
  lrmoeCountsByHeat(layout, loads, layout->numRanks);
  lrmoePackSpread(layout, loads);
  if (even < lrmoePackPeak(layout)) {
    lrmoeCountsEven(layout, loads, layout->numRanks);
    lrmoePackSpread(layout, loads);
  }
  lrmoeLayoutList(layout);
  for (int32_t e = 0; e < layout->numExperts; e++)
    splitExpert(layout, e);
}
