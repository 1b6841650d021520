/* One file of a checkpoint: see shard.h. */
#include "perf/train/shard.h"

#include "perf/train/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "LRMoTrn1" on a little-endian machine. */
#define SHARD_MAGIC 0x316e72546f4d524cu

struct header {
  uint64_t magic;
  uint64_t bytes; /* of the whole file, the check sum included */
  int64_t facts[trainShardFacts];
};

struct record {
  int64_t id;
  uint64_t bytes;
};

static size_t padded(size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

/* Of whole words, in their order. */
static uint64_t checkSum(const char *bytes, size_t count) {
  uint64_t sum = SHARD_MAGIC;
  for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
    uint64_t word;
    memcpy(&word, bytes + i, sizeof word);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 32;
  }
  return sum;
}

/* `bytes` more at the end, zeroed; a multiple of 8. */
static char *extend(struct trainShard *shard, size_t bytes) {
  if (shard->used + bytes > shard->room) {
    shard->room = 2 * (shard->used + bytes);
    shard->bytes = realloc(shard->bytes, shard->room);
    if (!shard->bytes) abort(); /* as trainRoom */
  }
  char *place = shard->bytes + shard->used;
  memset(place, 0, bytes);
  shard->used += bytes;
  return place;
}

struct trainShard trainShardBegin(const int64_t facts[trainShardFacts]) {
  struct trainShard shard = {0};
  struct header header = {.magic = SHARD_MAGIC};
  memcpy(header.facts, facts, sizeof header.facts);
  memcpy(extend(&shard, sizeof header), &header, sizeof header);
  return shard;
}

void trainShardFree(struct trainShard *shard) {
  free(shard->bytes);
  *shard = (struct trainShard){0};
}

void *trainShardAdd(struct trainShard *shard, int64_t id, size_t bytes) {
  const struct record record = {id, bytes};
  char *place = extend(shard, sizeof record + padded(bytes));
  memcpy(place, &record, sizeof record);
  return place + sizeof record;
}

/* ---- Files --------------------------------------------------------------- */

static int writeAll(int file, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t done = write(file, bytes, count);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    bytes += done;
    count -= (size_t)done;
  }
  return 0;
}

int trainShardWrite(struct trainShard *shard, const char *path) {
  uint64_t bytes = shard->used + sizeof(uint64_t);
  memcpy(shard->bytes + offsetof(struct header, bytes), &bytes, sizeof bytes);
  uint64_t sum = checkSum(shard->bytes, shard->used);
  memcpy(extend(shard, sizeof sum), &sum, sizeof sum);
  int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  int why = writeAll(file, shard->bytes, shard->used);
  if (!why && fsync(file)) why = errno;
  if (close(file) && !why) why = errno;
  return why;
}

static int readAll(int file, char *bytes, size_t count) {
  while (count > 0) {
    ssize_t done = read(file, bytes, count);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EBADMSG;
    bytes += done;
    count -= (size_t)done;
  }
  return 0;
}

static int check(const struct trainShard *shard) {
  struct header header;
  uint64_t sum;
  size_t summed = shard->used - sizeof sum;
  memcpy(&header, shard->bytes, sizeof header);
  memcpy(&sum, shard->bytes + summed, sizeof sum);
  int isGood = header.magic == SHARD_MAGIC && header.bytes == shard->used &&
               sum == checkSum(shard->bytes, summed);
  return isGood ? 0 : EBADMSG;
}

static int readFile(int file, struct trainShard *shard) {
  struct stat status;
  if (fstat(file, &status)) return errno;
  size_t bytes = (size_t)status.st_size;
  if (bytes % 8 || bytes < sizeof(struct header) + sizeof(uint64_t))
    return EBADMSG;
  extend(shard, bytes);
  int why = readAll(file, shard->bytes, bytes);
  return why ? why : check(shard);
}

int trainShardRead(const char *path, struct trainShard *shard,
                   int64_t facts[trainShardFacts]) {
  struct trainShard made = {0};
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno;
  int why = readFile(file, &made);
  close(file);
  if (why || !made.bytes) {
    trainShardFree(&made);
    return why ? why : EBADMSG;
  }
  memcpy(facts, made.bytes + offsetof(struct header, facts),
         trainShardFacts * sizeof *facts);
  *shard = made;
  return 0;
}

/* A record cannot reach beyond the check sum, or it ends the search. */
const void *trainShardFind(const struct trainShard *shard, int64_t id,
                           size_t *bytes) {
  size_t end = shard->used - sizeof(uint64_t);
  size_t at = sizeof(struct header);
  while (end - at >= sizeof(struct record)) {
    struct record record;
    memcpy(&record, shard->bytes + at, sizeof record);
    at += sizeof record;
    if (record.bytes > end - at) return NULL;
    if (record.id == id) {
      *bytes = record.bytes;
      return shard->bytes + at;
    }
    at += padded(record.bytes);
  }
  return NULL;
}
