/* The emulated CUDA: looked up by name, since the stand-in is used without it
 * too, and never a dependency. */
#include "standin.h"
#include "support/simt/simt.h"

#include <dlfcn.h>

static struct {
  int (*streamEnqueue)(struct CUstream_st *stream, standinWorkFunction work,
                       void *argument);
  void (*accessBegin)(void);
  void (*accessEnd)(void);
  void (*touch)(const void *start, size_t bytes, int isWrite);
  void (*release)(const void *channel);
  void (*acquire)(const void *channel);
  int (*getDevice)(int *device);
  void (*getConfig)(struct simtConfig *config);
  int (*memAlloc)(void **pointer, size_t bytes);
  int (*memFree)(void *pointer);
} host;

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* POSIX gives functions as data pointers; ISO C has no cast for it. */
static void look(void) {
  *(void **)&host.streamEnqueue = dlsym(RTLD_DEFAULT, "lrmoeSimtStreamEnqueue");
  *(void **)&host.accessBegin = dlsym(RTLD_DEFAULT, "lrmoeSimtAccessBegin");
  *(void **)&host.accessEnd = dlsym(RTLD_DEFAULT, "lrmoeSimtAccessEnd");
  if (!host.accessBegin) {
    *(void **)&host.accessBegin = dlsym(RTLD_DEFAULT, "simtOpenDevice");
    *(void **)&host.accessEnd = dlsym(RTLD_DEFAULT, "simtCloseDevice");
  }
  *(void **)&host.touch = dlsym(RTLD_DEFAULT, "lrmoeSimtTouch");
  *(void **)&host.release = dlsym(RTLD_DEFAULT, "lrmoeSimtRelease");
  *(void **)&host.acquire = dlsym(RTLD_DEFAULT, "lrmoeSimtAcquire");
  *(void **)&host.getConfig = dlsym(RTLD_DEFAULT, "simtGetConfig");
  if (!host.streamEnqueue) return;
  *(void **)&host.getDevice = dlsym(RTLD_DEFAULT, "cudaGetDevice");
  *(void **)&host.memAlloc = dlsym(RTLD_DEFAULT, "lrmoeSimtMemAllocFlat");
  *(void **)&host.memFree = dlsym(RTLD_DEFAULT, "cudaFree");
}

int standinHostHasStreams(void) {
  pthread_once(&once, look);
  return host.streamEnqueue != NULL;
}

int standinHostEnqueue(lrmoeStream_t stream, standinWorkFunction work,
                       void *argument) {
  return host.streamEnqueue(stream, work, argument);
}

void standinHostAccessBegin(void) {
  pthread_once(&once, look);
  if (host.accessBegin) host.accessBegin();
}

void standinHostAccessEnd(void) {
  if (host.accessEnd) host.accessEnd();
}

void standinHostTouch(const void *start, size_t bytes, int isWrite) {
  if (host.touch) host.touch(start, bytes, isWrite);
}

void standinHostRelease(const void *channel) {
  if (host.release) host.release(channel);
}

void standinHostAcquire(const void *channel) {
  if (host.acquire) host.acquire(channel);
}

int standinHostDevice(void) {
  int device = 0;
  pthread_once(&once, look);
  return host.getDevice && !host.getDevice(&device) ? device : 0;
}

uint64_t standinHostSeed(void) {
  struct simtConfig config = {0};
  pthread_once(&once, look);
  if (host.getConfig) host.getConfig(&config);
  return config.streams == simtOrderRandom ? 2 * config.seed + 1 : 0;
}

lrmoeResult_t standinHostMemAlloc(void **pointer, size_t bytes) {
  pthread_once(&once, look);
  if (!host.memAlloc) return lrmoeCpuTransport.memAlloc(pointer, bytes);
  return host.memAlloc(pointer, bytes) ? lrmoeUnhandledCudaError : lrmoeSuccess;
}

lrmoeResult_t standinHostMemFree(void *pointer) {
  pthread_once(&once, look);
  if (!host.memFree) return lrmoeCpuTransport.memFree(pointer);
  return host.memFree(pointer) ? lrmoeUnhandledCudaError : lrmoeSuccess;
}
