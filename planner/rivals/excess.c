/* Policies quota and topo: excess moves to slack, for this step's own loads.
 *
 * quota, UltraEP's way: the least target is searched by bisection, to within
 * one hundredth of the mean.  For a target, ranks above it give their excess
 * away, the most loaded rank first, and of it the hottest expert first, each
 * time to the rank with most slack that has a free slot; a replica takes no
 * fewer pairs than minReplicaPairs, and an expert keeps one pair at home.
 * Homes stay.
 *
 * topo, the same with links in mind (TopoEP): ranks on the donor's host that
 * have slack come before all others.
 *
 * Departures: UltraEP plans on the GPU; the steps are its, the order of ties
 * (the lower rank, the lower expert) is ours.  Of TopoEP only the aim is
 * published, balance of realised loads with node-local replicas first: its
 * rule is taken to be this one. */
#include "planner/rivals/pack.h"
#include "planner/rivals/rivals.h"

#include <string.h>

enum {
  closeParts = 100 /* the bisection ends within this part of the mean */
};

struct excess {
  struct lrmoeLayout *layout;
  int64_t *left;  /* [E] pairs at home */
  int64_t *slack; /* [G] target less load, maybe < 0 */
  int32_t *free;  /* [G] spare slots */
  int nearFirst;
};

/* The rank with most slack for a replica of e that is at home on `donor`; near
 * ones before if that matters; -1 if there is none. */
static int32_t chooseSink(const struct excess *x, int32_t donor, int32_t e) {
  const int32_t *hosts = x->layout->input->hosts;
  int32_t chosen = -1;
  for (int32_t g = 0; g < x->layout->numRanks; g++) {
    if (x->slack[g] <= 0 || x->free[g] <= 0) continue;
    if (chosen >= 0) {
      int near = x->nearFirst && hosts[g] == hosts[donor];
      int chosenNear = x->nearFirst && hosts[chosen] == hosts[donor];
      if (near < chosenNear) continue;
      if (near == chosenNear && x->slack[g] <= x->slack[chosen]) continue;
    }
    if (!lrmoeLayoutHasExpert(x->layout, g, e)) chosen = g;
  }
  return chosen;
}

/* Pairs of e that go to the sink: none if they are too few. */
static int64_t give(struct excess *x, int32_t donor, int32_t sink, int32_t e) {
  int64_t pairs = -x->slack[donor];
  if (x->slack[sink] < pairs) pairs = x->slack[sink];
  if (x->left[e] - 1 < pairs) pairs = x->left[e] - 1;
  if (pairs < x->layout->input->minReplicaPairs) return 0;
  lrmoeLayoutAdd(x->layout, sink, e, pairs);
  x->left[e] -= pairs;
  x->slack[donor] += pairs;
  x->slack[sink] -= pairs;
  x->free[sink]--;
  return pairs;
}

/* Sheds the excess of a rank whose experts are order[first .. last), hottest
 * first; whether all of it found a place. */
static int relieve(struct excess *x, int32_t donor, int32_t first,
                   int32_t last) {
  for (int32_t k = first; k < last && x->slack[donor] < 0; k++) {
    int32_t e = x->layout->order[k];
    while (x->slack[donor] < 0) {
      int32_t sink = chooseSink(x, donor, e);
      if (sink < 0 || !give(x, donor, sink, e)) break;
    }
  }
  return x->slack[donor] >= 0;
}

/* One pass; whether every rank got to the target. */
static int tryTarget(struct excess *x, int64_t target) {
  struct lrmoeLayout *layout = x->layout;
  lrmoeLayoutHomes(layout);
  memcpy(x->left, layout->input->pairs,
         (size_t)layout->numExperts * sizeof *x->left);
  for (int32_t g = 0; g < layout->numRanks; g++) {
    x->slack[g] = target - layout->loads[g];
    x->free[g] = lrmoeLayoutRoom(layout, g);
  }
  for (int32_t k = 0; k < layout->numRanks; k++) {
    int32_t donor = layout->rankOrder[k];
    if (x->slack[donor] >= 0) break;
    if (!relieve(x, donor, layout->offsets[donor], layout->offsets[donor + 1]))
      return 0;
  }
  return 1;
}

/* order [offsets[g] .. offsets[g + 1]): the experts of rank g, hottest first;
 * rankOrder: the most loaded rank first. */
static void sortDonors(struct lrmoeLayout *layout) {
  int32_t *starts = layout->offsets, *next = layout->savedUsed;
  int32_t *sorted = layout->counts;
  memset(starts, 0, ((size_t)layout->numRanks + 1) * sizeof *starts);
  for (int32_t e = 0; e < layout->numExperts; e++)
    starts[layout->homes[e] + 1]++;
  for (int32_t g = 0; g < layout->numRanks; g++) {
    next[g] = starts[g];
    starts[g + 1] += starts[g];
  }
  lrmoeSortDescending(sorted, layout->input->pairs, layout->numExperts);
  for (int32_t k = 0; k < layout->numExperts; k++)
    layout->order[next[layout->homes[sorted[k]]]++] = sorted[k];
  lrmoeSortDescending(layout->rankOrder, layout->loads, layout->numRanks);
}

/* What is left of an expert stays in its slot at home. */
static void shareHomes(struct excess *x) {
  struct lrmoeLayout *layout = x->layout;
  int32_t *next = layout->savedUsed; /* homes lie first, by expert */
  memset(next, 0, (size_t)layout->numRanks * sizeof *next);
  for (int32_t e = 0; e < layout->numExperts; e++) {
    int32_t home = layout->homes[e];
    layout->shares[layout->slotOffsets[home] + next[home]++] = x->left[e];
  }
}

static void moveExcess(struct lrmoeLayout *layout, int nearFirst) {
  struct excess x = {layout, layout->values, layout->rankValues,
                     layout->savedUsed, nearFirst};
  lrmoeLayoutHomes(layout);
  sortDonors(layout);
  int64_t total = 0, high = lrmoePackPeak(layout);
  for (int32_t g = 0; g < layout->numRanks; g++)
    total += layout->loads[g];
  int64_t mean = total / layout->numRanks + (total % layout->numRanks != 0);
  int64_t low = mean, close = mean / closeParts > 1 ? mean / closeParts : 1;
  if (tryTarget(&x, low)) high = low;
  while (high - low > close) {
    int64_t middle = low + (high - low) / 2;
    if (tryTarget(&x, middle))
      high = middle;
    else
      low = middle;
  }
  tryTarget(&x, high);
  shareHomes(&x);
}

void lrmoeRivalQuota(struct lrmoeLayout *layout) {
  moveExcess(layout, 0);
}

void lrmoeRivalTopo(struct lrmoeLayout *layout) {
  moveExcess(layout, 1);
}
