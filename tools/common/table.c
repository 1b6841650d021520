/* Tables for people: see table.h. */
#include "tools/common/table.h"

#include "tools/common/json.h"

#include <math.h>
#include <stdarg.h>

static void printHeading(const struct toolTable *table, int units) {
  for (int i = 0; i < table->numColumns; i++) {
    const struct toolColumn *column = &table->columns[i];
    /* "# " takes the place of the first column's first two characters. */
    int width = i ? column->width : column->width - 2;
    fprintf(table->out, "%s%*s", i ? "  " : "# ", width > 0 ? width : 0,
            units ? column->unit : column->key);
  }
  fputc('\n', table->out);
}

void toolTableBegin(struct toolTable *table) {
  fputs("#\n", table->out);
  printHeading(table, 0);
  printHeading(table, 1);
  fflush(table->out);
  table->at = 0;
}

/* Begins a JSON result with the first cell of a row. */
static const char *beginCell(struct toolTable *table) {
  if (table->at == 0 && table->json) toolJsonRow(table->json);
  return table->columns[table->at].key;
}

static void endCell(struct toolTable *table, const char *text) {
  const struct toolColumn *column = &table->columns[table->at];
  fprintf(table->out, "%s%*s", table->at ? "  " : "", column->width, text);
  if (++table->at < table->numColumns) return;
  fputc('\n', table->out);
  fflush(table->out);
  table->at = 0;
}

void toolTableText(struct toolTable *table, const char *text) {
  const char *key = beginCell(table);
  if (table->json) toolJsonText(table->json, key, text);
  endCell(table, text);
}

void toolTableInt(struct toolTable *table, int64_t value) {
  const char *key = beginCell(table);
  if (table->json) toolJsonInt(table->json, key, value);
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  endCell(table, text);
}

void toolTableReal(struct toolTable *table, double value, int digits) {
  const char *key = beginCell(table);
  if (table->json) toolJsonReal(table->json, key, value);
  char text[64];
  if (isfinite(value))
    snprintf(text, sizeof text, "%.*f", digits, value);
  else
    snprintf(text, sizeof text, "-");
  endCell(table, text);
}

void toolTableNote(FILE *out, const char *format, ...) {
  fputs("# ", out);
  va_list arguments;
  va_start(arguments, format);
  vfprintf(out, format, arguments);
  va_end(arguments);
  fputc('\n', out);
}
