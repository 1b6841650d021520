/* The programs under test.
 *
 *   user SCENARIO RANKS ZERO-PERCENT ROWS [RANK:NAME=VALUE ...]
 *
 * starts itself once a rank, with the given changes of a rank's environment
 * (an empty VALUE unsets it), and prints what each rank has received as a hash,
 * in the order of ranks.  With USER_LOADED=FILE it is not linked with NCCL: the
 * ranks' part is a library that it opens RTLD_LOCAL. */
#include "user.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct entries {
  userScenario (*find)(const char *name);
  ncclResult_t (*getUniqueId)(ncclUniqueId *id);
};

/* POSIX gives functions as data pointers; ISO C has no cast for it. */
static int load(struct entries *entries) {
#ifdef USER_LOADED
  void *handle = dlopen(USER_LOADED, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return 1;
  *(void **)&entries->find = dlsym(handle, "userFind");
  *(void **)&entries->getUniqueId = dlsym(handle, "userUniqueId");
#else
  entries->find = userFind;
  entries->getUniqueId = ncclGetUniqueId;
#endif
  return !entries->find || !entries->getUniqueId;
}

/* ---- A rank ---- */

static void readIds(const char *text, ncclUniqueId *ids) {
  for (size_t i = 0; i < 2 * sizeof *ids; i++) {
    unsigned byte = 0;
    sscanf(text + 2 * i, "%2x", &byte);
    ((unsigned char *)ids)[i] = (unsigned char)byte;
  }
}

static int runRank(const struct entries *entries, char **argv) {
  struct user user = {.rank = atoi(getenv("USER_RANK")),
                      .numRanks = atoi(argv[2]),
                      .zeroPercent = atoi(argv[3]),
                      .numRows = atoll(argv[4]),
                      .hash = 0xcbf29ce484222325};
  readIds(getenv("USER_IDS"), user.ids);
  userScenario scenario = entries->find(argv[1]);
  if (!scenario || scenario(&user)) return 1;
  printf("rank %d: %016llx\n", user.rank, (unsigned long long)user.hash);
  return 0;
}

/* ---- The ranks ---- */

static void changeEnvironment(int rank, char **changes) {
  for (; *changes; changes++) {
    char *value = strchr(*changes, '=');
    char *name = strchr(*changes, ':');
    if (!value || !name || atoi(*changes) != rank) continue;
    *value = 0;
    if (value[1])
      setenv(name + 1, value + 1, 1);
    else
      unsetenv(name + 1);
    *value = '=';
  }
}

static pid_t startRank(char **argv, int rank, int out) {
  char text[12];
  pid_t child = fork();
  if (child) return child;
  snprintf(text, sizeof text, "%d", rank);
  setenv("USER_RANK", text, 1);
  changeEnvironment(rank, argv + 5);
  dup2(out, STDOUT_FILENO);
  execv("/proc/self/exe", argv);
  _exit(127);
}

static void show(int file) {
  char text[256];
  ssize_t got;
  lseek(file, 0, SEEK_SET);
  while ((got = read(file, text, sizeof text)) > 0)
    if (write(STDOUT_FILENO, text, (size_t)got) != got) break;
  close(file);
}

static int writeIds(const struct entries *entries) {
  ncclUniqueId ids[2];
  char text[4 * sizeof ids + 1] = "";
  for (int i = 0; i < 2; i++)
    if (entries->getUniqueId(&ids[i])) return 1;
  for (size_t i = 0; i < sizeof ids; i++)
    snprintf(text + 2 * i, 3, "%02x", ((unsigned char *)ids)[i]);
  return setenv("USER_IDS", text, 1);
}

int main(int argc, char **argv) {
  struct entries entries;
  pid_t children[64];
  int outputs[64], failed = 0;
  if (argc < 5 || load(&entries)) return 2;
  if (getenv("USER_RANK")) return runRank(&entries, argv);
  int numRanks = atoi(argv[2]);
  if (numRanks < 1 || numRanks > 64 || writeIds(&entries)) return 2;
  for (int rank = 0; rank < numRanks; rank++) {
    outputs[rank] = memfd_create("output", 0);
    children[rank] = startRank(argv, rank, outputs[rank]);
  }
  for (int rank = 0; rank < numRanks; rank++) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    failed |= status != 0;
    show(outputs[rank]);
  }
  return failed;
}
