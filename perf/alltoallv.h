/* alltoallv_perf: what its parts share. */
#ifndef LRMOE_PERF_ALLTOALLV_H
#define LRMOE_PERF_ALLTOALLV_H

#include "tools/common/fail.h"
#include "tools/common/ranks.h"

#include <stddef.h>
#include <stdint.h>

/* ---- The rival: MPI_Alltoallv ----------------------------------------- */

/* Whether the program was built with MPI (rival_mpi.c, rival_none.c). */
int rivalIsBuilt(void);

/* Whether this process is a rank that mpirun has started. */
int rivalIsInside(void);

/* Replaces this process by mpirun with numRanks of it; returns only when that
 * fails. */
enum toolExit rivalLaunch(int numRanks, char **argv, struct toolError *error);

/* Inside: fills in rank, numRanks and the id that rank 0 made. */
enum toolExit rivalStart(struct toolRank *self, struct toolError *error);
void rivalStop(void);

/* Counts and offsets in bytes. */
void rivalAlltoallv(const void *send, const int *sendCounts,
                    const int *sendOffsets, void *recv, const int *recvCounts,
                    const int *recvOffsets);

/* ---- One exchange ----------------------------------------------------- */

/* Who sends how much to whom, for one size, from one rank's view. */
struct exchange {
  int rank;
  int numRanks;
  int64_t bytes; /* that every rank sends */
  int *sendCounts;
  int *sendOffsets;
  int *recvCounts;
  int *recvOffsets;
  int64_t recvBytes;
};

/* Rows of 4096 B where there are enough, else of 8 B; at least 8 B a pair;
 * mildly uneven. */
enum toolExit exchangeMake(int rank, int numRanks, int64_t bytes,
                           struct exchange *exchange, struct toolError *error);
void exchangeFree(struct exchange *exchange);

/* Most bytes that any rank receives. */
int64_t exchangeMaxRecv(int numRanks, int64_t bytes);

/* Writes what this rank sends, different in every round; and counts the wrong
 * words of what it has received. */
void exchangeFill(const struct exchange *exchange, int64_t round, void *send);
int64_t exchangeCountWrong(const struct exchange *exchange, int64_t round,
                           const void *recv);

/* ---- Measuring -------------------------------------------------------- */

enum way {
  wayOurs,
  wayRival,
  wayLimit,   /* memcpy of as many bytes, one process per core */
  wayOrdered, /* ours in the order that a topology asks for */
  numWays
};

struct alltoallvOptions {
  int64_t minBytes;
  int64_t maxBytes;
  int64_t factor;
  int64_t numIterations; /* 0: enough for 5 ms */
  int64_t numWarmups;
  int64_t numRounds;
  const char *topology; /* file of the machine to take it for, or NULL */
  int64_t copies;       /* hosts like it */
};

enum {
  maxRounds = 101
};

/* Rank 0's times of one size, per call. */
struct timing {
  int64_t bytes;
  double seconds[numWays][maxRounds];
  int64_t numWrong; /* words, all ranks */
};

typedef void (*timingReport)(const struct toolRank *self,
                             const struct timing *timing);

/* Measures all sizes; report is called on rank 0 after each. */
enum toolExit alltoallvMeasure(const struct toolRank *self,
                               const struct alltoallvOptions *options,
                               timingReport report, struct toolError *error);

#endif
