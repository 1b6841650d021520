/* Loading of backends: see backend.h. */
#include "kernels/backend.h"

#include "base/log.h"
#include "kernels/module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static const char *const cudaFile = "liblrmoe_cuda.so";

/* The CUDA backend of this process. */
static struct {
  pthread_mutex_t lock;
  const struct lrmoeBackend *cuda;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static lrmoeResult_t enter(void *handle, const struct lrmoeBackend **backend) {
  lrmoeBackendEntry entry = NULL;
  /* POSIX gives functions as data pointers; ISO C has no cast for it. */
  *(void **)&entry = dlsym(handle, LRMOE_BACKEND_ENTRY);
  if (!entry)
    return LRMOE_FAIL(lrmoeNotInstalled, "%s is not a backend: it has no %s",
                      cudaFile, LRMOE_BACKEND_ENTRY);
  const struct lrmoeBackend *found = NULL;
  lrmoeResult_t result = entry(&found);
  if (found && found->abi != LRMOE_BACKEND_ABI)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "%s has ABI %d, this library needs %d: build both from "
                      "one release",
                      cudaFile, found->abi, LRMOE_BACKEND_ABI);
  if (result != lrmoeSuccess || !found)
    return LRMOE_FAIL(result == lrmoeSuccess ? lrmoeInternalError : result,
                      "%s did not start: %s", cudaFile,
                      found ? found->lastError() : "no reason given");
  *backend = found;
  return lrmoeSuccess;
}

static lrmoeResult_t loadCuda(void) {
  if (loaded.cuda) return lrmoeSuccess;
  void *handle = lrmoeModuleOpen(cudaFile);
  if (!handle)
    return LRMOE_FAIL(lrmoeNotInstalled,
                      "the CUDA backend is missing: build LRMoE where the CUDA "
                      "toolkit is, or set LRMOE_MODULE_PATH to the folder of "
                      "%s: %s",
                      cudaFile, dlerror());
  lrmoeResult_t result = enter(handle, &loaded.cuda);
  if (result != lrmoeSuccess) dlclose(handle);
  return result;
}

lrmoeResult_t lrmoeBackendLoad(const char *name,
                               const struct lrmoeBackend **backend) {
  if (!strcmp(name, lrmoeCpuBackend.name)) {
    *backend = &lrmoeCpuBackend;
    return lrmoeSuccess;
  }
  LRMOE_REQUIRE(!strcmp(name, "cuda"), "backend \"%.40s\": cpu or cuda", name);
  pthread_mutex_lock(&loaded.lock);
  lrmoeResult_t result = loadCuda();
  pthread_mutex_unlock(&loaded.lock);
  LRMOE_CHECK(result);
  lrmoeLog(lrmoeLogInfo, "backend cuda");
  *backend = loaded.cuda;
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeBackendSettle(const struct lrmoeBackend *backend,
                                 const char *what, lrmoeResult_t result) {
  if (result == lrmoeSuccess || backend->isHost) return result;
  return LRMOE_FAIL(result, "%s: %s: %s", backend->name, what,
                    backend->lastError());
}
