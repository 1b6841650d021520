/* Shared memory of blocks: poisoned before each block, so that what was not
 * written is seen; under TSan never reused within a launch unless TSan forgets
 * it, so that blocks neither race there nor look ordered. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_SHARED_H
#define LRMOE_TESTS_SUPPORT_SIMT_SHARED_H

#include <cstddef>

namespace simt {

class SharedMemory {
public:
  void startLaunch(size_t bytes);
  /* The next block's memory, 1024-byte aligned. */
  void startBlock();
  void endLaunch();

  size_t bytes() const {
    return numBytes;
  }
  void *data() const {
    return block;
  }
  /* A cell of this block for TSan's releases and acquires; else nothing. */
  void *cell(unsigned index) const {
    return cells ? cells + size_t{8} * index : nullptr;
  }

private:
  void mapPool();

  size_t numBytes = 0;
  char *block = nullptr;
  char *cells = nullptr;
  char *pool = nullptr; /* TSan only */
  size_t poolUsed = 0;
};

} // namespace simt

#endif
