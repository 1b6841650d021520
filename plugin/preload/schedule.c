/* The order of a group's messages: see schedule.h. */
#include "plugin/preload/schedule.h"

#include <stdlib.h>

/* Position in the group, before and after. */
struct place {
  int64_t step; /* -1: not in an order */
  int64_t index;
};

static int64_t stepOf(const struct lrmoePreloadCall *call) {
  const struct lrmoePreloadComm *comm = call->comm;
  if (!comm->places || !call->isDeferred) return -1;
  return 2 * (int64_t)(call->isSend ? comm->places
                                    : comm->sources)[call->peer] +
         !call->isSend;
}

static int comparePlaces(const void *a, const void *b) {
  const struct place *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return x->index < y->index ? -1 : x->index > y->index;
}

/* Without memory they keep their order. */
void lrmoePreloadSort(struct lrmoePreloadCall *calls, int64_t numCalls) {
  struct place *places = NULL;
  struct lrmoePreloadCall *sorted = NULL;
  int numOrdered = 0;
  for (int64_t i = 0; i < numCalls; i++)
    numOrdered += stepOf(&calls[i]) >= 0;
  if (!numOrdered) return;
  if (LRMOE_ALLOCATE(numCalls, &places) == lrmoeSuccess &&
      LRMOE_ALLOCATE(numCalls, &sorted) == lrmoeSuccess) {
    for (int64_t i = 0; i < numCalls; i++)
      places[i] = (struct place){stepOf(&calls[i]), i};
    qsort(places, (size_t)numCalls, sizeof *places, comparePlaces);
    for (int64_t i = 0; i < numCalls; i++)
      sorted[i] = calls[places[i].index];
    for (int64_t i = 0; i < numCalls; i++)
      calls[i] = sorted[i];
  }
  lrmoeFree(places);
  lrmoeFree(sorted);
}
