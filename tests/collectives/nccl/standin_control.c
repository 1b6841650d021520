/* See standin_control.h. */
#include "standin_control.h"

#include "support/ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct testStandin found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *need(void *handle, const char *name) {
  void *address = handle ? dlsym(handle, name) : NULL;
  if (address) return address;
  fprintf(stderr, "the stand-in is not loaded, or has no %s\n", name);
  exit(EXIT_FAILURE);
}

/* POSIX gives functions as data pointers; ISO C has no cast for it. */
static void look(void) {
  void *handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  *(void **)&found.misuses = need(handle, "lrmoeStandinMisuses");
  *(void **)&found.timeoutMs = need(handle, "lrmoeStandinTimeoutMs");
  *(void **)&found.failNext = need(handle, "lrmoeStandinFailNext");
  *(void **)&found.failAt = need(handle, "lrmoeStandinFailAt");
  *(void **)&found.ginAbsent = need(handle, "lrmoeStandinGinAbsent");
  *(void **)&found.ginRefuse = need(handle, "lrmoeStandinGinRefuse");
}

const struct testStandin *testStandin(void) {
  pthread_once(&once, look);
  return &found;
}

#ifdef TEST_RANKS_ARE_THREADS
/* The C library frees what a finished thread had of a loaded library's
 * thread-local variables when another gets its stack; ThreadSanitizer does not
 * see the lock under which it does so.
 *
 * NOLINTBEGIN(bugprone-reserved-identifier) */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
  return "race:_dl_deallocate_tls\n";
}
/* NOLINTEND(bugprone-reserved-identifier) */
#endif
