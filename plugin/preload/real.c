/* Finding NCCL from inside an interposer.
 *
 * A library that is linked comes next in the order of symbols (RTLD_NEXT).  One
 * that a framework has opened RTLD_LOCAL does not, although its users reach the
 * shim; it is found by its SONAME among what is loaded already, never loaded
 * anew: another copy's communicators would not be the program's.  There the
 * names with p are taken, which no interposer has. */
#include "plugin/preload/real.h"

#include "base/log.h"
#include "base/param.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

struct symbol {
  const char *name; /* with p */
  size_t offset;
};

#define SYMBOL(field, symbol, parameters) \
  {"p" #symbol, offsetof(struct lrmoePreloadReal, field)},
static const struct symbol required[] = {PRELOAD_INTERPOSED(SYMBOL)
                                             PRELOAD_CALLED(SYMBOL)};
static const struct symbol optional[] = {PRELOAD_INTERPOSED_228(SYMBOL)};
#undef SYMBOL

static struct lrmoePreloadReal found;
static _Atomic(const struct lrmoePreloadReal *) published;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *openLoaded(void) {
  const char *given = lrmoeParamGetText(lrmoeParamNcclPath);
  void *handle = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (!handle && *given) handle = dlopen(given, RTLD_LAZY | RTLD_NOLOAD);
  return handle;
}

/* POSIX gives functions as data pointers; ISO C has no cast for it. */
static int findOne(void *handle, const struct symbol *symbol,
                   struct lrmoePreloadReal *real) {
  void *address = dlsym(RTLD_NEXT, symbol->name + 1);
  if (!address && handle) address = dlsym(handle, symbol->name);
  if (!address && handle) address = dlsym(handle, symbol->name + 1);
  *(void **)((char *)real + symbol->offset) = address;
  return address != NULL;
}

/* Whether all are there that must be. */
static int resolve(struct lrmoePreloadReal *real) {
  int isComplete = 1;
  void *handle = openLoaded();
  for (size_t i = 0; i < sizeof required / sizeof *required; i++)
    isComplete &= findOne(handle, &required[i], real);
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
    findOne(handle, &optional[i], real);
  if (handle && !isComplete) dlclose(handle);
  return isComplete;
}

const struct lrmoePreloadReal *lrmoePreloadReal(void) {
  const struct lrmoePreloadReal *real = atomic_load(&published);
  if (real) return real;
  pthread_mutex_lock(&mutex);
  if (!atomic_load(&published)) {
    struct lrmoePreloadReal made = {0};
    if (resolve(&made)) {
      found = made;
      atomic_store(&published, &found);
    } else {
      lrmoeLog(lrmoeLogWarn,
               "preload: this process has no NCCL to forward to: neither "
               "linked nor loaded as libnccl.so.2 or LRMOE_NCCL_PATH");
    }
  }
  pthread_mutex_unlock(&mutex);
  return atomic_load(&published);
}
