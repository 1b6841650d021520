/* The load CSV: see csv.h.  One pass over the bytes makes the rows; sorting
 * them brings duplicates and sections together. */
#include "tools/common/csv.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxLineBytes = 4096
};

enum column {
  columnStep,
  columnRank,
  columnLayer,
  columnExpert,
  columnCount,
  columnImportance
};
enum {
  numColumns = columnImportance + 1
};
static const char *const columnNames[numColumns] = {
    "step", "rank", "layer", "expert", "count", "importance"};
/* Largest value, inclusive. */
static const int64_t columnMaximum[numColumns] = {
    INT64_MAX, toolMaxLoadRanks - 1,
    INT64_MAX, toolMaxLoadExperts - 1,
    INT64_MAX, INT64_MAX};

struct reader {
  const char *name;
  const char *next;
  const char *end;
  int64_t line; /* of the text below, from 1 */
  const char *text;
  size_t bytes; /* of the text, without its end */
  enum column order[numColumns];
  int numFields;
  int hasImportance;
  struct toolLoadRow *rows;
  int64_t numRows;
  int64_t roomRows;
  struct toolError *error;
};

#define REFUSE(reader, format, ...)                                  \
  (toolFail((reader)->error, toolBadInput, "%.200s:%lld: " format,   \
            (reader)->name, (long long)(reader)->line, __VA_ARGS__), \
   toolBadInput)

/* ---- Lines and fields --------------------------------------------------- */

/* Goes to the next line that is not empty; 0: there is none. */
static int nextLine(struct reader *reader) {
  while (reader->next < reader->end) {
    size_t left = (size_t)(reader->end - reader->next);
    const char *stop = memchr(reader->next, '\n', left);
    reader->text = reader->next;
    reader->bytes = stop ? (size_t)(stop - reader->next) : left;
    reader->next += stop ? reader->bytes + 1 : left;
    reader->line++;
    if (reader->bytes && reader->text[reader->bytes - 1] == '\r')
      reader->bytes--;
    if (reader->bytes) return 1;
  }
  return 0;
}

static enum toolExit checkLine(const struct reader *reader) {
  if (reader->bytes > maxLineBytes)
    return REFUSE(reader, "the line is %zu bytes long, over %d", reader->bytes,
                  maxLineBytes);
  if (memchr(reader->text, 0, reader->bytes))
    return REFUSE(reader, "%s", "the line has a NUL byte");
  return toolGood;
}

static int countFields(const struct reader *reader) {
  int numFields = 1;
  for (size_t i = 0; i < reader->bytes; i++)
    numFields += reader->text[i] == ',';
  return numFields;
}

struct field {
  const char *text;
  int bytes; /* at most maxLineBytes */
};

/* Takes the field at *at; *at becomes the end after the last one. */
static struct field nextField(const struct reader *reader, const char **at) {
  const char *end = reader->text + reader->bytes;
  const char *comma = memchr(*at, ',', (size_t)(end - *at));
  struct field field = {*at, (int)((comma ? comma : end) - *at)};
  *at = comma ? comma + 1 : end;
  return field;
}

static enum toolExit readNumber(const struct reader *reader, struct field field,
                                enum column column, int64_t *value) {
  const char *name = columnNames[column];
  int64_t number = 0;
  for (int i = 0; i < field.bytes; i++) {
    int digit = field.text[i] - '0';
    if (digit < 0 || digit > 9)
      return REFUSE(reader, "%s \"%.*s\" is not a number of digits", name,
                    field.bytes > 40 ? 40 : field.bytes, field.text);
    if (number > (columnMaximum[column] - digit) / 10)
      return REFUSE(reader, "%s %.*s is over %lld", name,
                    field.bytes > 40 ? 40 : field.bytes, field.text,
                    (long long)columnMaximum[column]);
    number = number * 10 + digit;
  }
  if (!field.bytes) return REFUSE(reader, "%s is empty", name);
  *value = number;
  return toolGood;
}

/* ---- Header and rows ---------------------------------------------------- */

static int findColumn(struct field field) {
  for (int i = 0; i < numColumns; i++)
    if (strlen(columnNames[i]) == (size_t)field.bytes &&
        memcmp(columnNames[i], field.text, (size_t)field.bytes) == 0)
      return i;
  return -1;
}

static enum toolExit readHeader(struct reader *reader) {
  if (!nextLine(reader)) return REFUSE(reader, "%s", "there is no header");
  enum toolExit code = checkLine(reader);
  if (code) return code;
  unsigned seen = 0;
  const char *at = reader->text;
  for (int left = countFields(reader); left > 0; left--) {
    struct field field = nextField(reader, &at);
    int column = findColumn(field);
    if (column < 0)
      return REFUSE(reader,
                    "column \"%.*s\" is not one of step, rank, layer, expert, "
                    "count, importance",
                    field.bytes > 40 ? 40 : field.bytes, field.text);
    if (seen & 1u << column)
      return REFUSE(reader, "column %s is there twice", columnNames[column]);
    seen |= 1u << column;
    reader->order[reader->numFields++] = (enum column)column;
  }
  reader->hasImportance = (seen & 1u << columnImportance) != 0;
  for (int column = columnLayer; column <= columnCount; column++)
    if (!(seen & 1u << column))
      return REFUSE(reader, "column %s is missing", columnNames[column]);
  return toolGood;
}

