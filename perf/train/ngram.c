/* An n-gram model of bytes: see ngram.h.
 *
 * A hash table per length.  An n-gram's entry has its count, and, as a context
 * of longer ones, their sum and number. */
#include "perf/train/ngram.h"

#include "perf/train/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
  uint64_t key; /* its bytes, the last one lowest, and 1 above: never 0 */
  int64_t count;
  int64_t total; /* of counts of the n-grams that continue it */
  int64_t numAfter;
};

struct table {
  struct entry *entries;
  int64_t room; /* a power of two */
  int64_t used;
  double discount;
};

struct trainNgram {
  struct table tables[trainNgramLength + 1]; /* by length */
};

/* ---- Tables -------------------------------------------------------------- */

static uint64_t keyOf(const uint8_t *bytes, int64_t length) {
  uint64_t key = 1;
  for (int64_t i = 0; i < length; i++)
    key = key << 8 | bytes[i];
  return key;
}

static struct entry *findIn(struct entry *entries, int64_t room, uint64_t key) {
  uint64_t mask = (uint64_t)room - 1;
  uint64_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;
  while (entries[at].key && entries[at].key != key)
    at = (at + 1) & mask;
  return &entries[at];
}

static void grow(struct table *table) {
  int64_t room = table->room ? 2 * table->room : 1024;
  struct entry *entries = trainRoom(room, sizeof *entries);
  for (int64_t i = 0; i < table->room; i++)
    if (table->entries[i].key)
      *findIn(entries, room, table->entries[i].key) = table->entries[i];
  free(table->entries);
  table->entries = entries;
  table->room = room;
}

static struct entry *insert(struct table *table, uint64_t key) {
  if (2 * table->used >= table->room) grow(table);
  struct entry *entry = findIn(table->entries, table->room, key);
  table->used += !entry->key;
  entry->key = key;
  return entry;
}

/* NULL: never seen. */
static const struct entry *lookUp(const struct table *table, uint64_t key) {
  if (!table->room) return NULL;
  const struct entry *entry = findIn(table->entries, table->room, key);
  return entry->key ? entry : NULL;
}

/* ---- Counting ------------------------------------------------------------ */

/* Every different n-gram counts once for its last n - 1 bytes. */
static void countShorter(struct trainNgram *ngram, int length) {
  const struct table *table = &ngram->tables[length];
  uint64_t top = (uint64_t)1 << 8 * (length - 1);
  for (int64_t i = 0; i < table->room; i++) {
    uint64_t key = table->entries[i].key;
    if (key && table->entries[i].count)
      insert(&ngram->tables[length - 1], (key & (top - 1)) | top)->count++;
  }
}

/* What each context is followed by, and the discount. */
static void sumContexts(struct trainNgram *ngram, int length) {
  struct table *table = &ngram->tables[length];
  double ones = 0, twos = 0;
  for (int64_t i = 0; i < table->room; i++) {
    const struct entry *entry = &table->entries[i];
    if (!entry->key || !entry->count) continue;
    struct entry *context = insert(&ngram->tables[length - 1], entry->key >> 8);
    context->total += entry->count;
    context->numAfter++;
    ones += entry->count == 1;
    twos += entry->count == 2;
  }
  double discount = ones > 0 ? ones / (ones + 2 * twos) : 0;
  table->discount = discount < 0.1 ? 0.1 : discount > 0.9 ? 0.9 : discount;
}

struct trainNgram *trainNgramMake(const uint8_t *bytes, int64_t count) {
  struct trainNgram *ngram = trainRoom(1, sizeof *ngram);
  for (int64_t i = 0; i + trainNgramLength <= count; i++)
    insert(&ngram->tables[trainNgramLength], keyOf(bytes + i, trainNgramLength))
        ->count++;
  for (int length = trainNgramLength; length > 1; length--)
    countShorter(ngram, length);
  for (int length = trainNgramLength; length > 0; length--)
    sumContexts(ngram, length);
  return ngram;
}

void trainNgramFree(struct trainNgram *ngram) {
  for (int i = 0; ngram && i <= trainNgramLength; i++)
    free(ngram->tables[i].entries);
  free(ngram);
}

/* ---- Use ----------------------------------------------------------------- */

double trainNgramProbability(const struct trainNgram *ngram,
                             const uint8_t *before, int64_t length,
                             uint8_t byte) {
  double probability = 1.0 / trainVocabulary;
  for (int64_t n = 1; n <= trainNgramLength && n - 1 <= length; n++) {
    uint64_t key = keyOf(before + length - (n - 1), n - 1);
    const struct entry *context = lookUp(&ngram->tables[n - 1], key);
    if (!context || !context->total) break;
    const struct table *table = &ngram->tables[n];
    const struct entry *entry = lookUp(table, key << 8 | byte);
    double own = entry ? (double)entry->count - table->discount : 0;
    double rest = table->discount * (double)context->numAfter;
    probability =
        ((own > 0 ? own : 0) + rest * probability) / (double)context->total;
  }
  return probability;
}

double trainNgramLoss(const struct trainNgram *ngram, const uint8_t *text,
                      int64_t first, int64_t count) {
  double loss = 0;
  for (int64_t i = first; i < first + count; i++) {
    int64_t length = i < trainNgramLength - 1 ? i : trainNgramLength - 1;
    loss -=
        log(trainNgramProbability(ngram, text + i - length, length, text[i]));
  }
  return loss;
}
