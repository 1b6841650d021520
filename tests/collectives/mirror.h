/* Arrays of a test that the library reads or writes, in the memory of the
 * communicator's backend.  On a host backend they are the test's own. */
#ifndef LRMOE_TESTS_MIRROR_H
#define LRMOE_TESTS_MIRROR_H

#include "kernels/backend.h"

#include <stddef.h>

struct mirror {
  void *host;
  void *device;
  size_t bytes;
  struct mirror *next;
};

struct mirrors {
  const struct lrmoeBackend *backend;
  struct mirror *first;
  struct mirror *inherited; /* from here on they are another's */
};

/* Adds an array; its contents are copied. */
void mirrorAdd(struct mirrors *mirrors, const void *host, int64_t bytes);

/* Where the library finds it; NULL for NULL and for empty arrays. */
void *mirrorOf(const struct mirrors *mirrors, const void *host);

/* Copies it there, or back. */
void mirrorPush(const struct mirrors *mirrors, const void *host);
void mirrorPull(const struct mirrors *mirrors, void *host);

/* Copies from any place of the backend's memory. */
void mirrorFetch(const struct mirrors *mirrors, const void *device,
                 int64_t bytes, void *host);

void mirrorsFree(struct mirrors *mirrors);

#endif
