/* Modules: see module.h. */
#include "kernels/module.h"

#include "base/param.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Folder of the object that holds this function, with its last slash. */
static void ownFolder(char *folder, size_t room) {
  static const char anchor;
  Dl_info info;
  *folder = 0;
  if (!dladdr(&anchor, &info) || !info.dli_fname) return;
  const char *slash = strrchr(info.dli_fname, '/');
  if (!slash) return;
  size_t length = (size_t)(slash - info.dli_fname) + 1;
  if (length >= room) return;
  memcpy(folder, info.dli_fname, length);
  folder[length] = 0;
}

void *lrmoeModuleOpen(const char *file) {
  char path[PATH_MAX];
  char folder[PATH_MAX / 2];
  const char *given = lrmoeParamGetText(lrmoeParamModulePath);
  if (*given)
    snprintf(folder, sizeof folder, "%s/", given);
  else
    ownFolder(folder, sizeof folder);
  snprintf(path, sizeof path, "%s%s", folder, file);
  if (*given || !access(path, F_OK)) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}
