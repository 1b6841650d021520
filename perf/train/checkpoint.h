/* Checkpoints: a folder each, with a file per rank that wrote it.
 *
 *   DIR/step_000000000120/rank_0, rank_1, ...   whole
 *   DIR/step_000000000180.partial/...           being written, or left behind
 *
 * Each rank writes and syncs its file; when all have, rank 0 syncs the folder,
 * renames it, and syncs DIR; after that all but the two newest go.  So whatever
 * is killed when, a folder with a final name is whole, and the one before it is
 * still there.  Each file has a check sum besides: a damaged one makes resume
 * take the checkpoint before it.
 *
 * A file has its rank's experts, each on its own: weights, moments and count of
 * steps, as lrmoeHostOptimizerSave writes them.  Rank 0's has the dense
 * parameters and the past loads too.  Resume looks for what its rank needs in
 * all files, so the number of ranks may change. */
#ifndef LRMOE_PERF_TRAIN_CHECKPOINT_H
#define LRMOE_PERF_TRAIN_CHECKPOINT_H

#include "perf/train/optimizer.h"

/* Before ranks are forked: makes DIR where it is missing, and holds it until
 * this process and all its ranks have ended: two runs cannot mix there.  It
 * waits a moment for ranks of a run that was killed. */
enum toolExit trainCheckpointHold(const char *folder, struct toolError *error);

/* Whether DIR has checkpoints. */
int trainCheckpointIsThere(const char *folder);

/* Saves the state before step `step`.  textHash as in trainText.
 * Collective. */
enum toolExit trainCheckpointSave(struct trainOptimizer *optimizer,
                                  uint64_t textHash, int64_t step);

/* Takes the newest whole checkpoint; *step is 0 where DIR has none.  Refused
 * if it is of another model, text, seed or batch.  Collective. */
enum toolExit trainCheckpointResume(struct trainOptimizer *optimizer,
                                    uint64_t textHash, int64_t *step);

#endif
