/* Protection keys: see gate.h. */
#include "gate.h"

#include "../config.h"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

namespace simt {

static int keyOfDevices() {
  static const int key = environmentNumber("LRMOE_SIMT_KEYS", 1)
                             ? pkey_alloc(0, PKEY_DISABLE_ACCESS)
                             : -1;
  return key;
}

bool gateHasKey() {
  return keyOfDevices() >= 0;
}

static void must(int failed, const char *what) {
  if (!failed) return;
  perror(what);
  abort();
}

void gateCover(void *pages, size_t bytes) {
  must(pkey_mprotect(pages, bytes, PROT_READ | PROT_WRITE, keyOfDevices()),
       "simt: pkey_mprotect");
}

static thread_local int depth;

void gateOpen() {
  if (depth++ == 0) must(pkey_set(keyOfDevices(), 0), "simt: pkey_set");
}

void gateClose() {
  if (--depth == 0)
    must(pkey_set(keyOfDevices(), PKEY_DISABLE_ACCESS), "simt: pkey_set");
}

} // namespace simt
