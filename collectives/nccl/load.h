/* Finding NCCL. */
#ifndef LRMOE_COLLECTIVES_NCCL_LOAD_H
#define LRMOE_COLLECTIVES_NCCL_LOAD_H

#include "collectives/nccl/api.h"

struct lrmoeNccl {
  struct lrmoeNcclApi api;
  int version; /* as ncclGetVersion gives it */
  const char *versionText;
  const char *file;
};

/* This process's NCCL, found by the first call that succeeds and then kept for
 * good.  Any thread.  mustBeHere: fails where the process has none of its own,
 * instead of loading one, whose handles would not be those of the program. */
lrmoeResult_t lrmoeNcclLoad(int mustBeHere, const struct lrmoeNccl **nccl);

/* The same if it is loaded, else NULL. */
const struct lrmoeNccl *lrmoeNcclLoaded(void);

#endif
