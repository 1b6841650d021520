/* The readers: each adds what its source describes to an empty machine.
 *
 * `source` names the source in messages: a path, or "text".  On failure the
 * machine holds anything and is only to be freed.  Readers check what they
 * read against their own format and name the element that is wrong; what holds
 * for every machine is left to lrmoeMachineCheck. */
#ifndef LRMOE_TOPO_READERS_H
#define LRMOE_TOPO_READERS_H

#include "topo/machine.h"

/* NCCL's topology XML (root element system), version 1, and RCCL's, 2. */
lrmoeResult_t lrmoeNcclRead(const char *source, const char *text, size_t bytes,
                            struct lrmoeMachine *machine);

/* hwloc's XML from its root element topology on, formats 1 and 2.  isLive: more
 * will be asked for links between GPUs, so that their lack is not said. usable:
 * CPUs that ranks may use, NULL: all that the file has. */
struct lrmoeHwlocInput {
  const char *source;
  const char *text;
  size_t bytes;
  const struct hwloc_bitmap_s *usable;
  bool isLive;
};
lrmoeResult_t lrmoeHwlocRead(const struct lrmoeHwlocInput *input,
                             struct lrmoeMachine *machine);

/* Whether any links between GPUs are known; says so where they are not. */
bool lrmoeHwlocHasLinks(const struct lrmoeMachine *machine);
lrmoeResult_t lrmoeHwlocNoteLinks(const char *source,
                                  struct lrmoeMachine *machine);

/* A synthetic description in one line. */
lrmoeResult_t lrmoeSyntheticRead(const char *text,
                                 struct lrmoeMachine *machine);

/* The live machine. */
lrmoeResult_t lrmoeLiveRead(struct lrmoeMachine *machine);

#endif
