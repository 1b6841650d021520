/* Calibration profiles in files.  A profile is written beside its place and
 * renamed, so that a rank that reads it finds a whole one. */
#include "base/alloc.h"
#include "topo/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  maxProfileBytes = 1 << 20
};

/* Whether path is there and not a regular file: then it is written itself. */
static bool isSpecial(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* Writes text to a file that must be new, or to what is no regular file; 0 or
 * errno. */
static int writeText(const char *path, const char *text, int isNew) {
  int flags = O_WRONLY | O_CLOEXEC | (isNew ? O_CREAT | O_EXCL : 0);
  int descriptor = open(path, flags, 0666);
  FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "w");
  if (!file) return errno;
  int why = fprintf(file, "%s\n", text) < 0 || fflush(file) != 0 ? errno : 0;
  if (fclose(file) != 0 && !why) why = errno;
  return why;
}

static int replaceFile(const char *path, const char *text) {
  char beside[PATH_MAX];
  int length = snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
  if (length >= (int)sizeof beside) return ENAMETOOLONG;
  int why = writeText(beside, text, 1);
  if (!why && rename(beside, path) != 0) why = errno;
  if (why && why != EEXIST) unlink(beside);
  return why;
}

static lrmoeResult_t writeFile(const char *path, const char *text) {
  int why =
      isSpecial(path) ? writeText(path, text, 0) : replaceFile(path, text);
  if (!why) return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeSystemError, "cannot write the profile %s: %s", path,
                    strerror(why));
}

lrmoeResult_t lrmoeTopologySaveProfile(lrmoeTopology_t topology,
                                       const char *path) {
  LRMOE_REQUIRE(topology && path, "%s is NULL", topology ? "path" : "topology");
  char *text = NULL;
  LRMOE_CHECK(lrmoeProfileWrite(topology, &text));
  lrmoeResult_t result = writeFile(path, text);
  free(text);
  return result;
}

/* Reads at most a byte more than a profile may have. */
static lrmoeResult_t readFile(const char *path, char *text, size_t *bytes) {
  FILE *file = fopen(path, "r");
  if (!file)
    return LRMOE_FAIL(lrmoeSystemError, "cannot read the profile %s: %s", path,
                      strerror(errno));
  *bytes = fread(text, 1, maxProfileBytes + 1, file);
  int isBad = ferror(file);
  int why = errno;
  fclose(file);
  if (isBad)
    return LRMOE_FAIL(lrmoeSystemError, "cannot read the profile %s: %s", path,
                      strerror(why));
  if (*bytes > maxProfileBytes)
    return LRMOE_FAIL(lrmoeCorrupt, "%s is longer than a profile can be", path);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTopologyLoadProfile(lrmoeTopology_t topology,
                                       const char *path) {
  LRMOE_REQUIRE(topology && path, "%s is NULL", topology ? "path" : "topology");
  char *text = NULL;
  size_t bytes = 0;
  LRMOE_CHECK(LRMOE_ALLOCATE(maxProfileBytes + 1, &text));
  lrmoeResult_t result = readFile(path, text, &bytes);
  if (result == lrmoeSuccess)
    result = lrmoeProfileRead(path, text, bytes, topology);
  lrmoeFree(text);
  return result;
}
