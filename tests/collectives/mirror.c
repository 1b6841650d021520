/* Arrays in the backend's memory: see mirror.h. */
#include "mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(const struct mirrors *mirrors, lrmoeResult_t result) {
  if (lrmoeBackendSettle(mirrors->backend, "mirror", result) == lrmoeSuccess)
    return;
  _exit(3); /* a fault that a test has planted, or the test fails */
}

static const struct mirror *find(const struct mirrors *mirrors,
                                 const void *host) {
  for (const struct mirror *m = mirrors->first; m; m = m->next)
    if (m->host == host) return m;
  fprintf(stderr, "an array has no mirror\n");
  abort();
}

void mirrorAdd(struct mirrors *mirrors, const void *host, int64_t bytes) {
  if (mirrors->backend->isHost) return;
  struct mirror *made = malloc(sizeof *made);
  if (!made) abort();
  *made = (struct mirror){(void *)host, NULL, (size_t)bytes, mirrors->first};
  must(mirrors, mirrors->backend->memAlloc(made->bytes + 1, &made->device));
  mirrors->first = made;
  mirrorPush(mirrors, host);
}

void *mirrorOf(const struct mirrors *mirrors, const void *host) {
  if (!host || mirrors->backend->isHost) return (void *)host;
  return find(mirrors, host)->device;
}

void mirrorPush(const struct mirrors *mirrors, const void *host) {
  if (mirrors->backend->isHost) return;
  const struct mirror *m = find(mirrors, host);
  must(mirrors, mirrors->backend->copy(m->device, m->host, m->bytes,
                                       lrmoeCopyToDevice, NULL));
  must(mirrors, mirrors->backend->synchronize(NULL));
}

void mirrorPull(const struct mirrors *mirrors, void *host) {
  if (mirrors->backend->isHost) return;
  const struct mirror *m = find(mirrors, host);
  mirrorFetch(mirrors, m->device, (int64_t)m->bytes, host);
}

void mirrorFetch(const struct mirrors *mirrors, const void *device,
                 int64_t bytes, void *host) {
  must(mirrors, mirrors->backend->copy(host, device, (size_t)bytes,
                                       lrmoeCopyToHost, NULL));
  must(mirrors, mirrors->backend->synchronize(NULL));
}

void mirrorsFree(struct mirrors *mirrors) {
  while (mirrors->first != mirrors->inherited) {
    struct mirror *m = mirrors->first;
    mirrors->first = m->next;
    mirrors->backend->memFree(m->device);
    free(m);
  }
}
