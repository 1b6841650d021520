/* Memory of the backend, and what the host and the backend both have.
 *
 * Routes are worked out on the host and used by kernels.  On a host backend
 * both see one array and the calls below hand pointers through; on a device
 * they copy, by way of page-locked memory, in the order of the stream. */
#ifndef LRMOE_COLLECTIVES_MEMORY_H
#define LRMOE_COLLECTIVES_MEMORY_H

#include "kernels/backend.h"

/* A grow-only block of backend memory. */
struct lrmoeBlock {
  void *data;
  size_t bytes; /* room */
};

/* Makes room; contents are lost when the block has to grow, which waits for
 * the stream. */
lrmoeResult_t lrmoeBlockReserve(const struct lrmoeBackend *backend,
                                size_t bytes, lrmoeStream_t stream,
                                struct lrmoeBlock *block);
void lrmoeBlockFree(const struct lrmoeBackend *backend,
                    struct lrmoeBlock *block);

/* The other side's copy of an array; unused on a host backend. */
struct lrmoeTwin {
  struct lrmoeBlock device;
  void *pinned;
  size_t pinnedBytes;
  void *event; /* the last copy from or to pinned */
};

/* *device = host's bytes for work that is enqueued on the stream from now on,
 * until the twin's next copy.  host may change at once. */
lrmoeResult_t lrmoeTwinUpload(const struct lrmoeBackend *backend,
                              struct lrmoeTwin *twin, const void *host,
                              size_t bytes, lrmoeStream_t stream,
                              void **device);

/* *host = device's bytes, to be read after the stream has been waited for. */
lrmoeResult_t lrmoeTwinDownload(const struct lrmoeBackend *backend,
                                struct lrmoeTwin *twin, const void *device,
                                size_t bytes, lrmoeStream_t stream,
                                void **host);
void lrmoeTwinFree(const struct lrmoeBackend *backend, struct lrmoeTwin *twin);

#endif
