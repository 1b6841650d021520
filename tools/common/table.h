/* Tables for people, as nccl-tests prints them: fixed columns, "#" before
 * every line that is not a result.  A table can have a JSON document beside
 * it: then every cell goes there too, by its column's key. */
#ifndef LRMOE_TOOLS_TABLE_H
#define LRMOE_TOOLS_TABLE_H

#include <stdint.h>
#include <stdio.h>

struct toolJson;

struct toolColumn {
  const char *key;  /* JSON name, and the heading */
  const char *unit; /* second heading line, "" for none */
  int width;        /* least characters; longer cells push the rest right */
};

struct toolTable {
  FILE *out;
  struct toolJson *json; /* NULL: none */
  const struct toolColumn *columns;
  int numColumns;
  int at; /* column of the next cell */
};

/* Prints the headings. */
void toolTableBegin(struct toolTable *table);

/* The next cell of a row; the last one ends the line. */
void toolTableText(struct toolTable *table, const char *text);
void toolTableInt(struct toolTable *table, int64_t value);

/* With `digits` after the point; JSON gets all of them.  A value that is not
 * finite is "-" here and null there. */
void toolTableReal(struct toolTable *table, double value, int digits);

/* A line "# ...". */
void toolTableNote(FILE *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
