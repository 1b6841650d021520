/* What streams order, and what their operations touch: races between streams.
 *
 * Every stream counts its operations; a clock says up to which operation of
 * each stream something is known to be done.  An operation knows what its
 * stream, the events that it waited for, and the host when it was queued knew.
 * Memory has a shadow: who wrote each word last, and who read it since.  Of two
 * operations that touch a byte, one of them writing, the later must know the
 * earlier, in whatever order they happened to run.
 *
 * Kernels are seen through the accesses that are counted (simt.h), copies,
 * fills, frees, GEMMs and communicators by their arguments.  The host's clock
 * is one for all threads, since what orders these is not seen; its own accesses
 * of page-locked memory are not either. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_ORDER_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_ORDER_H

#include "../sanitizer.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simt {

/* By stream: how many of its operations are done. */
using Clock = std::vector<uint32_t>;
void clockJoin(Clock &clock, const Clock &other);
bool clockKnows(const Clock &clock, const Clock &other);

/* A moment that others go on after: whoever comes later acquires what was
 * released there.  TSan, which does not see the queue's lock, is told too. */
struct Moment {
  Clock clock;
  char cell = 0;
  void release(const Clock &known) {
    clockJoin(clock, known);
    tsanRelease(&cell);
  }
  void acquire(Clock &known) {
    clockJoin(known, clock);
    tsanAcquire(&cell);
  }
};

/* A stream's place in clocks. */
size_t orderAddStream(int device, uint64_t stream);

/* On the operating-system thread that runs it: an operation of that stream,
 * which knows `clock`, itself included, begins and ends.  The end gives the
 * race that it was in, or "". */
void orderBegin(const char *what, size_t stream, Clock &clock);
std::string orderEnd();

/* The running operation touches memory; the race, or nullptr, is kept for
 * orderEnd. */
const char *orderTouch(const void *start, size_t bytes, bool isWrite);

/* Shadow of an allocation. */
struct Shadow;
Shadow *shadowMake(size_t bytes);
void shadowFree(Shadow *shadow, size_t bytes);
void *shadowAt(Shadow *shadow, size_t offset);

} // namespace simt

#endif
