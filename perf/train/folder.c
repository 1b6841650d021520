/* The folders of checkpoints: see folder.h, and trainCheckpointHold of
 * checkpoint.h. */
#include "perf/train/folder.h"

#include "perf/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "step_";
static const char partial[] = ".partial";

enum {
  keptFolders = 2,
  holdMs = 10000,
  pauseMs = 20
};

static void pathOf(const char *folder, int64_t step, int isPartial,
                   char path[trainPathRoom]) {
  snprintf(path, trainPathRoom, "%s/%s%012lld%s", folder, prefix,
           (long long)step, isPartial ? partial : "");
}

void trainFolderShard(const char *folder, int64_t step, int isPartial, int rank,
                      char path[trainPathRoom]) {
  snprintf(path, trainPathRoom, "%s/%s%012lld%s/rank_%d", folder, prefix,
           (long long)step, isPartial ? partial : "", rank);
}

/* ---- Reading folders ----------------------------------------------------- */

/* What a name in DIR is: the step of a whole checkpoint, or -1. */
static int64_t stepOf(const char *name) {
  char *end = NULL;
  size_t length = sizeof prefix - 1;
  if (strncmp(name, prefix, length) != 0) return -1;
  if (name[length] < '0' || name[length] > '9') return -1;
  int64_t step = strtoll(name + length, &end, 10);
  return *end ? -1 : step;
}

static int isLeftover(const char *name) {
  size_t length = strlen(name);
  size_t tail = sizeof partial - 1;
  return length > tail && strcmp(name + length - tail, partial) == 0 &&
         strncmp(name, prefix, sizeof prefix - 1) == 0;
}

static int newestFirst(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a;
  int64_t y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

/* No more than a few are ever there: each save removes the old ones. */
int trainFolderList(const char *folder, int64_t steps[trainMaxFolders]) {
  DIR *entries = opendir(folder);
  int count = 0;
  if (!entries) return 0;
  for (struct dirent *entry = readdir(entries);
       entry && count < trainMaxFolders; entry = readdir(entries)) {
    int64_t step = stepOf(entry->d_name);
    if (step >= 0) steps[count++] = step;
  }
  closedir(entries);
  qsort(steps, (size_t)count, sizeof *steps, newestFirst);
  return count;
}

int trainCheckpointIsThere(const char *folder) {
  int64_t steps[trainMaxFolders];
  return trainFolderList(folder, steps) > 0;
}

/* ---- Changing them ------------------------------------------------------- */

/* A folder of files, and nothing below them. */
static int removeFolder(const char *path) {
  DIR *entries = opendir(path);
  char name[trainPathRoom];
  int why = 0;
  if (!entries) return errno == ENOENT ? 0 : errno;
  for (struct dirent *entry = readdir(entries); entry;
       entry = readdir(entries)) {
    int used = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    if (entry->d_name[0] == '.' || used >= (int)sizeof name) continue;
    if (unlink(name)) why = errno;
  }
  closedir(entries);
  if (rmdir(path)) why = errno;
  return why;
}

static int removePartial(const char *folder) {
  DIR *entries = opendir(folder);
  char name[trainPathRoom];
  int why = 0;
  if (!entries) return errno;
  for (struct dirent *entry = readdir(entries); entry;
       entry = readdir(entries)) {
    int used = snprintf(name, sizeof name, "%s/%s", folder, entry->d_name);
    if (isLeftover(entry->d_name) && used < (int)sizeof name)
      why = removeFolder(name);
    if (why) break;
  }
  closedir(entries);
  return why;
}

int trainFolderBegin(const char *folder, int64_t step) {
  char path[trainPathRoom];
  int why = removePartial(folder);
  if (why) return why;
  pathOf(folder, step, 1, path);
  return mkdir(path, 0777) ? errno : 0;
}

/* Names in a folder last only when the folder itself was synced. */
static int syncFolder(const char *path) {
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  int why = fsync(folder) ? errno : 0;
  close(folder);
  return why;
}

int trainFolderCommit(const char *folder, int64_t step) {
  char from[trainPathRoom], to[trainPathRoom];
  int64_t steps[trainMaxFolders];
  pathOf(folder, step, 1, from);
  pathOf(folder, step, 0, to);
  int why = syncFolder(from);
  /* One of this step is there only if it was damaged and resumed over. */
  if (!why) why = removeFolder(to);
  if (!why && rename(from, to)) why = errno;
  if (!why) why = syncFolder(folder);
  if (why) return why;
  int count = trainFolderList(folder, steps);
  for (int i = keptFolders; i < count && !why; i++) {
    /* Under a name that says so: being removed it is not whole. */
    pathOf(folder, steps[i], 0, from);
    pathOf(folder, steps[i], 1, to);
    why = rename(from, to) ? errno : removeFolder(to);
  }
  return why;
}

/* ---- Holding ------------------------------------------------------------- */

enum toolExit trainCheckpointHold(const char *folder, struct toolError *error) {
  char path[trainPathRoom];
  const struct timespec pause = {0, (long)pauseMs * 1000000};
  if (mkdir(folder, 0777) && errno != EEXIST)
    return toolFail(error, toolBadInput, "--checkpoint %.200s: %s", folder,
                    strerror(errno));
  snprintf(path, sizeof path, "%s/lock", folder);
  /* Kept open, and by fork by all ranks too: flock belongs to them together. */
  int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock < 0)
    return toolFail(error, toolBadInput, "--checkpoint %.200s: %s", folder,
                    strerror(errno));
  for (int waited = 0; flock(lock, LOCK_EX | LOCK_NB); waited += pauseMs) {
    if (errno == EWOULDBLOCK && waited < holdMs) {
      nanosleep(&pause, NULL);
      continue;
    }
    close(lock);
    return toolFail(error, toolBadInput,
                    "--checkpoint %.200s: another run uses it", folder);
  }
  return toolGood;
}
