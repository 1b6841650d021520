/* The trainer's text: see text.h. */
#include "perf/train/text.h"

#include "perf/train/config.h"
#include "tools/common/workload.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
  heldOutOf = 10, /* one block of so many is held out */
  blockBytes = 8192,
  leastBlocks = 40,
  maxDepth = 16
};

static const int64_t maxBytes = (int64_t)1 << 30;

struct buffer {
  uint8_t *bytes;
  int64_t count;
  int64_t room;
};

/* ---- UTF-8 --------------------------------------------------------------- */

/* RFC 3629, section 4: a character's first byte, its second, and its length. */
static const struct form {
  uint8_t first, last;
  uint8_t low, high;
  int64_t length;
} forms[] = {{0x01, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2},
             {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
             {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
             {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
             {0xf4, 0xf4, 0x80, 0x8f, 4}};

static int64_t lengthBy(const struct form *form, const uint8_t *bytes) {
  if (form->length > 1 && (bytes[1] < form->low || bytes[1] > form->high))
    return 0;
  for (int64_t i = 2; i < form->length; i++)
    if ((bytes[i] & 0xc0) != 0x80) return 0;
  return form->length;
}

/* Length of the character at bytes, 0 if there is none. */
static int64_t characterBytes(const uint8_t *bytes, int64_t count) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (bytes[0] >= forms[i].first && bytes[0] <= forms[i].last)
      return forms[i].length <= count ? lengthBy(&forms[i], bytes) : 0;
  return 0;
}

int trainTextIsUtf8(const uint8_t *bytes, int64_t count) {
  for (int64_t i = 0, length; i < count; i += length) {
    length = characterBytes(bytes + i, count - i);
    if (!length) return 0;
  }
  return 1;
}

/* ---- Files --------------------------------------------------------------- */

static enum toolExit reserve(struct buffer *buffer, int64_t more,
                             const char *path, struct toolError *error) {
  if (more > maxBytes - buffer->count)
    return toolFail(error, toolBadInput, "%.200s: the text is over 1 GiB",
                    path);
  if (buffer->count + more <= buffer->room) return toolGood;
  int64_t room = 2 * (buffer->count + more);
  uint8_t *larger = realloc(buffer->bytes, (size_t)room);
  if (!larger)
    return toolFail(error, toolBadInput, "%.200s: no memory for it", path);
  buffer->bytes = larger;
  buffer->room = room;
  return toolGood;
}

/* Adds a file; one that is not UTF-8 is refused if it was named, otherwise left
 * out. */
static enum toolExit addFile(struct buffer *buffer, const char *path,
                             int isNamed, struct toolError *error) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return toolFail(error, toolBadInput, "%.200s: %s", path, strerror(errno));
  enum toolExit code = toolGood;
  int64_t start = buffer->count;
  size_t got = 1;
  while (got > 0 && code == toolGood) {
    code = reserve(buffer, 1 << 16, path, error);
    if (code) break;
    got = fread(buffer->bytes + buffer->count, 1, 1 << 16, file);
    buffer->count += (int64_t)got;
  }
  if (code == toolGood && ferror(file))
    code = toolFail(error, toolBadInput, "%.200s: cannot be read", path);
  fclose(file);
  if (code) return code;
  if (trainTextIsUtf8(buffer->bytes + start, buffer->count - start))
    return toolGood;
  if (isNamed)
    return toolFail(error, toolBadInput, "%.200s: is not UTF-8 text", path);
  buffer->count = start;
  return toolGood;
}

static enum toolExit addFolder(struct buffer *buffer, const char *path,
                               int depth, struct toolError *error);

static enum toolExit addEntry(struct buffer *buffer, const char *path,
                              int depth, struct toolError *error) {
  struct stat status;
  if (lstat(path, &status)) return toolGood; /* gone meanwhile */
  if (S_ISREG(status.st_mode)) return addFile(buffer, path, 0, error);
  if (!S_ISDIR(status.st_mode) || depth >= maxDepth) return toolGood;
  return addFolder(buffer, path, depth + 1, error);
}

static enum toolExit addFolder(struct buffer *buffer, const char *path,
                               int depth, struct toolError *error) {
  struct dirent **entries = NULL;
  int count = scandir(path, &entries, NULL, alphasort);
  if (count < 0)
    return toolFail(error, toolBadInput, "%.200s: %s", path, strerror(errno));
  enum toolExit code = toolGood;
  for (int i = 0; i < count; i++) {
    char name[PATH_MAX];
    int used = snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
    if (code == toolGood && entries[i]->d_name[0] != '.' &&
        used < (int)sizeof name)
      code = addEntry(buffer, name, depth, error);
    free(entries[i]);
  }
  free(entries);
  return code;
}

enum toolExit trainTextRead(const char *path, int64_t least,
                            struct trainText *text, struct toolError *error) {
  struct stat status;
  struct buffer buffer = {0};
  if (stat(path, &status)) {
    if (strcmp(path, TRAIN_DEFAULT_TEXT) == 0)
      return toolFail(error, toolNotInstalled,
                      "%s is missing: install Debian's fortunes, or name a "
                      "text with --text",
                      path);
    return toolFail(error, toolBadInput, "%.200s: %s", path, strerror(errno));
  }
  enum toolExit code = S_ISDIR(status.st_mode)
                           ? addFolder(&buffer, path, 0, error)
                           : addFile(&buffer, path, 1, error);
  if (code == toolGood)
    code = trainTextSplit(path, buffer.bytes, buffer.count, least, text, error);
  free(buffer.bytes);
  return code;
}

/* ---- Parts --------------------------------------------------------------- */

static uint64_t hashOf(const uint8_t *bytes, int64_t count) {
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  for (int64_t i = 0; i < count; i++)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash;
}

enum toolExit trainTextSplit(const char *name, const uint8_t *bytes,
                             int64_t count, int64_t least,
                             struct trainText *text, struct toolError *error) {
  int64_t block = count / leastBlocks < blockBytes ? count / leastBlocks
                                                   : (int64_t)blockBytes;
  struct trainText made = {.train = trainRoom(count, 1),
                           .heldOut = trainRoom(count, 1),
                           .hash = hashOf(bytes, count)};
  if (block < 1) block = 1;
  for (int64_t at = 0, i = 0; at < count; at += block, i++) {
    int64_t length = count - at < block ? count - at : block;
    int isHeldOut = i % heldOutOf == heldOutOf - 1;
    uint8_t *to =
        isHeldOut ? made.heldOut + made.numHeldOut : made.train + made.numTrain;
    memcpy(to, bytes + at, (size_t)length);
    *(isHeldOut ? &made.numHeldOut : &made.numTrain) += length;
  }
  if (made.numTrain < least || made.numHeldOut < least) {
    trainTextFree(&made);
    return toolFail(error, toolBadInput,
                    "%.200s: %lld bytes of text are too few: train and "
                    "held-out part need %lld each",
                    name, (long long)count, (long long)least);
  }
  *text = made;
  return toolGood;
}

void trainTextFree(struct trainText *text) {
  free(text->train);
  free(text->heldOut);
  *text = (struct trainText){0};
}

/* ---- Windows ------------------------------------------------------------- */

int64_t trainTextWindow(const struct trainText *text, uint64_t seed,
                        int64_t index, int64_t context) {
  struct toolRandom random = toolRandomMake(seed, (uint64_t)index);
  return (int64_t)toolRandomBelow(&random,
                                  (uint64_t)(text->numTrain - context));
}

int64_t trainTextHeldOut(const struct trainText *text, int64_t context,
                         int64_t most) {
  int64_t all = (text->numHeldOut - 1) / context;
  return most && most < all ? most : all;
}

int64_t trainTextHeldOutAt(const struct trainText *text, int64_t context,
                           int64_t count, int64_t i) {
  int64_t all = (text->numHeldOut - 1) / context;
  return i * all / count * context;
}
