/* The workers of the host optimizer and the queue before them.
 *
 * The queue is a ring of pieces of equal room.  Every worker sees every piece,
 * in the order of the queue, and adds its own slice of it to the accumulated
 * gradient; a piece is free again when all have done so.  Hence an element
 * always meets its gradients in the order of the queue, and the slices balance
 * the work whatever the tensors are.  A job (measure, update, clear) is shared
 * out in the same way, over the whole state.
 *
 * One thread at a time calls these functions.  Workers only do arithmetic in
 * memory that exists: nothing in them can fail. */
#ifndef LRMOE_COLLECTIVES_HOST_TEAM_H
#define LRMOE_COLLECTIVES_HOST_TEAM_H

#include "base/alloc.h"
#include "collectives/host/adamw.h"

#include <pthread.h>
#include <sys/types.h>

enum {
  lrmoeHostPieceElements = 16384 /* 64 KiB: copied and added within L2 */
};

enum lrmoeHostJobKind {
  lrmoeHostMeasure, /* the largest magnitude of the gradients */
  lrmoeHostUpdate,
  lrmoeHostClear
};

struct lrmoeHostJob {
  enum lrmoeHostJobKind kind;
  struct lrmoeAdamwFactors factors; /* of an update */
};

/* Where in the state a piece is to be added. */
struct lrmoeHostPiece {
  int64_t first;
  int64_t count;
};

struct lrmoeHostTeam;

struct lrmoeHostWorker {
  struct lrmoeHostTeam *team;
  pthread_t thread;
  int64_t nextPiece; /* pieces that it has added */
  int64_t nextJob;   /* jobs that it has done */
  uint32_t largest;
};

struct lrmoeHostTeam {
  const struct lrmoeHostState *state;
  struct lrmoeHostWorker *workers;
  struct lrmoeHostPiece *pieces; /* [numSlots] */
  struct lrmoeBuffer room;       /* [numSlots, lrmoeHostPieceElements] */
  int64_t numSlots;
  int64_t numWaits; /* pushes that found the queue full */
  int numWorkers;
  pid_t owner; /* process that has the threads; 0: they are not started */

  pthread_mutex_t lock; /* of what follows and of the workers' counts */
  pthread_cond_t work;  /* for workers */
  pthread_cond_t done;  /* for callers */
  struct lrmoeHostJob job;
  int64_t numPieces; /* pieces queued so far */
  int64_t numJobs;   /* jobs given so far */
  int isWaiting;     /* a caller waits for room in the queue */
  int isPaused;
  int mustStop;
};

/* The team of a state that outlives it.  Starts nothing.  After an error,
 * too, lrmoeHostTeamFree releases it. */
lrmoeResult_t lrmoeHostTeamInit(struct lrmoeHostTeam *team,
                                const struct lrmoeHostState *state,
                                int numWorkers, int64_t queueBytes);

/* Ends the workers, at once, and releases everything; a zeroed team is
 * legal. */
void lrmoeHostTeamFree(struct lrmoeHostTeam *team);

/* lrmoeInvalidUsage in a process that has no workers because it was forked
 * from the one that has. */
lrmoeResult_t lrmoeHostTeamCheck(const struct lrmoeHostTeam *team);

/* Starts the workers, all or none, unless they run.  The calls below need
 * them, but for Flush. */
lrmoeResult_t lrmoeHostTeamStart(struct lrmoeHostTeam *team);

/* Whether a push of count elements would not wait. */
int lrmoeHostTeamHasRoom(struct lrmoeHostTeam *team, int64_t count);

/* Queues values, which belong at element `first` of the state. */
void lrmoeHostTeamPush(struct lrmoeHostTeam *team, int64_t first,
                       const float *values, int64_t count);

/* Waits until the queue is empty. */
void lrmoeHostTeamFlush(struct lrmoeHostTeam *team);

/* Flushes and does the job; the result of a measurement. */
uint32_t lrmoeHostTeamRun(struct lrmoeHostTeam *team,
                          const struct lrmoeHostJob *job);

/* For tests: while paused, workers begin nothing. */
void lrmoeHostTeamPause(struct lrmoeHostTeam *team, int isPaused);

/* Pieces that count elements take. */
int64_t lrmoeHostNumPieces(int64_t count);

#endif
