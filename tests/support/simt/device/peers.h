/* Words by which devices tell each other, and the host, how far they are.  They
 * order memory for the search for races between streams, and for TSan. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_DEVICE_PEERS_H
#define LRMOE_TESTS_SUPPORT_SIMT_DEVICE_PEERS_H

#include "access.h"

namespace simt {

/* Who acquires a word goes on after what has released it. */
void orderRelease(const void *word);
void orderAcquire(const void *word);

/* Other threads of the block and of the process run; it is progress, since who
 * waits for peers bounds it with a clock. */
void pauseForPeers(const Site &site);

int64_t ticks(); /* nanoseconds */

} // namespace simt

inline void lrmoeSignal(int64_t *word, int64_t value, SIMT_CALLER) {
  ::simt::checkAligned(SIMT_SITE("lrmoeSignal"), word);
  ::simt::mayYield(SIMT_SITE("lrmoeSignal"));
  ::simt::orderRelease(word);
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

inline int64_t lrmoeObserve(const int64_t *word, SIMT_CALLER) {
  ::simt::checkAligned(SIMT_SITE("lrmoeObserve"), word);
  ::simt::mayYield(SIMT_SITE("lrmoeObserve"));
  int64_t value = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  ::simt::orderAcquire(word);
  return value;
}

inline void lrmoePause(SIMT_CALLER) {
  ::simt::pauseForPeers(SIMT_SITE("lrmoePause"));
}

inline int64_t lrmoeTicks() {
  return ::simt::ticks();
}

#endif
