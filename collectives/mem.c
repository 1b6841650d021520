/* Memory of the caller's: see lrmoe.h. */
#include "base/copy.h"
#include "collectives/comm.h"

lrmoeResult_t lrmoeMemAlloc(size_t bytes, void **pointer) {
  const struct lrmoeTransport *transport = NULL;
  LRMOE_REQUIRE(pointer, "pointer is NULL");
  LRMOE_CHECK(lrmoeTransportChoose(&transport));
  return transport->memAlloc(pointer, bytes);
}

/* Goes by the block, not by the parameter, which may have changed since. */
lrmoeResult_t lrmoeMemFree(void *pointer) {
  const struct lrmoeTransport *nccl = lrmoeNcclTransportLoaded();
  if (!pointer) return lrmoeSuccess;
  if (nccl && !lrmoeCpuMemHolds(pointer)) return nccl->memFree(pointer);
  return lrmoeCpuTransport.memFree(pointer);
}

/* NULL: the host's own. */
static lrmoeResult_t findBackend(const void *memory,
                                 const struct lrmoeBackend **backend) {
  *backend = NULL;
  if (!lrmoeNcclTransportLoaded() || lrmoeCpuMemHolds(memory))
    return lrmoeSuccess;
  return lrmoeBackendLoad("cuda", backend);
}

static lrmoeResult_t copy(void *to, const void *from, size_t bytes,
                          enum lrmoeCopyKind kind) {
  const struct lrmoeBackend *backend = NULL;
  if (!bytes) return lrmoeSuccess;
  LRMOE_REQUIRE(to && from, "memory or host is NULL");
  LRMOE_CHECK(findBackend(kind == lrmoeCopyToDevice ? to : from, &backend));
  if (!backend) {
    lrmoeCopyBytes(to, from, bytes);
    return lrmoeSuccess;
  }
  LRMOE_RUN(backend, copy, to, from, bytes, kind, NULL);
  LRMOE_RUN(backend, synchronize, NULL);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeMemWrite(void *memory, const void *host, size_t bytes) {
  return copy(memory, host, bytes, lrmoeCopyToDevice);
}

lrmoeResult_t lrmoeMemRead(void *host, const void *memory, size_t bytes) {
  return copy(host, memory, bytes, lrmoeCopyToHost);
}
