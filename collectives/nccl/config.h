/* NCCL's ncclConfig_t, as far as this library sets it.
 *
 * NCCL reads no more than `size` bytes and takes the defaults of `version` for
 * what lies behind, so the layout of 2.18 serves every later release. */
#ifndef LRMOE_COLLECTIVES_NCCL_CONFIG_H
#define LRMOE_COLLECTIVES_NCCL_CONFIG_H

#include <limits.h>
#include <stddef.h>

typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char *netName;
  int splitShare;
} lrmoeNcclConfig_t;

enum {
  lrmoeNcclConfigVersion = 21800
};
#define LRMOE_NCCL_CONFIG_MAGIC 0xcafebeefu

/* All left to NCCL but `blocking`. */
#define LRMOE_NCCL_CONFIG(blocking)                                          \
  {                                                                          \
    sizeof(lrmoeNcclConfig_t), LRMOE_NCCL_CONFIG_MAGIC,                      \
        lrmoeNcclConfigVersion, (blocking), INT_MIN, INT_MIN, INT_MIN, NULL, \
        INT_MIN                                                              \
  }

#endif
