/* The layout of the handoff: see handoff.h. */
#include "collectives/handoff.h"

#include <string.h>

/* First handoff row of every list, and pairs of each source. */
static lrmoeResult_t placeLists(struct lrmoeStep *step,
                                const int64_t *lengths) {
  int32_t numRanks = step->plan->numRanks;
  int64_t numLists = (int64_t)step->numInstances * 2 * numRanks;
  size_t bytes = (size_t)(numRanks + 1) * sizeof(int64_t);
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayKeptSegments, numLists + 1,
                            &step->keptSegments));
  memset(step->keptRecvOffsets, 0, bytes);
  memset(step->alphaRecvOffsets, 0, bytes);
  int64_t numKept = 0;
  for (int64_t i = 0; i < numLists; i++) {
    int64_t source = i % numRanks;
    step->keptSegments[i] = numKept;
    numKept += lengths[i];
    step->keptRecvOffsets[source + 1] += lengths[i];
    if (i / numRanks % 2) step->alphaRecvOffsets[source + 1] += lengths[i];
  }
  step->keptSegments[numLists] = numKept;
  for (int32_t s = 0; s < numRanks; s++) {
    step->keptRecvOffsets[s + 1] += step->keptRecvOffsets[s];
    step->alphaRecvOffsets[s + 1] += step->alphaRecvOffsets[s];
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHandoffLayOut(struct lrmoeStep *step,
                                 const int64_t *lengths) {
  int64_t numRanks = step->plan->numRanks;
  int64_t *counts = NULL; /* [numInstances] kept, then those that stayed */
  LRMOE_CHECK(placeLists(step, lengths));
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayScratch,
                            2 * (int64_t)step->numInstances, &counts));
  for (int32_t j = 0; j < step->numInstances; j++) {
    const int64_t *lists = &step->keptSegments[2 * numRanks * j];
    counts[j] = lists[2 * numRanks] - lists[0];
    counts[step->numInstances + j] = lists[numRanks] - lists[0];
  }
  return lrmoeHandoffSegments(step, counts, counts + step->numInstances);
}

lrmoeResult_t lrmoeHandoffSegments(struct lrmoeStep *step, const int64_t *kept,
                                   const int64_t *stayed) {
  lrmoeHandoff_t *handoff = &step->handoff;
  int64_t numInstances = step->numInstances;
  int64_t *offsets = NULL;
  int64_t *here = NULL;
  int32_t *experts = NULL;
  LRMOE_CHECK(LRMOE_RESERVE(step, lrmoeArrayHandoffOffsets, numInstances + 1,
                            &offsets));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayHandoffStayed, numInstances, &here));
  LRMOE_CHECK(
      LRMOE_RESERVE(step, lrmoeArrayHandoffExperts, numInstances, &experts));
  offsets[0] = 0;
  for (int32_t j = 0; j < numInstances; j++) {
    offsets[j + 1] = offsets[j] + kept[j];
    here[j] = stayed[j];
    experts[j] = lrmoeStepExpert(step, j);
  }
  handoff->offsets = offsets;
  handoff->stayed = here;
  handoff->experts = experts;
  handoff->x = step->xRows;
  handoff->numPairs = offsets[step->numInstances];
  handoff->numInstances = step->numInstances;
  lrmoeMeterAdd(&step->meter,
                handoff->numPairs *
                    (int64_t)(4 * sizeof(int64_t) + 2 * sizeof(float)));
  return lrmoeSuccess;
}
