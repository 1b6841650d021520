/* Memory of the backend: see memory.h. */
#include "collectives/memory.h"

#include "base/copy.h"

#include <string.h>

/* Steps of a run differ a little: room for an eighth more. */
static size_t roomFor(size_t bytes) {
  return bytes + bytes / 8 + 64;
}

lrmoeResult_t lrmoeBlockReserve(const struct lrmoeBackend *backend,
                                size_t bytes, lrmoeStream_t stream,
                                struct lrmoeBlock *block) {
  if (bytes <= block->bytes && block->data) return lrmoeSuccess;
  size_t room = roomFor(bytes);
  void *data = NULL;
  LRMOE_RUN(backend, memAlloc, room, &data);
  lrmoeResult_t result = backend->synchronize(stream);
  if (result != lrmoeSuccess) backend->memFree(data);
  LRMOE_CHECK(lrmoeBackendSettle(backend, "synchronize", result));
  lrmoeBlockFree(backend, block);
  block->data = data;
  block->bytes = room;
  return lrmoeSuccess;
}

void lrmoeBlockFree(const struct lrmoeBackend *backend,
                    struct lrmoeBlock *block) {
  if (block->data) backend->memFree(block->data);
  *block = (struct lrmoeBlock){0};
}

/* Room in page-locked memory that no copy uses any more. */
static lrmoeResult_t openPinned(const struct lrmoeBackend *backend,
                                struct lrmoeTwin *twin, size_t bytes) {
  if (!twin->event)
    LRMOE_RUN(backend, eventCreate, &twin->event);
  else
    LRMOE_RUN(backend, eventWait, twin->event);
  if (twin->pinned && bytes <= twin->pinnedBytes) return lrmoeSuccess;
  void *pinned = NULL;
  LRMOE_RUN(backend, hostAlloc, roomFor(bytes), &pinned);
  if (twin->pinned) backend->hostFree(twin->pinned);
  twin->pinned = pinned;
  twin->pinnedBytes = roomFor(bytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTwinUpload(const struct lrmoeBackend *backend,
                              struct lrmoeTwin *twin, const void *host,
                              size_t bytes, lrmoeStream_t stream,
                              void **device) {
  if (backend->isHost) {
    memcpy(device, &host, sizeof host);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(openPinned(backend, twin, bytes));
  LRMOE_CHECK(lrmoeBlockReserve(backend, bytes, stream, &twin->device));
  if (bytes) lrmoeCopyBytes(twin->pinned, host, bytes);
  LRMOE_RUN(backend, copy, twin->device.data, twin->pinned, bytes,
            lrmoeCopyToDevice, stream);
  LRMOE_RUN(backend, eventRecord, twin->event, stream);
  *device = twin->device.data;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTwinDownload(const struct lrmoeBackend *backend,
                                struct lrmoeTwin *twin, const void *device,
                                size_t bytes, lrmoeStream_t stream,
                                void **host) {
  if (backend->isHost) {
    memcpy(host, &device, sizeof device);
    return lrmoeSuccess;
  }
  LRMOE_CHECK(openPinned(backend, twin, bytes));
  LRMOE_RUN(backend, copy, twin->pinned, device, bytes, lrmoeCopyToHost,
            stream);
  LRMOE_RUN(backend, eventRecord, twin->event, stream);
  *host = twin->pinned;
  return lrmoeSuccess;
}

void lrmoeTwinFree(const struct lrmoeBackend *backend, struct lrmoeTwin *twin) {
  lrmoeBlockFree(backend, &twin->device);
  if (twin->pinned) backend->hostFree(twin->pinned);
  if (twin->event) backend->eventDestroy(twin->event);
  *twin = (struct lrmoeTwin){0};
}
