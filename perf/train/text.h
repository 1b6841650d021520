/* The trainer's text: bytes of UTF-8 files, split into train and held-out.
 *
 * The text is cut into blocks of 8 KiB (less of a short text, so that there are
 * at least 40); every tenth block is held out.  Both parts are then joined
 * without gaps, so a window may cross a seam. */
#ifndef LRMOE_PERF_TRAIN_TEXT_H
#define LRMOE_PERF_TRAIN_TEXT_H

#include "tools/common/fail.h"

#include <stdint.h>

/* Where Debian's package `fortunes` has its text. */
#define TRAIN_DEFAULT_TEXT "/usr/share/games/fortunes"

struct trainText {
  uint8_t *train;
  uint8_t *heldOut;
  int64_t numTrain;
  int64_t numHeldOut;
  uint64_t hash; /* of the whole text */
};

/* Reads a file, or all files below a folder in the order of their names,
 * leaving out links, hidden files and what is not UTF-8.  Each part must have
 * `least` bytes.  toolNotInstalled where the default text is missing.  Free
 * with trainTextFree. */
enum toolExit trainTextRead(const char *path, int64_t least,
                            struct trainText *text, struct toolError *error);

/* The same of bytes in memory, which `name` stands for in messages. */
enum toolExit trainTextSplit(const char *name, const uint8_t *bytes,
                             int64_t count, int64_t least,
                             struct trainText *text, struct toolError *error);
void trainTextFree(struct trainText *text);

/* Whether bytes are UTF-8 without NUL. */
int trainTextIsUtf8(const uint8_t *bytes, int64_t count);

/* Where window `index`, counted over all steps, begins in the train part: the
 * same for every number of ranks.  It and the byte after it are inside. */
int64_t trainTextWindow(const struct trainText *text, uint64_t seed,
                        int64_t index, int64_t context);

/* How many windows of held-out text are scored, and where the i-th begins:
 * `most` of them, evenly spread, or (0) all that do not overlap. */
int64_t trainTextHeldOut(const struct trainText *text, int64_t context,
                         int64_t most);
int64_t trainTextHeldOutAt(const struct trainText *text, int64_t context,
                           int64_t count, int64_t i);

#endif
