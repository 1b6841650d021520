/* Ranks of a program: processes of one machine, made by fork.
 *
 * The parent makes them before it has started any thread (OpenMP included),
 * waits for all, and says which one failed and why.  When one fails the others
 * get a moment to notice (the library tells them) and are ended after it; when
 * the parent dies its ranks die.  Ranks give results back through shared
 * memory that the parent made before. */
#ifndef LRMOE_TOOLS_RANKS_H
#define LRMOE_TOOLS_RANKS_H

#include "lrmoe.h"
#include "tools/common/fail.h"

#include <stddef.h>

enum {
  toolMaxRanks = 1024
};

struct toolRankReport;

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

/* Runs numRanks (1 to toolMaxRanks) ranks.  toolGood if all were good;
 * otherwise what the rank to blame returned, with error naming it: a rank that
 * died before one that failed, and that before one that only lost a peer. */
enum toolExit toolRanksRun(int numRanks, toolRankBody body, void *user,
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

/* Zeroed memory that ranks forked later share; NULL: none left. */
void *toolSharedAlloc(size_t bytes);
void toolSharedFree(void *memory, size_t bytes);

#endif
