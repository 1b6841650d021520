/* The folders of checkpoints: names, and what makes a new one whole at once.
 * Functions that can fail give 0 or errno. */
#ifndef LRMOE_PERF_TRAIN_FOLDER_H
#define LRMOE_PERF_TRAIN_FOLDER_H

#include <limits.h>
#include <stdint.h>

enum {
  trainPathRoom = PATH_MAX,
  trainMaxFolders = 64
};

/* Path of a rank's file of a checkpoint, or of one that is being written. */
void trainFolderShard(const char *folder, int64_t step, int isPartial, int rank,
                      char path[trainPathRoom]);

/* Removes what was left half-written, and makes the folder to write into. */
int trainFolderBegin(const char *folder, int64_t step);

/* Gives it its final name, on the disk too, and removes all but the two newest
 * checkpoints. */
int trainFolderCommit(const char *folder, int64_t step);

/* Steps of the whole checkpoints, newest first; returns how many. */
int trainFolderList(const char *folder, int64_t steps[trainMaxFolders]);

#endif
