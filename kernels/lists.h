/* Lists and numbers of a route, made where the flags of a selection are: the
 * contract.  They are what kernels then read as indices (backend.h has the
 * rules of memory and streams).
 *
 * All results are exact integers, and lists ascend, so that every backend gives
 * the same bits whatever the order of its threads. */
#ifndef LRMOE_KERNELS_LISTS_H
#define LRMOE_KERNELS_LISTS_H

#include "base/result.h"

/* Ranges of items, each with its flags: list l has the items of range l whose
 * flag is not 0, ascending. */
struct lrmoeFlagged {
  int64_t numLists;
  int64_t maxItems;          /* of a range */
  const int64_t *flagFirsts; /* [numLists] where the flags of a range begin */
  const int64_t *itemFirsts; /* [numLists] number of its first item */
  const int64_t *counts;     /* [numLists] items of the range */
  const uint8_t *flags;
  int64_t *offsets; /* [numLists + 1] where each list begins in `list` */
  int64_t *list;
};

/* What is learnt from flags before there is room for lists: how long they will
 * be, what they use, and how many overflows fall through. */
struct lrmoeFlagCount {
  struct lrmoeFlagged lists;  /* offsets is filled in, list not used */
  const int64_t *places;      /* of each item ... */
  const int64_t *placeFirsts; /* [numLists] ... from here on */
  uint8_t *marks; /* become 1 at the places of listed items; whole words of
                     4 bytes, aligned */
  const uint32_t *keys; /* of each item, or NULL */
  int64_t *dropped; /* [numLists] items that are not listed though their key is
                       LRMOE_KEY_NON_FINITE (select.h); with keys */
};

/* A table of marks [numRows, numColumns], row by row, as numbered by
 * numberMarks: list t has the numbers of the marks in column t, rows
 * ascending, each with its row's shift. */
struct lrmoeColumns {
  int64_t numRows;
  int64_t numColumns;
  const int64_t *numbers; /* [numRows * numColumns + 1] */
  const int64_t *shifts;  /* [numRows], or NULL: 0 */
  int64_t *offsets;       /* [numColumns + 1] out */
  int64_t *list;          /* [marks] out */
  int64_t *columns;       /* [marks] out: column of each mark; or NULL */
};

/* List t has the i with targets[i] == t, ascending.  Lists are short: sorting
 * one takes time that grows with the square of its length. */
struct lrmoeInversion {
  int64_t numItems;
  const int64_t *targets; /* [numItems] in [0, numLists) */
  int64_t numLists;
  int64_t *offsets; /* [numLists + 1] out */
  int64_t *list;    /* [numItems] out */
  int64_t *work;    /* [numLists] room */
};

/* values[i] += shifts[l] for i in [offsets[l], offsets[l + 1]). */
struct lrmoeShifts {
  int64_t numLists;
  int64_t maxItems;
  const int64_t *offsets; /* [numLists + 1] */
  const int64_t *shifts;  /* [numLists] */
  int64_t *values;
};

/* The CPU's. */
void lrmoeCountFlagged(const struct lrmoeFlagCount *args);
void lrmoeListFlagged(const struct lrmoeFlagged *args);
void lrmoeNumberMarks(int64_t count, const uint8_t *marks, int64_t *numbers);
void lrmoeListColumns(const struct lrmoeColumns *args);
void lrmoeInvert(const struct lrmoeInversion *args);
void lrmoeShiftLists(const struct lrmoeShifts *args);

#endif
