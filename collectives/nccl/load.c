/* Finding NCCL: see load.h.
 *
 * A process must have one NCCL: two would each allocate for every device and
 * could not share communicators.  So the one that is there comes first: loaded
 * under its SONAME, however its symbols are scoped (frameworks load it with
 * RTLD_LOCAL), or linked into something whose symbols are global.  Only then is
 * one loaded, by LRMOE_NCCL_PATH or the loader's path.
 *
 * Names with p come first: libraries that interpose on NCCL, this project's own
 * among them, take the plain names, and would call back into us. */
#include "collectives/nccl/load.h"

#include "base/log.h"
#include "base/param.h"
#include "base/result.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static const char soname[] = "libnccl.so.2";

enum {
  oldestVersion = 22700,
  firstUnknownVersion = 23100
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lrmoeNccl found;
static char versionText[32];
static char file[512];
/* &found once it is whole. */
static const struct lrmoeNccl *_Atomic published;

/* ---- Symbols ---- */

struct symbol {
  const char *name; /* with p */
  size_t offset;    /* of its field */
};

#define SYMBOL(type, field, name, parameters) \
  {"p" #name, offsetof(struct lrmoeNcclApi, field)},
static const struct symbol requiredSymbols[] = {LRMOE_NCCL_REQUIRED(SYMBOL)};
static const struct symbol optionalSymbols[] = {LRMOE_NCCL_OPTIONAL(SYMBOL)};
#undef SYMBOL

/* POSIX gives functions as data pointers; ISO C has no cast for it. */
static int resolveOne(void *handle, const struct symbol *symbol,
                      struct lrmoeNcclApi *api) {
  void *address = dlsym(handle, symbol->name);
  if (!address) address = dlsym(handle, symbol->name + 1);
  *(void **)((char *)api + symbol->offset) = address;
  return address != NULL;
}

/* The name of the first required function that is missing, NULL: none is. */
static const char *resolve(void *handle, struct lrmoeNcclApi *api) {
  size_t numRequired = sizeof requiredSymbols / sizeof *requiredSymbols;
  size_t numOptional = sizeof optionalSymbols / sizeof *optionalSymbols;
  for (size_t i = 0; i < numRequired; i++)
    if (!resolveOne(handle, &requiredSymbols[i], api))
      return requiredSymbols[i].name + 1;
  for (size_t i = 0; i < numOptional; i++)
    resolveOne(handle, &optionalSymbols[i], api);
  return NULL;
}

/* ---- Version ---- */

static void noteFile(const struct lrmoeNcclApi *api) {
  Dl_info info = {0};
  void *address = *(void *const *)&api->getVersion;
  const char *name = dladdr(address, &info) ? info.dli_fname : NULL;
  snprintf(file, sizeof file, "%s", name && *name ? name : "this program");
}

static void noteVersion(int version) {
  int isOldCode = version < 10000; /* before 2.9 */
  int major = version / (isOldCode ? 1000 : 10000);
  int minor = version % (isOldCode ? 1000 : 10000) / 100;
  snprintf(versionText, sizeof versionText, "%d.%d.%d", major, minor,
           version % 100);
}

/* Takes a library whose symbols are in api, if its version will do. */
static lrmoeResult_t accept(const struct lrmoeNcclApi *api) {
  int version = 0;
  noteFile(api);
  lrmoeResult_t result = api->getVersion(&version);
  if (result != lrmoeSuccess)
    return LRMOE_FAIL(lrmoeUnsupported, "%s: ncclGetVersion failed with %d",
                      file, (int)result);
  noteVersion(version);
  if (version < oldestVersion)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "%s is NCCL %s; this release needs 2.27 or newer", file,
                      versionText);
  if (version >= firstUnknownVersion)
    lrmoeLog(lrmoeLogWarn,
             "%s is NCCL %s; this release was made for 2.27 to 2.30", file,
             versionText);
  found = (struct lrmoeNccl){*api, version, versionText, file};
  lrmoeLog(lrmoeLogInfo, "NCCL %s: %s", versionText, file);
  atomic_store(&published, &found);
  return lrmoeSuccess;
}

/* ---- Looking ---- */

static lrmoeResult_t acceptHandle(void *handle, const char *name) {
  struct lrmoeNcclApi api = {0};
  const char *missing = resolve(handle, &api);
  lrmoeResult_t result = lrmoeSuccess;
  if (missing)
    result = LRMOE_FAIL(lrmoeNotInstalled, "%s is not NCCL: it has no %s", name,
                        missing);
  else
    result = accept(&api);
  if (result != lrmoeSuccess) dlclose(handle);
  return result;
}

/* An LRMOE_NCCL_PATH that is not heeded would be a riddle. */
static void warnUnused(void *handle, const char *given) {
  if (!*given) return;
  void *other = dlopen(given, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (other) dlclose(other);
  if (other != handle)
    lrmoeLog(lrmoeLogWarn,
             "LRMOE_NCCL_PATH=%s is not used: the process has an NCCL already",
             given);
}

/* The one of the process; *isFound says whether there is one. */
static lrmoeResult_t lookHere(const char *given, int *isFound) {
  struct lrmoeNcclApi api = {0};
  void *handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  *isFound = 1;
  if (handle) {
    warnUnused(handle, given);
    return acceptHandle(handle, soname);
  }
  /* An interposer alone has some of the names, not all. */
  if (!resolve(RTLD_DEFAULT, &api)) {
    warnUnused(NULL, given);
    return accept(&api);
  }
  *isFound = 0;
  return lrmoeSuccess;
}

static lrmoeResult_t look(int mustBeHere) {
  int isFound = 0;
  const char *given = lrmoeParamGetText(lrmoeParamNcclPath);
  const char *name = *given ? given : soname;
  LRMOE_CHECK(lookHere(given, &isFound));
  if (isFound) return lrmoeSuccess;
  int mode = RTLD_NOW | RTLD_LOCAL | (mustBeHere ? RTLD_NOLOAD : 0);
  void *handle = mustBeHere && !*given ? NULL : dlopen(name, mode);
  if (handle) return acceptHandle(handle, name);
  if (mustBeHere)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "this process has no NCCL whose communicator could be "
                      "borrowed: no %s is loaded; one under another name must "
                      "be named by LRMOE_NCCL_PATH",
                      soname);
  const char *reason = dlerror();
  return LRMOE_FAIL(lrmoeNotInstalled,
                    "NCCL is missing: install NCCL 2.27 or newer (libnccl2), "
                    "or set LRMOE_NCCL_PATH to its %s: %s",
                    soname, reason ? reason : name);
}

const struct lrmoeNccl *lrmoeNcclLoaded(void) {
  return atomic_load(&published);
}

lrmoeResult_t lrmoeNcclLoad(int mustBeHere, const struct lrmoeNccl **nccl) {
  lrmoeResult_t result = lrmoeSuccess;
  if (!lrmoeNcclLoaded()) {
    pthread_mutex_lock(&mutex);
    if (!lrmoeNcclLoaded()) result = look(mustBeHere);
    pthread_mutex_unlock(&mutex);
  }
  LRMOE_CHECK(result);
  *nccl = lrmoeNcclLoaded();
  return lrmoeSuccess;
}
