/* Policy permute: experts change places, as SmartMoE's online stage does.
 *
 * Every expert has one instance.  The hottest goes first, to the rank with the
 * least load that has not yet as many experts as have their home there.
 *
 * Departures: the offline stage, which prepares parallel strategies to choose
 * from, is left out; the new places hold for this step at once, where SmartMoE
 * changes them every so many iterations.  Spare slots stay empty.  Homes
 * move. */
#include "planner/rivals/pack.h"
#include "planner/rivals/rivals.h"

#include <string.h>

void lrmoeRivalPermute(struct lrmoeLayout *layout) {
  int32_t *room = layout->savedUsed;
  memset(room, 0, (size_t)layout->numRanks * sizeof *room);
  for (int32_t e = 0; e < layout->numExperts; e++) {
    layout->counts[e] = 1;
    room[layout->homes[e]]++;
  }
  lrmoePackLargestFirst(layout, layout->input->loads, room);
  lrmoeLayoutSplitEven(layout);
}
