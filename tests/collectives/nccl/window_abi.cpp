/* Checks when it is compiled: what collectives/nccl/window_228.c reads of a
 * window, and ncclTeam_t, lie as NCCL 2.28 has them, and device communicators
 * are made by functions of pointers as api.h has them. */
#include <nccl.h>

#if NCCL_VERSION_CODE >= 22800
#include <cuda_runtime.h>
#include <nccl_device.h>

#include <type_traits>

static_assert(
    std::is_same<decltype(&ncclDevCommCreate),
                 ncclResult_t (*)(ncclComm_t, const ncclDevCommRequirements *,
                                  ncclDevComm *)>::value &&
        std::is_same<decltype(&ncclDevCommDestroy),
                     ncclResult_t (*)(ncclComm_t, const ncclDevComm *)>::value,
    "NCCL has other prototypes");
#endif

#if NCCL_VERSION_CODE >= 22800 && NCCL_VERSION_CODE < 22900
#include <cuda_runtime.h>
#include <nccl_device.h>

#include <cstddef>
#include <cstdint>

struct Window228 {
  void *winHost;
  char *lsaFlatBase;
  int lsaRank;
  int worldRank;
  uint32_t stride4G;
};

#define SAME(field)                                            \
  static_assert(offsetof(Window228, field) ==                  \
                    offsetof(struct ncclWindow_vidmem, field), \
                "NCCL 2.28 has " #field " elsewhere")
SAME(winHost);
SAME(lsaFlatBase);
SAME(lsaRank);
SAME(worldRank);
SAME(stride4G);
static_assert(sizeof(ncclTeam_t) == 3 * sizeof(int) &&
                  offsetof(ncclTeam_t, nRanks) == 0,
              "NCCL 2.28 has another team");
#endif
