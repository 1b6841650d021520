/* The workers of the host optimizer: see team.h. */
#include "collectives/host/team.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
  lineElements = 16 /* of a cache line: slices share none */
};

int64_t lrmoeHostNumPieces(int64_t count) {
  return (count + lrmoeHostPieceElements - 1) / lrmoeHostPieceElements;
}

/* ---- Workers ---------------------------------------------------------- */

struct slice {
  int64_t first;
  int64_t end;
};

static struct slice sliceOf(const struct lrmoeHostWorker *worker,
                            int64_t count) {
  int64_t index = worker - worker->team->workers;
  int64_t numWorkers = worker->team->numWorkers;
  int64_t numLines = (count + lineElements - 1) / lineElements;
  struct slice slice = {numLines * index / numWorkers * lineElements,
                        numLines * (index + 1) / numWorkers * lineElements};
  if (slice.end > count) slice.end = count;
  if (slice.first > count) slice.first = count;
  return slice;
}

static void addPiece(const struct lrmoeHostWorker *worker, int64_t slot) {
  const struct lrmoeHostTeam *team = worker->team;
  struct lrmoeHostPiece piece = team->pieces[slot];
  struct slice slice = sliceOf(worker, piece.count);
  const float *values =
      (const float *)team->room.data + slot * lrmoeHostPieceElements;
  lrmoeHostAdd(slice.end - slice.first, values + slice.first,
               team->state->gradient + piece.first + slice.first);
}

static void doJob(struct lrmoeHostWorker *worker) {
  const struct lrmoeHostState *state = worker->team->state;
  const struct lrmoeHostJob *job = &worker->team->job;
  struct slice slice = sliceOf(worker, state->numElements);
  int64_t count = slice.end - slice.first;
  float *gradient = state->gradient + slice.first;
  switch (job->kind) {
  case lrmoeHostMeasure:
    worker->largest = lrmoeHostLargest(count, gradient);
    break;
  case lrmoeHostUpdate:
    lrmoeAdamwUpdate(state, slice.first, slice.end, &job->factors);
    break;
  case lrmoeHostClear:
    memset(gradient, 0, (size_t)count * sizeof *gradient);
    break;
  }
}

/* Pieces that all workers have added. */
static int64_t numAdded(const struct lrmoeHostTeam *team) {
  int64_t least = team->numPieces;
  for (int i = 0; i < team->numWorkers; i++)
    if (team->workers[i].nextPiece < least) least = team->workers[i].nextPiece;
  return least;
}

static int isJobDone(const struct lrmoeHostTeam *team) {
  int isDone = 1;
  for (int i = 0; i < team->numWorkers; i++)
    isDone = isDone && team->workers[i].nextJob == team->numJobs;
  return isDone;
}

/* Callers wait for room, for an empty queue, or for the end of a job. */
static void tellCaller(struct lrmoeHostTeam *team) {
  if (team->isWaiting || numAdded(team) == team->numPieces)
    pthread_cond_signal(&team->done);
}

/* One piece or job, the lock being held before and after.  A job is given
 * when the queue is empty, so pieces first is the order of the caller. */
static void workOnce(struct lrmoeHostWorker *worker) {
  struct lrmoeHostTeam *team = worker->team;
  int isPiece = worker->nextPiece < team->numPieces;
  if (team->isPaused || (!isPiece && worker->nextJob == team->numJobs)) {
    pthread_cond_wait(&team->work, &team->lock);
    return;
  }
  pthread_mutex_unlock(&team->lock);
  if (isPiece)
    addPiece(worker, worker->nextPiece % team->numSlots);
  else
    doJob(worker);
  pthread_mutex_lock(&team->lock);
  if (isPiece)
    worker->nextPiece++;
  else
    worker->nextJob++;
  tellCaller(team);
}

static void *workerMain(void *argument) {
  struct lrmoeHostWorker *worker = argument;
  struct lrmoeHostTeam *team = worker->team;
  pthread_mutex_lock(&team->lock);
  while (!team->mustStop)
    workOnce(worker);
  pthread_mutex_unlock(&team->lock);
  return NULL;
}

/* ---- Life ------------------------------------------------------------- */

lrmoeResult_t lrmoeHostTeamInit(struct lrmoeHostTeam *team,
                                const struct lrmoeHostState *state,
                                int numWorkers, int64_t queueBytes) {
  const int64_t pieceBytes = lrmoeHostPieceElements * sizeof(float);
  *team = (struct lrmoeHostTeam){.state = state, .numWorkers = numWorkers};
  team->numSlots = (queueBytes + pieceBytes - 1) / pieceBytes;
  pthread_mutex_init(&team->lock, NULL);
  pthread_cond_init(&team->work, NULL);
  pthread_cond_init(&team->done, NULL);
  LRMOE_CHECK(LRMOE_ALLOCATE(numWorkers, &team->workers));
  LRMOE_CHECK(LRMOE_ALLOCATE(team->numSlots, &team->pieces));
  return lrmoeBufferReserve(&team->room, (size_t)(team->numSlots * pieceBytes));
}

