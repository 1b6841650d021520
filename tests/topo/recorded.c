/* Recorded machines: see recorded.h. */
#include "topo/recorded.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

lrmoeTopology_t recordedOpen(const char *folder, const char *file, int ranks,
                             int domains) {
  char path[4400];
  lrmoeTopology_t t = NULL;
  if (!recordedPath(folder, file, path, sizeof path)) return NULL;
  ASSERT_OK(openFile(path, &t));
  lrmoeTopologyInfo_t info = infoOf(t);
  ck_assert_msg(info.numRanks == ranks, "%s: %d ranks", file, info.numRanks);
  ck_assert_msg(info.numDomains == domains, "%s: %d domains", file,
                info.numDomains);
  ck_assert_int_eq(info.numHosts, 1);
  return t;
}

void recordedWay(lrmoeTopology_t topology, const char *file, int to,
                 lrmoeLinkClass_t linkClass, int64_t megabytes) {
  lrmoeLink_t link = linkOf(topology, 0, to);
  long long found = (long long)(link.bytesPerSecond / 1000000);
  ck_assert_msg(link.linkClass == linkClass && found == megabytes,
                "%s: 0 -> %d: class %d at %lld MB/s, not %d at %lld", file, to,
                (int)link.linkClass, found, (int)linkClass,
                (long long)megabytes);
}

void recordedRefused(const char *folder, const struct refusedFile *refused) {
  char path[4400];
  if (!recordedPath(folder, refused->file, path, sizeof path)) return;
  lrmoeTopology_t t = NULL;
  ASSERT_RESULT(openFile(path, &t), refused->result);
  ck_assert_ptr_null(t);
  ck_assert_msg(strstr(lrmoeGetLastError(), refused->message) != NULL,
                "%s: \"%s\"", refused->file, lrmoeGetLastError());
}

static int isXml(const char *name) {
  const char *end = strrchr(name, '.');
  return end && strcmp(end, ".xml") == 0;
}

int recordedEach(const char *folder,
                 void (*visit)(void *context, const char *path,
                               const char *name),
                 void *context) {
  char whole[4000], path[4400];
  int count = 0;
  ck_assert(recordedFolder(folder, whole, sizeof whole));
  DIR *directory = opendir(whole);
  if (!directory) printf("skipped: %s (LRMOE_SHARED_DATA)\n", whole);
  for (struct dirent *entry; directory && (entry = readdir(directory));) {
    if (!isXml(entry->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", whole, entry->d_name);
    visit(context, path, entry->d_name);
    count++;
  }
  if (directory) closedir(directory);
  return count;
}

struct listing {
  const struct recordedTable *tables;
  int numTables;
};

static void checkListed(void *context, const char *path, const char *name) {
  const struct listing *listing = context;
  int isListed = 0;
  (void)path;
  for (int i = 0; i < listing->numTables; i++) {
    const struct recordedTable *table = &listing->tables[i];
    for (size_t row = 0; row < table->numRows; row++) {
      const void *at = (const char *)table->rows + row * table->rowBytes;
      isListed |= strcmp(*(const char *const *)at, name) == 0;
    }
  }
  ck_assert_msg(isListed, "%s has no line", name);
}

void recordedAllListed(const char *folder, const struct recordedTable *tables,
                       int numTables) {
  struct listing listing = {tables, numTables};
  recordedEach(folder, checkListed, &listing);
}
