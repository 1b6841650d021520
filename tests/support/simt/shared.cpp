/* Shared memory of blocks: see shared.h. */
#include "shared.h"

#include "machine.h"
#include "sanitizer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace simt {

constexpr unsigned char poison = 0xCB;
constexpr size_t alignment = 1024;
constexpr size_t poolBytes = size_t{64} << 20;
/* Two for the barrier, two per warp and mask. */
constexpr size_t cellBytes = size_t{8} * (3 + maxWarps * maxMasks * 2);

void SharedMemory::mapPool() {
  tsanForgetBegin();
  if (pool) munmap(pool, poolBytes);
  void *base = mmap(nullptr, poolBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  tsanForgetEnd();
  if (base == MAP_FAILED) {
    perror("simt: shared memory");
    abort();
  }
  pool = static_cast<char *>(base);
  poolUsed = 0;
}

void SharedMemory::startLaunch(size_t bytes) {
  numBytes = bytes;
  if (tsan) {
    mapPool();
    return;
  }
  /* A heap block of the exact size: ASan sees the first byte past it. */
  void *memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes ? bytes : 1) != 0) {
    perror("simt: shared memory");
    abort();
  }
  block = static_cast<char *>(memory);
}

void SharedMemory::startBlock() {
  if (tsan) {
    size_t pitch =
        (numBytes + cellBytes + alignment - 1) / alignment * alignment;
    if (poolUsed + pitch > poolBytes) mapPool();
    block = pool + poolUsed;
    cells = block + numBytes + (8 - numBytes % 8) % 8;
    poolUsed += pitch;
  }
  if (!tsan) {
    memset(block, poison, numBytes);
    return;
  }
  /* TSan would see a memset, and the host does not write here. */
  volatile unsigned char *bytes = reinterpret_cast<unsigned char *>(block);
  for (size_t i = 0; i < numBytes; i++)
    bytes[i] = poison;
}

void SharedMemory::endLaunch() {
  if (tsan) {
    tsanForgetBegin();
    munmap(pool, poolBytes);
    tsanForgetEnd();
    pool = nullptr;
  } else {
    free(block);
  }
  block = nullptr;
}

} // namespace simt
