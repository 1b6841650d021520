/* Shared memory mapped into this process: each file once.
 *
 * Heaps and segments are known by a random token.  All ranks of a process, and
 * all its communicators, share one mapping of a file: address space stays
 * bounded, and ranks that are threads see the same addresses.
 *
 * A child of fork() inherits no mapping (MADV_DONTFORK) and begins with an
 * empty table, so that nothing it does can reach its parent's peers. */
#ifndef LRMOE_COLLECTIVES_CPU_MAPPING_H
#define LRMOE_COLLECTIVES_CPU_MAPPING_H

#include "base/result.h"

struct lrmoeMapping {
  uint64_t token[2];
  char *base;
  size_t bytes;
  int64_t numUsers;
  int *fds; /* kept open until the last user leaves */
  int numFds;
  int maxFds;
  struct lrmoeMapping *next;
};

struct lrmoeMappingArgs {
  uint64_t token[2];
  size_t bytes;
  int fd;     /* owned by the call, on failure too */
  int maxFds; /* most descriptors to keep; 0: none is kept */
};

/* Maps the file, or adds a user to the mapping that this process has.
 *
 * A process's record locks on a file go when it closes *any* descriptor of
 * that file, and those locks are what says that its ranks are alive
 * (liveness.c).  So the descriptors of a segment are kept, one for each rank
 * of this process, until the last of them leaves. */
lrmoeResult_t lrmoeMappingOpen(const struct lrmoeMappingArgs *args,
                               struct lrmoeMapping **mapping);
void lrmoeMappingClose(struct lrmoeMapping *mapping);

/* Guards the table and the heap; also held across fork(). */
void lrmoeProcessLock(void);
void lrmoeProcessUnlock(void);

/* Number of fork() calls between this process and the first; a handle made
 * under another number must not be used. */
unsigned lrmoeForkGeneration(void);

/* Registers what a child must forget, once; called under the lock. */
void lrmoeForkRegister(void (*forgetHeap)(void));

#endif
