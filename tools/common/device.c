/* Which GPU a rank takes: see device.h. */
#include "tools/common/device.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's; 0: it does not say. */
static int countGpus(void) {
  int count = 0;
  DIR *folder = opendir("/proc/driver/nvidia/gpus");
  if (!folder) return 0;
  for (const struct dirent *entry = readdir(folder); entry;
       entry = readdir(folder))
    count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

static int countEntries(const char *list) {
  int count = 1;
  for (; *list; list++)
    count += *list == ',';
  return count;
}

/* Entry i of a list that commas separate. */
static void copyEntry(const char *list, int i, char *entry, size_t room) {
  for (; i > 0; i--)
    list = strchr(list, ',') + 1;
  snprintf(entry, room, "%.*s", (int)strcspn(list, ","), list);
}

void toolDeviceChoose(int rank) {
  char entry[100];
  const char *backend = getenv("LRMOE_BACKEND");
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!backend || strcmp(backend, "cuda") != 0) return;
  if (visible && *visible) {
    copyEntry(visible, rank % countEntries(visible), entry, sizeof entry);
  } else {
    int numGpus = countGpus();
    snprintf(entry, sizeof entry, "%d", numGpus ? rank % numGpus : rank);
  }
  setenv("CUDA_VISIBLE_DEVICES", entry, 1);
}
