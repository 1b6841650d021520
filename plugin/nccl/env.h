/* NCCL's environment plugin interface, version 1 (NCCL 2.28 and newer): facts
 * of its ABI, in our own words.  tests/plugin/env_test.c pins the offsets. */
#ifndef LRMOE_PLUGIN_NCCL_ENV_H
#define LRMOE_PLUGIN_NCCL_ENV_H

#include "lrmoe.h"

struct lrmoeNcclEnvPlugin {
  const char *name;
  lrmoeResult_t (*init)(uint8_t major, uint8_t minor, uint8_t patch,
                        const char *suffix);
  lrmoeResult_t (*finalize)(void);
  /* The value of an NCCL_* variable, NULL: not set. */
  const char *(*getEnv)(const char *name);
};

/* What NCCL looks for. */
extern const struct lrmoeNcclEnvPlugin ncclEnvPlugin_v1;

#endif
