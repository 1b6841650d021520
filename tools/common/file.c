/* Files that programs write: see file.h. */
#include "tools/common/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether path is there and not a regular file. */
static int isSpecial(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* The folder of path, where the temporary file will be. */
static void folderOf(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) : 1;
  snprintf(folder, PATH_MAX, "%.*s", slash ? (int)length : 1,
           slash ? path : ".");
  if (slash == path) snprintf(folder, PATH_MAX, "/");
}

enum toolExit toolFileProbe(const char *option, const char *path,
                            struct toolError *error) {
  char folder[PATH_MAX];
  folderOf(path, folder);
  struct stat status;
  int isFolder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  if (*path && strlen(path) < PATH_MAX - 16 && !isFolder &&
      !access(isSpecial(path) ? path : folder, W_OK))
    return toolGood;
  return toolFail(error, toolBadInput, "option --%s: \"%.200s\" %s", option,
                  path, isFolder ? "is a folder" : "cannot be written");
}

/* Writes and closes; whether that failed. */
static int writeTo(FILE *file, const char *data, size_t bytes) {
  int isBad = fwrite(data, 1, bytes, file) != bytes;
  isBad |= fflush(file) != 0;
  return (fclose(file) != 0) | isBad;
}

static int writeDirectly(const char *path, const char *data, size_t bytes) {
  FILE *file = fopen(path, "w");
  return file ? writeTo(file, data, bytes) : 1;
}

/* A new file has the rights that open() would have given it. */
static mode_t newFileMode(void) {
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

static int writeAndRename(const char *path, const char *data, size_t bytes) {
  char target[PATH_MAX], temporary[PATH_MAX + 8];
  if (!realpath(path, target)) /* a new file, or a link to one */
    snprintf(target, sizeof target, "%s", path);
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", target);
  int descriptor = mkstemp(temporary);
  if (descriptor < 0) return 1;
  fchmod(descriptor, newFileMode());
  FILE *file = fdopen(descriptor, "w");
  if (!file) {
    close(descriptor);
    unlink(temporary);
    return 1;
  }
  if (!writeTo(file, data, bytes) && rename(temporary, target) == 0) return 0;
  int why = errno;
  unlink(temporary);
  errno = why;
  return 1;
}

enum toolExit toolFileWrite(const char *option, const char *path,
                            const char *data, size_t bytes,
                            struct toolError *error) {
  if (isSpecial(path) ? !writeDirectly(path, data, bytes)
                      : !writeAndRename(path, data, bytes))
    return toolGood;
  return toolFail(error, toolBadInput, "option --%s: \"%.200s\": %s", option,
                  path, strerror(errno));
}
