/* Runs a fuzz target on every file of a folder, with any compiler: once as it
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

int main(int argc, char **argv) {
  DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
  if (!folder) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return EXIT_FAILURE;
  }
  int numFiles = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
    numFiles += runFile(path);
  }
  closedir(folder);
  printf("%d files\n", numFiles);
  return numFiles ? EXIT_SUCCESS : EXIT_FAILURE;
}
