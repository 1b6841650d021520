/* Expert loads from a CSV file.
 *
 *   step,rank,layer,expert,count      columns in any order; step and rank may
 *   0,0,3,17,4012                     be missing and are then 0
 *
 * A column `importance` may be there besides: the gate mass of the expert, a
 * whole number in any unit (only its share of its step and layer counts).
 *
 * The format is plain: numbers in decimal digits, no quotes, no blanks.  A
 * UTF-8 mark at the start, CR LF, empty lines and a missing last line end are
 * accepted.  Anything else is refused as "FILE:LINE: reason": columns with
 * other names, missing or spare fields, signs, numbers beyond int64, NUL
 * bytes, lines over 4096 bytes, experts from 10^6 and ranks from 65536 on, a
 * second count for the same (step, layer, rank, expert), and counts of one
 * (step, layer) that add up to more than an int64.
 *
 * Memory is bounded by the length of the input (files: 256 MiB), whatever the
 * numbers in it: rows are kept as they are, and a dense array is made for one
 * (step, layer) at a time. */
#ifndef LRMOE_TOOLS_CSV_H
#define LRMOE_TOOLS_CSV_H

#include "tools/common/fail.h"

#include <stddef.h>
#include <stdint.h>

enum {
  toolMaxLoadExperts = 1000000,
  toolMaxLoadRanks = 65536
};

struct toolLoadRow {
  int64_t step;
  int64_t layer;
  int64_t count;
  int64_t importance; /* 0 where the file has none */
  int64_t line;       /* in the file, from 1 */
  int32_t rank;
  int32_t expert;
};

/* The rows of one (step, layer). */
struct toolLoadSection {
  int64_t step;
  int64_t layer;
  int64_t firstRow;
  int64_t numRows;
  int64_t total; /* sum of counts */
};

struct toolLoad {
  struct toolLoadRow *rows; /* by step, layer, rank, expert */
  int64_t numRows;
  struct toolLoadSection *sections; /* by step, layer */
  int64_t numSections;
  int32_t numExperts; /* highest expert of the file + 1 */
  int32_t numRanks;   /* highest rank of the file + 1 */
  int hasImportance;  /* the file has the column */
};

/* Reads from memory; `name` stands for the file in messages.  load needs no
 * initial value and is written only on success; free it with toolLoadFree. */
enum toolExit toolLoadParse(const char *name, const char *data, size_t bytes,
                            struct toolLoad *load, struct toolError *error);
enum toolExit toolLoadRead(const char *path, struct toolLoad *load,
                           struct toolError *error);
void toolLoadFree(struct toolLoad *load);

/* The section of (step, layer); a negative number means the first there is.
 * NULL: none. */
const struct toolLoadSection *toolLoadFind(const struct toolLoad *load,
                                           int64_t step, int64_t layer);

/* counts [numExperts] of a section, summed over ranks; free() it. */
enum toolExit toolLoadCounts(const struct toolLoad *load,
                             const struct toolLoadSection *section,
                             int64_t **counts, struct toolError *error);

/* The same by rank, [numRanks, numExperts]; refused beyond 2^26 numbers. */
enum toolExit toolLoadCountsByRank(const struct toolLoad *load,
                                   const struct toolLoadSection *section,
                                   int64_t **counts, struct toolError *error);

/* shares [numExperts] of the gate mass of a section, over all ranks, which add
 * up to 1; free() it.  *shares is NULL where the file has no such column or the
 * section no mass. */
enum toolExit toolLoadImportance(const struct toolLoad *load,
                                 const struct toolLoadSection *section,
                                 double **shares, struct toolError *error);

#endif
