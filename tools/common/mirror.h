/* Arrays that a program fills and reads, and that the library works on: the
 * same program then runs on CPUs and on GPUs. */
#ifndef LRMOE_TOOLS_MIRROR_H
#define LRMOE_TOOLS_MIRROR_H

#include "tools/common/ranks.h"

struct toolMirror {
  void *host;
  void *memory; /* of lrmoeMemAlloc */
  size_t bytes;
};

/* Both zeroed; no bytes give memory too. */
enum toolExit toolMirrorMake(const struct toolRank *self, int64_t bytes,
                             struct toolMirror *mirror);

/* Host to memory, and back. */
lrmoeResult_t toolMirrorPush(const struct toolMirror *mirror);
lrmoeResult_t toolMirrorPull(const struct toolMirror *mirror);

/* Both to zero. */
lrmoeResult_t toolMirrorClear(const struct toolMirror *mirror);

void toolMirrorFree(struct toolMirror *mirror);

#endif