static enum toolExit addRow(struct reader *reader,
                            const int64_t values[numColumns]) {
  if (reader->numRows == reader->roomRows) {
    int64_t room = reader->roomRows ? 2 * reader->roomRows : 64;
    struct toolLoadRow *rows =
        realloc(reader->rows, (size_t)room * sizeof *rows);
    if (!rows)
      return REFUSE(reader, "no memory for %lld rows", (long long)room);
    reader->rows = rows;
    reader->roomRows = room;
  }
  reader->rows[reader->numRows++] = (struct toolLoadRow){
      .step = values[columnStep],
      .layer = values[columnLayer],
      .count = values[columnCount],
      .importance = values[columnImportance],
      .line = reader->line,
      .rank = (int32_t)values[columnRank],
      .expert = (int32_t)values[columnExpert],
  };
  return toolGood;
}

static enum toolExit readRow(struct reader *reader) {
  enum toolExit code = checkLine(reader);
  if (code) return code;
  int numFields = countFields(reader);
  if (numFields != reader->numFields)
    return REFUSE(reader, "%d fields, and the header has %d", numFields,
                  reader->numFields);
  int64_t values[numColumns] = {0};
  const char *at = reader->text;
  for (int i = 0; i < numFields; i++) {
    enum column column = reader->order[i];
    code = readNumber(reader, nextField(reader, &at), column, &values[column]);
    if (code) return code;
  }
  return addRow(reader, values);
}

/* ---- Order, duplicates, sections ---------------------------------------- */

static int compareInt(int64_t a, int64_t b) {
  return (a > b) - (a < b);
}

static int compareSection(const struct toolLoadRow *a,
                          const struct toolLoadRow *b) {
  int order = compareInt(a->step, b->step);
  return order ? order : compareInt(a->layer, b->layer);
}

static int comparePlace(const struct toolLoadRow *a,
                        const struct toolLoadRow *b) {
  int order = compareSection(a, b);
  if (!order) order = compareInt(a->rank, b->rank);
  return order ? order : compareInt(a->expert, b->expert);
}

static int compareRow(const void *left, const void *right) {
  const struct toolLoadRow *a = left, *b = right;
  int order = comparePlace(a, b);
  return order ? order : compareInt(a->line, b->line);
}

static enum toolExit checkDuplicates(struct reader *reader) {
  for (int64_t i = 1; i < reader->numRows; i++) {
    const struct toolLoadRow *row = &reader->rows[i];
    if (comparePlace(row - 1, row)) continue;
    reader->line = row->line;
    return REFUSE(reader,
                  "step %lld, rank %d, layer %lld, expert %d is already on "
                  "line %lld",
                  (long long)row->step, row->rank, (long long)row->layer,
                  row->expert, (long long)row[-1].line);
  }
  return toolGood;
}

static int64_t countSections(const struct reader *reader) {
  int64_t numSections = 1;
  for (int64_t i = 1; i < reader->numRows; i++)
    numSections += compareSection(&reader->rows[i - 1], &reader->rows[i]) != 0;
  return numSections;
}

static enum toolExit fillSections(struct reader *reader,
                                  struct toolLoadSection *sections) {
  struct toolLoadSection *section = sections - 1;
  for (int64_t i = 0; i < reader->numRows; i++) {
    const struct toolLoadRow *row = &reader->rows[i];
    if (i == 0 || compareSection(row - 1, row))
      *++section = (struct toolLoadSection){row->step, row->layer, i, 0, 0};
    section->numRows++;
    if (row->count > INT64_MAX - section->total) {
      reader->line = row->line;
      return REFUSE(reader,
                    "the counts of step %lld, layer %lld add up to more than "
                    "2^63 - 1",
                    (long long)row->step, (long long)row->layer);
    }
    section->total += row->count;
  }
  return toolGood;
}

static void findExtent(struct toolLoad *load) {
  for (int64_t i = 0; i < load->numRows; i++) {
    const struct toolLoadRow *row = &load->rows[i];
    if (row->expert >= load->numExperts) load->numExperts = row->expert + 1;
    if (row->rank >= load->numRanks) load->numRanks = row->rank + 1;
  }
}

static enum toolExit finish(struct reader *reader, struct toolLoad *load) {
  qsort(reader->rows, (size_t)reader->numRows, sizeof *reader->rows,
        compareRow);
  enum toolExit code = checkDuplicates(reader);
  if (code) return code;
  struct toolLoad made = {.rows = reader->rows,
                          .numRows = reader->numRows,
                          .hasImportance = reader->hasImportance};
  made.numSections = countSections(reader);
  made.sections = calloc((size_t)made.numSections, sizeof *made.sections);
  if (!made.sections)
    return REFUSE(reader, "no memory for %lld sections",
                  (long long)made.numSections);
  code = fillSections(reader, made.sections);
  if (code) {
    free(made.sections);
    return code;
  }
  findExtent(&made);
  *load = made;
  return toolGood;
}

static enum toolExit readAll(struct reader *reader) {
  enum toolExit code = readHeader(reader);
  while (!code && nextLine(reader))
    code = readRow(reader);
  if (code) return code;
  if (!reader->rows) return REFUSE(reader, "%s", "no line after the header");
  return toolGood;
}

enum toolExit toolLoadParse(const char *name, const char *data, size_t bytes,
                            struct toolLoad *load, struct toolError *error) {
  static const char mark[] = {'\xef', '\xbb', '\xbf'};
  struct reader reader = {.name = name, .error = error};
  if (!data || !bytes) return REFUSE(&reader, "%s", "it is empty");
  reader.next = data;
  reader.end = data + bytes;
  if (bytes >= sizeof mark && memcmp(data, mark, sizeof mark) == 0)
    reader.next += sizeof mark;
  enum toolExit code = readAll(&reader);
  if (!code) code = finish(&reader, load);
  if (code) free(reader.rows);
  return code;
}

void toolLoadFree(struct toolLoad *load) {
  free(load->rows);
  free(load->sections);
  *load = (struct toolLoad){0};
}
