/* Lists and numbers of a route on the CPU: see lists.h. */
#include "kernels/labels.h"
#include "kernels/lists.h"
#include "kernels/select.h"

#include <string.h>

/* One item of range l, which is listed or not. */
static void markItem(const struct lrmoeFlagCount *args, int64_t l, int64_t item,
                     uint8_t flag) {
  const struct lrmoeFlagged *lists = &args->lists;
  int64_t place = lists->placeFirsts[l] + lists->places[item];
  if (lrmoeIsWanted(args->marked[l], flag)) args->marks[place] = 1;
  if (args->xMarks && flag >= lrmoeLabelMoved &&
      lrmoeIsWanted(lists->wanted[l], flag))
    args->xMarks[place] = 1;
}

/* One range: marks what it lists, and counts that and what overflows. */
static int64_t countRange(const struct lrmoeFlagCount *args, int64_t l,
                          int64_t *dropped) {
  const uint8_t *flags = args->lists.flags + args->lists.flagFirsts[l];
  int64_t first = args->lists.itemFirsts[l];
  int64_t count = 0;
  *dropped = 0;
  for (int64_t i = 0; i < args->lists.counts[l]; i++) {
    markItem(args, l, first + i, flags[i]);
    count += lrmoeIsWanted(args->lists.wanted[l], flags[i]);
    if (args->keys && !flags[i])
      *dropped += args->keys[first + i] == LRMOE_KEY_NON_FINITE;
  }
  return count;
}

void lrmoeCountFlagged(const struct lrmoeFlagCount *args) {
  int64_t sum = 0;
  for (int64_t l = 0; l < args->lists.numLists; l++) {
    int64_t dropped;
    args->lists.offsets[l] = sum;
    sum += countRange(args, l, &dropped);
    if (args->keys) args->dropped[l] = dropped;
  }
  args->lists.offsets[args->lists.numLists] = sum;
}

void lrmoeListFlagged(const struct lrmoeFlagged *args) {
  for (int64_t l = 0; l < args->numLists; l++) {
    const uint8_t *flags = args->flags + args->flagFirsts[l];
    int64_t at = args->offsets[l];
    for (int64_t i = 0; i < args->counts[l]; i++) {
      int64_t item = args->itemFirsts[l] + i;
      if (!lrmoeIsWanted(args->wanted[l], flags[i])) continue;
      if (args->listPlaces)
        args->listPlaces[at] = args->placeFirsts[l] + args->places[item];
      args->list[at++] = item;
    }
  }
}

void lrmoeListHandoff(const struct lrmoeHandoffLists *args) {
  for (int64_t i = 0; i < args->numRows; i++) {
    int64_t item = args->items[i];
    int64_t place = args->places[i];
    int isHere = item < args->numLocal;
    args->xRows[i] = isHere ? args->xRow[item] : args->xNumbers[place];
    args->weights[i] = isHere ? args->alpha[item] : 0;
    args->items[i] = isHere ? item : -1;
    args->places[i] = args->gNumbers[place];
  }
}

void lrmoePackBits(const struct lrmoeBits *args) {
  for (int64_t p = 0; p < args->numPieces; p++) {
    const uint8_t *flags = args->flags + args->flagFirsts[p];
    uint32_t *words = args->words + args->wordFirsts[p];
    for (int64_t i = 0; i < args->counts[p]; i++) {
      if (i % 32 == 0) words[i / 32] = 0;
      words[i / 32] |= (uint32_t)flags[i] << i % 32;
    }
  }
}

void lrmoeUnpackBits(const struct lrmoeBits *args) {
  for (int64_t p = 0; p < args->numPieces; p++) {
    uint8_t *flags = args->flags + args->flagFirsts[p];
    const uint32_t *words = args->words + args->wordFirsts[p];
    for (int64_t i = 0; i < args->counts[p]; i++)
      flags[i] = words[i / 32] >> i % 32 & 1;
  }
}

void lrmoeNumberMarks(int64_t count, const uint8_t *marks, int64_t *numbers) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    numbers[i] = sum;
    sum += marks[i];
  }
  numbers[count] = sum;
}

static int64_t shiftOf(const struct lrmoeColumns *args, int64_t row) {
  if (!args->stride) return 0;
  return row * args->stride - args->numbers[row * args->numColumns];
}

void lrmoeListColumns(const struct lrmoeColumns *args) {
  int64_t at = 0;
  for (int64_t t = 0; t < args->numColumns; t++) {
    args->offsets[t] = at;
    for (int64_t r = 0; r < args->numRows; r++) {
      const int64_t *number = args->numbers + r * args->numColumns + t;
      if (number[0] == number[1]) continue;
      if (args->list) args->list[at] = number[0] + shiftOf(args, r);
      at++;
      if (args->columns) args->columns[number[0]] = t;
    }
  }
  args->offsets[args->numColumns] = at;
}

void lrmoeInvert(const struct lrmoeInversion *args) {
  int64_t *offsets = args->offsets;
  memset(offsets, 0, (size_t)(args->numLists + 1) * sizeof *offsets);
  for (int64_t i = 0; i < args->numItems; i++)
    offsets[args->targets[i] + 1]++;
  /* Shift by one place: offsets[t + 1] becomes the cursor of list t. */
  int64_t sum = 0;
  for (int64_t t = 0; t < args->numLists; t++) {
    int64_t count = offsets[t + 1];
    offsets[t + 1] = sum;
    sum += count;
  }
  for (int64_t i = 0; i < args->numItems; i++)
    args->list[offsets[args->targets[i] + 1]++] = i;
}

void lrmoeShiftLists(const struct lrmoeShifts *args) {
  for (int64_t l = 0; l < args->numLists; l++) {
    int64_t rank = l % args->numRanks;
    for (int64_t i = args->offsets[l]; i < args->offsets[l + 1]; i++)
      args->values[i] += rank * args->stride - args->begins[rank];
  }
}

void lrmoeSpoilDropped(const struct lrmoeSpoils *args) {
  const struct lrmoeFlagged *lists = &args->lists;
  for (int64_t l = 0; l < lists->numLists; l++) {
    const uint8_t *flags = lists->flags + lists->flagFirsts[l];
    int64_t first = lists->itemFirsts[l];
    for (int64_t i = first; i < first + lists->counts[l]; i++)
      if (!flags[i - first] && args->keys[i] == LRMOE_KEY_NON_FINITE)
        memset((char *)args->rows + lists->places[i] * args->rowBytes, 0xff,
               (size_t)args->rowBytes);
  }
}
