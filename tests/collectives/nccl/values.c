/* Checks when it is compiled: the values and the layout of
 * collectives/nccl/config.h against nccl.h. */
#include "values.h"

#include "collectives/nccl/config.h"
#include "collectives/transport.h"

#include <nccl.h>

#define SAME(ours, theirs) \
  _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs)
#define SAME_PLACE(field)                                                  \
  SAME(offsetof(lrmoeNcclConfig_t, field), offsetof(ncclConfig_t, field)); \
  SAME(sizeof(((lrmoeNcclConfig_t *)0)->field),                            \
       sizeof(((ncclConfig_t *)0)->field))

SAME_PLACE(size);
SAME_PLACE(magic);
SAME_PLACE(version);
SAME_PLACE(blocking);
SAME_PLACE(cgaClusterSize);
SAME_PLACE(minCTAs);
SAME_PLACE(maxCTAs);
SAME_PLACE(netName);
SAME_PLACE(splitShare);
_Static_assert(sizeof(lrmoeNcclConfig_t) <= sizeof(ncclConfig_t),
               "the config is larger than NCCL's");
SAME(lrmoeNcclConfigVersion, NCCL_VERSION(2, 18, 0));
SAME(lrmoeWindowSymmetric, NCCL_WIN_COLL_SYMMETRIC);
SAME(NCCL_SPLIT_NOCOLOR, -1);
SAME(NCCL_CONFIG_UNDEF_INT, INT_MIN);

unsigned testNcclConfigMagic(void) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config.magic;
}

int testNcclConfigUnset(void) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config.blocking;
}
