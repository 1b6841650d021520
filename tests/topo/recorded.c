/* Where recorded machines are: see recorded.h. */
#include "topo/recorded.h"

#include <stdio.h>
#include <stdlib.h>

int recordedFolder(const char *folder, char *path, size_t bytes) {
  const char *shared = getenv("LRMOE_SHARED_DATA");
  int length =
      snprintf(path, bytes, "%s/%s",
               shared && *shared ? shared : LRMOE_DEFAULT_SHARED_DATA, folder);
  return length > 0 && (size_t)length < bytes;
}

int recordedPath(const char *folder, const char *file, char *path,
                 size_t bytes) {
  char whole[4000];
  if (!recordedFolder(folder, whole, sizeof whole)) return 0;
  snprintf(path, bytes, "%s/%s", whole, file);
  FILE *found = fopen(path, "rb");
  if (!found) {
    printf("skipped: %s (LRMOE_SHARED_DATA)\n", path);
    return 0;
  }
  fclose(found);
  return 1;
}
