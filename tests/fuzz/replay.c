/* Runs a fuzz target on every file of folders, with any compiler: once as it
 * is, once cut off at every length, and once with every byte inverted. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* From a block of exactly that length, so that ASan sees a read past it. */
static void run(const uint8_t *data, size_t bytes) {
  uint8_t *copy = malloc(bytes ? bytes : 1);
  FUZZ_CHECK(copy != NULL);
  memcpy(copy, data, bytes);
  LLVMFuzzerTestOneInput(copy, bytes);
  free(copy);
}

static void runVariants(uint8_t *data, size_t bytes) {
  run(data, bytes);
  for (size_t i = 0; i < bytes; i++) {
    run(data, i);
    data[i] ^= 0xff;
    run(data, bytes);
    data[i] ^= 0xff;
  }
}

static int runFile(const char *path) {
  static uint8_t data[1 << 16];
  struct stat status;
  if (stat(path, &status) || !S_ISREG(status.st_mode)) return 0;
  FILE *file = fopen(path, "rb");
  FUZZ_CHECK(file != NULL);
  size_t bytes = fread(data, 1, sizeof data, file);
  fclose(file);
  runVariants(data, bytes);
  return 1;
}

static int runFolder(const char *name) {
  DIR *folder = opendir(name);
  int numFiles = 0;
  if (!folder) {
    fprintf(stderr, "%s is no folder\n", name);
    return 0;
  }
  for (struct dirent *entry; (entry = readdir(folder));) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", name, entry->d_name);
    numFiles += runFile(path);
  }
  closedir(folder);
  printf("%s: %d files\n", name, numFiles);
  return numFiles;
}

int main(int argc, char **argv) {
  int isGood = argc > 1;
  if (argc < 2) fprintf(stderr, "usage: %s FOLDER...\n", argv[0]);
  for (int i = 1; i < argc; i++)
    if (!runFolder(argv[i])) isGood = 0;
  return isGood ? EXIT_SUCCESS : EXIT_FAILURE;
}
