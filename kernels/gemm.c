/* Loading of GEMM modules: see gemm.h.
 *
 * A module is opened with local symbols (module.h), so that its BLAS cannot
 * take the place of the host's. */
#include "kernels/gemm.h"

#include "base/log.h"
#include "base/param.h"
#include "kernels/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* What a module needs, for the message when it is missing. */
static const struct {
  const char *name;
  const char *package;
} knownModules[] = {
    {"openblas", "libopenblas-dev"},
    {"onednn", "libdnnl-dev"},
};

enum {
  maxModules = 8
};

/* Modules of this process; never unloaded, since a BLAS may leave threads. */
static struct {
  pthread_mutex_t lock;
  int numLoaded;
  const struct lrmoeGemmModule *loaded[maxModules];
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int nameIsPlain(const char *name) {
  return *name && strlen(name) < 32 &&
         !name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

static const char *packageOf(const char *name) {
  size_t numKnown = sizeof knownModules / sizeof *knownModules;
  for (size_t i = 0; i < numKnown; i++)
    if (!strcmp(knownModules[i].name, name)) return knownModules[i].package;
  return NULL;
}

static lrmoeResult_t failMissing(const char *name, const char *reason) {
  const char *package = packageOf(name);
  if (!package)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "no GEMM module \"%s\" (openblas, onednn or reference): "
                      "%s",
                      name, reason);
  return LRMOE_FAIL(
      lrmoeNotInstalled,
      "GEMM module \"%s\" is missing: install %s and build "
      "LRMoE again, set LRMOE_MODULE_PATH to its folder, or choose "
      "the GEMM \"reference\" (slow): %s",
      name, package, reason);
}

static void *openModule(const char *name) {
  char file[64];
  snprintf(file, sizeof file, "liblrmoe_gemm_%s.so", name);
  return lrmoeModuleOpen(file);
}

static lrmoeResult_t enterModule(const char *name, void *handle,
                                 const struct lrmoeGemmModule **module) {
  lrmoeGemmEntry entry = NULL;
  /* POSIX gives functions as data pointers; ISO C has no cast for it. */
  *(void **)&entry = dlsym(handle, LRMOE_GEMM_ENTRY);
  if (!entry)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "liblrmoe_gemm_%s.so is not a GEMM module: it has no %s",
                      name, LRMOE_GEMM_ENTRY);
  const struct lrmoeGemmModule *found = NULL;
  lrmoeResult_t result =
      entry((int)lrmoeParamGet(lrmoeParamGemmThreads), &found);
  if (result != lrmoeSuccess)
    return LRMOE_FAIL(result, "GEMM module \"%s\" did not start: %s", name,
                      lrmoeGetErrorString(result));
  if (found->abi != LRMOE_GEMM_ABI)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "GEMM module \"%s\" has ABI %d, this library needs %d: "
                      "build both from one release",
                      name, found->abi, LRMOE_GEMM_ABI);
  if (strcmp(found->name, name) != 0)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "liblrmoe_gemm_%s.so calls itself \"%s\"", name,
                      found->name);
  *module = found;
  return lrmoeSuccess;
}

static lrmoeResult_t loadLocked(const char *name,
                                const struct lrmoeGemmModule **module) {
  for (int i = 0; i < registry.numLoaded; i++)
    if (!strcmp(registry.loaded[i]->name, name)) {
      *module = registry.loaded[i];
      return lrmoeSuccess;
    }
  if (registry.numLoaded == maxModules)
    return LRMOE_FAIL(lrmoeUnsupported, "more than %d GEMM modules",
                      maxModules);
  void *handle = openModule(name);
  if (!handle) return failMissing(name, dlerror());
  const struct lrmoeGemmModule *found = NULL;
  lrmoeResult_t result = enterModule(name, handle, &found);
  if (!found) {
    dlclose(handle);
    return result;
  }
  registry.loaded[registry.numLoaded++] = found;
  lrmoeLog(lrmoeLogInfo, "GEMM module %s: %s", name, found->describe());
  if (found->warning)
    lrmoeLog(lrmoeLogWarn, "GEMM module %s: %s", name, found->warning);
  *module = found;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeGemmLoad(const char *name,
                            const struct lrmoeGemmModule **module) {
  if (!strcmp(name, lrmoeGemmReference.name)) {
    *module = &lrmoeGemmReference;
    return lrmoeSuccess;
  }
  LRMOE_REQUIRE(nameIsPlain(name),
                "GEMM module name \"%.40s\": lower-case letters, digits and _",
                name);
  pthread_mutex_lock(&registry.lock);
  lrmoeResult_t result = loadLocked(name, module);
  pthread_mutex_unlock(&registry.lock);
  return result;
}
