/* Arrays on both sides: see mirror.h. */
#include "tools/common/mirror.h"

#include <stdlib.h>
#include <string.h>

enum toolExit toolMirrorMake(const struct toolRank *self, int64_t bytes,
                             struct toolMirror *mirror) {
  size_t room = bytes > 0 ? (size_t)bytes : 1;
  *mirror = (struct toolMirror){calloc(room, 1), NULL, (size_t)bytes};
  if (!mirror->host) return toolRankFail(self, lrmoeSuccess, "out of memory");
  TOOL_RANK_OK(self, lrmoeMemAlloc(room, &mirror->memory));
  TOOL_RANK_OK(self, toolMirrorPush(mirror));
  return toolGood;
}

lrmoeResult_t toolMirrorPush(const struct toolMirror *mirror) {
  return lrmoeMemWrite(mirror->memory, mirror->host, mirror->bytes);
}

lrmoeResult_t toolMirrorPull(const struct toolMirror *mirror) {
  return lrmoeMemRead(mirror->host, mirror->memory, mirror->bytes);
}

lrmoeResult_t toolMirrorClear(const struct toolMirror *mirror) {
  if (mirror->bytes) memset(mirror->host, 0, mirror->bytes);
  return toolMirrorPush(mirror);
}

void toolMirrorFree(struct toolMirror *mirror) {
  free(mirror->host);
  lrmoeMemFree(mirror->memory);
  *mirror = (struct toolMirror){NULL, NULL, 0};
}
