/* Who may touch device memory, and when.
 *
 * Where the processor has protection keys, one key covers all of it, and a
 * thread turns it for itself: no system call, and a host thread stays out while
 * another one runs a kernel.  Elsewhere pages are opened and closed for all
 * threads (LRMOE_SIMT_KEYS=0 does that everywhere). */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_GATE_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_GATE_H

#include <cstddef>

namespace simt {

bool gateHasKey();

/* Readable pages come under the key. */
void gateCover(void *pages, size_t bytes);

/* This thread may go in, or no longer; they nest.  With a key. */
void gateOpen();
void gateClose();

} // namespace simt

#endif
