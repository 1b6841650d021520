/* Loads NCCL and has it read its environment, for which it needs no GPU. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  char id[128];
  int (*getUniqueId)(void *id);
  void *handle = dlopen(NCCL_FILE, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  *(void **)&getUniqueId = dlsym(handle, "ncclGetUniqueId");
  return !getUniqueId || getUniqueId(id);
}
