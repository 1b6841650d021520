/* Lists and numbers of a route, made where the flags of a selection are: the
 * contract.  They are what kernels then read as indices (backend.h has the
 * rules of memory and streams).
 *
 * All results are exact integers, and lists ascend, so that every backend gives
 * the same bits whatever the order of its threads. */
#ifndef LRMOE_KERNELS_LISTS_H
#define LRMOE_KERNELS_LISTS_H

#include "base/result.h"

/* What a flag says of a kept pair: labels.h.  A range wants the flags from
 * `first` on, `count` of them, after 255 comes 0. */
#define LRMOE_WANT(first, count) ((first) + 256 * ((int64_t)(count)-1))

static inline int lrmoeIsWanted(int64_t wanted, uint8_t flag) {
  return (uint8_t)(flag - (uint8_t)wanted) <= wanted >> 8;
}

/* Ranges of items, each with its flags: list l has the items of range l whose
 * flags are wanted, ascending. */
struct lrmoeFlagged {
  int64_t numLists;
  int64_t maxItems;          /* of a range */
  const int64_t *flagFirsts; /* [numLists] where the flags of a range begin */
  const int64_t *itemFirsts; /* [numLists] number of its first item */
  const int64_t *counts;     /* [numLists] items of the range */
  const int64_t *wanted;     /* [numLists] LRMOE_WANT */
  const uint8_t *flags;
  const int32_t *places;      /* of each item ... */
  const int64_t *placeFirsts; /* [numLists] ... from here on */
  int64_t *offsets; /* [numLists + 1] where each list begins in `list` */
  int64_t *list;
  int64_t *listPlaces; /* out: placeFirst + place of each, or NULL */
};

/* What is learnt from flags before there is room for lists: how long they will
 * be, what they use, and how many overflows fall through. */
struct lrmoeFlagCount {
  struct lrmoeFlagged lists; /* offsets is filled in, list not used */
  const int64_t *marked;     /* [numLists] flags of the items that are marked,
                                LRMOE_WANT */
  uint8_t *marks;  /* become 1 at the places of marked items; whole words of 4
                      bytes, aligned */
  uint8_t *xMarks; /* the same of listed items that come with x; or NULL */
  const uint32_t *keys; /* of each item, or NULL */
  int64_t *dropped;     /* [numLists] items whose flag is 0 though their key is
                       LRMOE_KEY_NON_FINITE (select.h); with keys */
};

/* A handoff from its list: items below numLocal are pairs that stayed, the
 * others come with x. */
struct lrmoeHandoffLists {
  int64_t numRows;
  int64_t numLocal;
  int64_t *items;          /* [numRows] becomes fwdRow: -1 where x comes */
  int64_t *places;         /* [numRows] becomes gRow */
  const int64_t *gNumbers; /* by place */
  const int64_t *xNumbers; /* by place; NULL: all stayed */
  const int64_t *xRow;     /* [numLocal] */
  const float *alpha;      /* [numLocal] */
  int64_t *xRows;          /* [numRows] out */
  float *weights;          /* [numRows] out, 0 where x comes */
};

/* Flags as bits: piece i has counts[i] flags from flags + flagFirsts[i] on, and
 * as many bits, the lowest first, in whole words from words + wordFirsts[i] on;
 * the bits behind the last are 0. */
struct lrmoeBits {
  int64_t numPieces;
  int64_t maxFlags; /* of a piece */
  const int64_t *flagFirsts;
  const int64_t *wordFirsts;
  const int64_t *counts;
  uint8_t *flags; /* 0 or 1 */
  uint32_t *words;
};

/* A table of marks [numRows, numColumns], row by row, as numbered by
 * numberMarks: list t has the numbers of the marks in column t, rows
 * ascending. */
struct lrmoeColumns {
  int64_t numRows;
  int64_t numColumns;
  const int64_t *numbers; /* [numRows * numColumns + 1] */
  int64_t stride;         /* 0, or row r is numbered anew, from r * stride */
  int64_t *offsets;       /* [numColumns + 1] out */
  int64_t *list;          /* [marks] out; or NULL */
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

/* Rows of all ranks from one sequence to a stretch for each rank: list l is
 * that of rank r = l % numRanks, and values[i] += r * stride - begins[r] for i
 * in [offsets[l], offsets[l + 1]). */
struct lrmoeShifts {
  int64_t numLists;
  int64_t numRanks;
  int64_t stride;
  const int64_t *offsets; /* [numLists + 1] */
  const int64_t *begins;  /* [numRanks] */
  int64_t *values;
};

/* Spoils row places[i] of each item i of a range whose flag is 0 though its key
 * is LRMOE_KEY_NON_FINITE: an overflow that is dropped has to show (design
 * invariant 8). */
struct lrmoeSpoils {
  struct lrmoeFlagged lists; /* of it the ranges and places */
  const uint32_t *keys;      /* of each item */
  int64_t rowBytes;          /* a multiple of 16 */
  void *rows;
};

/* The CPU's. */
void lrmoeCountFlagged(const struct lrmoeFlagCount *args);
void lrmoeListFlagged(const struct lrmoeFlagged *args);
void lrmoeNumberMarks(int64_t count, const uint8_t *marks, int64_t *numbers);
void lrmoeListColumns(const struct lrmoeColumns *args);
void lrmoeInvert(const struct lrmoeInversion *args);
void lrmoeShiftLists(const struct lrmoeShifts *args);
void lrmoeListHandoff(const struct lrmoeHandoffLists *args);
void lrmoeSpoilDropped(const struct lrmoeSpoils *args);
void lrmoePackBits(const struct lrmoeBits *args);
void lrmoeUnpackBits(const struct lrmoeBits *args);

#endif
