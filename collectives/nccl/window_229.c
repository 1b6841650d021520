/* Pointers into peers' windows, as of NCCL 2.29: see window.h. */
#include "collectives/nccl/call.h"
#include "collectives/nccl/window.h"

lrmoeResult_t lrmoeNcclWindow229Pointer(struct ncclWindow_vidmem *window,
                                        size_t offset, int peer,
                                        void **pointer) {
  static const char name[] = "ncclGetPeerDevicePointer";
  const struct lrmoeNcclApi *api = &lrmoeNcclLoaded()->api;
  void *found = NULL;
  LRMOE_REQUIRE(window && pointer, "window or pointer is NULL");
  lrmoeResult_t got = api->getPeerPointer(window, offset, peer, &found);
  if (got != lrmoeSuccess) return lrmoeNcclFail(api, name, got);
  if (!found)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "%s: the memory of rank %d cannot be addressed", name,
                      peer);
  *pointer = found;
  return lrmoeSuccess;
}
