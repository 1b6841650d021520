/* One file of a checkpoint: numbers that say what it is of, then records of
 * bytes with an id each, then a check sum of all of it.  In the byte order of
 * the machine; on another one the magic does not match. */
#ifndef LRMOE_PERF_TRAIN_SHARD_H
#define LRMOE_PERF_TRAIN_SHARD_H

#include <stddef.h>
#include <stdint.h>

enum {
  trainShardFacts = 16
};

struct trainShard {
  char *bytes;
  size_t used;
  size_t room;
};

/* Begins one with facts; trainShardFree releases it. */
struct trainShard trainShardBegin(const int64_t facts[trainShardFacts]);
void trainShardFree(struct trainShard *shard);

/* Room for a record, to be filled by the caller at once. */
void *trainShardAdd(struct trainShard *shard, int64_t id, size_t bytes);

/* Writes it to a new file, which is on the disk when this returns; 0, or
 * errno. */
int trainShardWrite(struct trainShard *shard, const char *path);

/* Reads a file; 0, or why not: errno, or EBADMSG where it is cut or damaged. */
int trainShardRead(const char *path, struct trainShard *shard,
                   int64_t facts[trainShardFacts]);

/* The record of an id; NULL: none. */
const void *trainShardFind(const struct trainShard *shard, int64_t id,
                           size_t *bytes);

#endif
