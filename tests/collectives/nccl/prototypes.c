/* Checks when it is compiled: every prototype of collectives/nccl/api.h, and
 * those of the stand-in, are nccl.h's.  NCCL's types stand in for ours. */
#include <nccl.h>

#include <stddef.h>
#include <stdint.h>

#define LRMOE_H /* leave the public header out */
#define LRMOE_COLLECTIVES_NCCL_CONFIG_H
#define lrmoeResult_t     ncclResult_t
#define lrmoeUniqueId     ncclUniqueId
#define lrmoeDataType_t   ncclDataType_t
#define lrmoeRedOp_t      ncclRedOp_t
#define lrmoeStream_t     cudaStream_t
#define lrmoeNcclConfig_t ncclConfig_t

#include "support/nccl/names.h"

extern const struct lrmoeNcclApi testNcclApi;

#define FIELD(type, field, symbol, parameters) .field = symbol,

const struct lrmoeNcclApi testNcclApi = {
    LRMOE_NCCL_REQUIRED(FIELD)
#if NCCL_VERSION_CODE >= 22700
        LRMOE_NCCL_OPTIONAL_227(FIELD)
#endif
#if NCCL_VERSION_CODE >= 22800
            LRMOE_NCCL_OPTIONAL_228(FIELD)
#endif
#if NCCL_VERSION_CODE >= 22900
                LRMOE_NCCL_OPTIONAL_229(FIELD)
#endif
};

/* A second declaration must agree with the first. */
#define AGAIN(type, field, symbol, parameters) \
  type symbol parameters;                      \
  type p##symbol parameters;
LRMOE_NCCL_REQUIRED(AGAIN)
#if NCCL_VERSION_CODE >= 22700
LRMOE_NCCL_OPTIONAL_227(AGAIN)
#endif
STANDIN_MORE(AGAIN)