static void joinWorkers(struct lrmoeHostTeam *team, int numStarted) {
  pthread_mutex_lock(&team->lock);
  team->mustStop = 1;
  pthread_cond_broadcast(&team->work);
  pthread_mutex_unlock(&team->lock);
  for (int i = 0; i < numStarted; i++)
    pthread_join(team->workers[i].thread, NULL);
  team->mustStop = 0;
}

void lrmoeHostTeamFree(struct lrmoeHostTeam *team) {
  /* In a forked child there is no thread to join, and the state of the lock
   * is that of an arbitrary moment. */
  if (team->owner == getpid()) joinWorkers(team, team->numWorkers);
  lrmoeFree(team->workers);
  lrmoeFree(team->pieces);
  lrmoeBufferFree(&team->room);
  *team = (struct lrmoeHostTeam){0};
}

lrmoeResult_t lrmoeHostTeamCheck(const struct lrmoeHostTeam *team) {
  if (team->owner && team->owner != getpid())
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "the workers of this optimizer run in process %d, from "
                      "which this one was forked",
                      (int)team->owner);
  return lrmoeSuccess;
}

static int startWorker(struct lrmoeHostTeam *team, int index) {
  struct lrmoeHostWorker *worker = &team->workers[index];
  worker->team = team;
  return pthread_create(&worker->thread, NULL, workerMain, worker);
}

lrmoeResult_t lrmoeHostTeamStart(struct lrmoeHostTeam *team) {
  if (team->owner) return lrmoeHostTeamCheck(team);
  /* Signals are for the threads of the host program. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int code = 0, numStarted = 0;
  while (!code && numStarted < team->numWorkers) {
    code = startWorker(team, numStarted);
    if (!code) numStarted++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (code) {
    joinWorkers(team, numStarted);
    return LRMOE_FAIL(lrmoeSystemError, "cannot start worker %d of %d: %s",
                      numStarted, team->numWorkers, strerror(code));
  }
  team->owner = getpid();
  return lrmoeSuccess;
}

/* ---- Queue and jobs --------------------------------------------------- */

int lrmoeHostTeamHasRoom(struct lrmoeHostTeam *team, int64_t count) {
  pthread_mutex_lock(&team->lock);
  int64_t numFree = team->numSlots - (team->numPieces - numAdded(team));
  pthread_mutex_unlock(&team->lock);
  return numFree >= lrmoeHostNumPieces(count);
}

/* Waits for a free slot; whether it had to. */
static int waitForRoom(struct lrmoeHostTeam *team) {
  int hasWaited = 0;
  pthread_mutex_lock(&team->lock);
  while (team->numPieces - numAdded(team) == team->numSlots) {
    hasWaited = 1;
    team->isWaiting = 1;
    pthread_cond_wait(&team->done, &team->lock);
  }
  team->isWaiting = 0;
  pthread_mutex_unlock(&team->lock);
  return hasWaited;
}

void lrmoeHostTeamPush(struct lrmoeHostTeam *team, int64_t first,
                       const float *values, int64_t count) {
  int hasWaited = 0;
  for (int64_t i = 0; i < count; i += lrmoeHostPieceElements) {
    struct lrmoeHostPiece piece = {first + i, count - i};
    if (piece.count > lrmoeHostPieceElements)
      piece.count = lrmoeHostPieceElements;
    if (waitForRoom(team)) hasWaited = 1;
    /* A free slot is the caller's alone until numPieces says otherwise. */
    int64_t slot = team->numPieces % team->numSlots;
    float *room = (float *)team->room.data + slot * lrmoeHostPieceElements;
    memcpy(room, values + i, (size_t)piece.count * sizeof *room);
    team->pieces[slot] = piece;
    pthread_mutex_lock(&team->lock);
    team->numPieces++;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
  }
  team->numWaits += hasWaited;
}

void lrmoeHostTeamFlush(struct lrmoeHostTeam *team) {
  if (!team->owner) return; /* nothing was ever queued */
  pthread_mutex_lock(&team->lock);
  while (numAdded(team) < team->numPieces)
    pthread_cond_wait(&team->done, &team->lock);
  pthread_mutex_unlock(&team->lock);
}

uint32_t lrmoeHostTeamRun(struct lrmoeHostTeam *team,
                          const struct lrmoeHostJob *job) {
  lrmoeHostTeamFlush(team);
  pthread_mutex_lock(&team->lock);
  team->job = *job;
  team->numJobs++;
  pthread_cond_broadcast(&team->work);
  while (!isJobDone(team))
    pthread_cond_wait(&team->done, &team->lock);
  pthread_mutex_unlock(&team->lock);
  uint32_t largest = 0;
  for (int i = 0; i < team->numWorkers; i++)
    if (team->workers[i].largest > largest) largest = team->workers[i].largest;
  return largest;
}

void lrmoeHostTeamPause(struct lrmoeHostTeam *team, int isPaused) {
  pthread_mutex_lock(&team->lock);
  team->isPaused = isPaused;
  pthread_cond_broadcast(&team->work);
  pthread_mutex_unlock(&team->lock);
}
