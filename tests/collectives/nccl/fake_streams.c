/* See fake_streams.h. */
#include "fake_streams.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

atomic_int fakeStreamError;
atomic_int fakeStreamBlock;
atomic_int fakeStreamWaiting;
atomic_int fakeOpenAccesses;
atomic_int fakeAccesses;

struct item {
  void (*work)(void *);
  void *argument;
  struct item *next;
};

struct CUstream_st {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct item *first;
  struct item *last;
  int isRunning;
  int isClosed;
};

static void *streamMain(void *argument) {
  lrmoeStream_t stream = argument;
  pthread_mutex_lock(&stream->mutex);
  for (;;) {
    struct item *item = stream->first;
    if (!item && stream->isClosed) break;
    if (!item) {
      pthread_cond_wait(&stream->changed, &stream->mutex);
      continue;
    }
    stream->first = item->next;
    stream->isRunning = 1;
    pthread_mutex_unlock(&stream->mutex);
    item->work(item->argument);
    free(item);
    pthread_mutex_lock(&stream->mutex);
    stream->isRunning = 0;
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

lrmoeStream_t fakeStreamMake(void) {
  lrmoeStream_t stream = calloc(1, sizeof *stream);
  if (!stream) abort();
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->changed, NULL);
  if (pthread_create(&stream->thread, NULL, streamMain, stream)) abort();
  return stream;
}

int lrmoeSimtStreamEnqueue(struct CUstream_st *stream, void (*work)(void *),
                           void *argument) {
  const struct timespec nap = {0, 1000000};
  int error = atomic_load(&fakeStreamError);
  if (error) return error;
  if (atomic_load(&fakeStreamBlock)) atomic_fetch_add(&fakeStreamWaiting, 1);
  while (atomic_load(&fakeStreamBlock))
    nanosleep(&nap, NULL);
  struct item *item = calloc(1, sizeof *item);
  if (!item) abort();
  *item = (struct item){work, argument, NULL};
  pthread_mutex_lock(&stream->mutex);
  if (stream->first)
    stream->last->next = item;
  else
    stream->first = item;
  stream->last = item;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  return 0;
}

void fakeStreamSync(lrmoeStream_t stream) {
  pthread_mutex_lock(&stream->mutex);
  while (stream->first || stream->isRunning)
    pthread_cond_wait(&stream->changed, &stream->mutex);
  pthread_mutex_unlock(&stream->mutex);
}

void fakeStreamFree(lrmoeStream_t stream) {
  pthread_mutex_lock(&stream->mutex);
  stream->isClosed = 1;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  pthread_join(stream->thread, NULL);
  pthread_mutex_destroy(&stream->mutex);
  pthread_cond_destroy(&stream->changed);
  free(stream);
}

static void waitForGate(void *argument) {
  const struct timespec nap = {0, 1000000};
  atomic_int *gate = argument;
  while (!atomic_load(gate))
    nanosleep(&nap, NULL);
}

void fakeStreamHold(lrmoeStream_t stream, atomic_int *gate) {
  lrmoeSimtStreamEnqueue(stream, waitForGate, gate);
}

void lrmoeSimtAccessBegin(void) {
  atomic_fetch_add(&fakeAccesses, 1);
  atomic_fetch_add(&fakeOpenAccesses, 1);
}

void lrmoeSimtAccessEnd(void) {
  atomic_fetch_sub(&fakeOpenAccesses, 1);
}

int cudaGetDevice(int *device) {
  *device = 5;
  return 0;
}
