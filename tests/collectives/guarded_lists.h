/* What the guarded device's files share: see guarded.h. */
#ifndef LRMOE_TESTS_GUARDED_LISTS_H
#define LRMOE_TESTS_GUARDED_LISTS_H

#include "kernels/backend.h"

void guardedEnter(void);
void guardedLeave(void);

/* Empty arrays may point anywhere. */
void guardedMustBeDevice(const void *pointer, int64_t count, const char *what);

/* A call of the CPU backend within the arena. */
#define GUARDED_INSIDE(call) \
  guardedEnter();            \
  lrmoeResult_t done = call; \
  guardedLeave();            \
  return done

/* Adds selection and the calls of kernels/lists.h. */
void guardedListsAdd(struct lrmoeBackend *backend);

#endif
