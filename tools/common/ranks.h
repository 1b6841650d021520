/* Ranks of a program: processes of one machine, made by fork, or processes
 * that a launcher made (launch.h), maybe on many machines.
 *
 * Forked ones: the parent makes them before it has started any thread (OpenMP
 * included), waits for all, and says which one failed and why.  When one fails
 * the others get a moment to notice (the library tells them) and are ended
 * after it; when the parent dies its ranks die.  Launched ones run the body
 * themselves, and all of them learn what became of it.  Either way results come
 * back through memory that was made before. */
#ifndef LRMOE_TOOLS_RANKS_H
#define LRMOE_TOOLS_RANKS_H

#include "lrmoe.h"
#include "tools/common/fail.h"

#include <stddef.h>
#include <stdint.h>

enum {
  toolMaxRanks = 1024
};

/* What a rank says of its failure. */
struct toolRankReport {
  lrmoeResult_t result;
  char text[400];
};

struct toolRank {
  int rank;
  int numRanks;
  lrmoeUniqueId id;
  void *user;
  struct toolRankReport *report; /* for toolRankFail */
};

/* What a rank does.  A result other than toolGood is a failure of the rank,
 * except toolWrongData, which lets the others finish. */
typedef enum toolExit (*toolRankBody)(const struct toolRank *self);

/* What ranks write and whoever runs them reads after it. */
struct toolResults {
  void *memory; /* of toolSharedAlloc */
  size_t bytes;
  int isRoots; /* all of it is written by rank 0; else each rank writes an equal
                  part, by rank */
};

/* How many ranks to run, after the options were read: numRanks holds what the
 * user asked for, 0: nothing.  That becomes 4, or as many as a launcher made;
 * fails if that made another number. */
enum toolExit toolRanksCount(int64_t *numRanks, struct toolError *error);

/* Runs numRanks (1 to toolMaxRanks, or as many as a launcher made) ranks, with
 * results or NULL.  toolGood if all were good; otherwise what the rank to blame
 * returned, with error naming it: a rank that died before one that failed, and
 * that before one that only lost a peer.  Of launched ranks all get the same
 * code and the same results, and rank 0 alone the text. */
enum toolExit toolRanksRun(int numRanks, toolRankBody body, void *user,
                           const struct toolResults *results,
                           struct toolError *error);

/* Says for the parent why this rank fails, with the library's last error when
 * result is one, and gives the code to return. */
enum toolExit toolRankFail(const struct toolRank *self, lrmoeResult_t result,
                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Leaves the body when a call of the library fails. */
#define TOOL_RANK_OK(self, call)                                              \
  do {                                                                        \
    lrmoeResult_t got_ = (call);                                              \
    if (got_ != lrmoeSuccess) return toolRankFail((self), got_, "%s", #call); \
  } while (0)

/* Zeroed memory of this rank, free() it; without any left the rank dies, and
 * whoever runs the ranks says which one. */
void *toolRankRoom(int64_t count, size_t bytes);

/* Zeroed memory that ranks forked later share; NULL: none left. */
void *toolSharedAlloc(size_t bytes);
void toolSharedFree(void *memory, size_t bytes);

#endif
