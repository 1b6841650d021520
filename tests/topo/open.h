/* Helpers of the topology tests: sources in one line, and what a topology
 * says about two ranks. */
#ifndef LRMOE_TESTS_TOPO_OPEN_H
#define LRMOE_TESTS_TOPO_OPEN_H

#include "support/suite.h"

/* Opens one file, or one text, with `copies` hosts like it. */
lrmoeResult_t openFile(const char *path, lrmoeTopology_t *topology);
lrmoeResult_t openText(const char *text, lrmoeTopology_t *topology);
lrmoeResult_t openCopies(const char *text, int copies, int numRanks,
                         lrmoeTopology_t *topology);

/* Hosts by a synthetic description; numRanks 0: one per device. */
lrmoeResult_t openSynthetic(const char *text, int copies, int numRanks,
                            lrmoeTopology_t *topology);

lrmoeTopologyInfo_t infoOf(lrmoeTopology_t topology);
lrmoeLink_t linkOf(lrmoeTopology_t topology, int from, int to);
lrmoeTopologyRank_t rankOf(lrmoeTopology_t topology, int rank);
lrmoeTopologyNode_t nodeOf(lrmoeTopology_t topology, int node);

/* The first resource of that name, -1: none. */
int findResource(lrmoeTopology_t topology, const char *name);

/* Whether a note contains the text. */
int hasNote(lrmoeTopology_t topology, const char *text);

/* Asserts that the two say the same of every two ranks, of every rank's place
 * and of every shared resource, names aside. */
void assertSameModel(lrmoeTopology_t a, lrmoeTopology_t b, const char *what);

/* And that they list the same devices, links and resources, by name, in the
 * same order. */
void assertSameLists(lrmoeTopology_t a, lrmoeTopology_t b, const char *what);

#define ASSERT_LINK(topology, from, to, class, rate)                      \
  do {                                                                    \
    lrmoeLink_t link_ = linkOf(topology, from, to);                       \
    ck_assert_msg(link_.linkClass == (class) &&                           \
                      link_.bytesPerSecond == (int64_t)(rate),            \
                  "%d -> %d: class %d at %lld, not %d at %lld", from, to, \
                  (int)link_.linkClass, (long long)link_.bytesPerSecond,  \
                  (int)(class), (long long)(rate));                       \
  } while (0)

#endif
