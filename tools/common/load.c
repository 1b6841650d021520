/* Loads: reading the file, and dense counts of one section; see csv.h. */
#include "tools/common/csv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxFileBytes = 256 << 20,
  maxDenseNumbers = 1 << 26
};

static enum toolExit readStream(const char *path, FILE *file, char **data,
                                size_t *bytes, struct toolError *error) {
  size_t room = 1 << 16, used = 0;
  char *buffer = NULL;
  do {
    room *= 2;
    char *larger = realloc(buffer, room);
    if (!larger) {
      free(buffer);
      return toolFail(error, toolBadInput, "%.200s: no memory for %zu bytes",
                      path, room);
    }
    buffer = larger;
    used += fread(buffer + used, 1, room - used, file);
  } while (used == room && used <= maxFileBytes);
  if (ferror(file) || used > maxFileBytes) {
    const char *why = ferror(file) ? strerror(errno) : "is over 256 MiB";
    free(buffer);
    return toolFail(error, toolBadInput, "%.200s: %s", path, why);
  }
  *data = buffer;
  *bytes = used;
  return toolGood;
}

enum toolExit toolLoadRead(const char *path, struct toolLoad *load,
                           struct toolError *error) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return toolFail(error, toolBadInput, "%.200s: %s", path, strerror(errno));
  char *data = NULL;
  size_t bytes = 0;
  enum toolExit code = readStream(path, file, &data, &bytes, error);
  fclose(file);
  if (code) return code;
  code = toolLoadParse(path, data, bytes, load, error);
  free(data);
  return code;
}

const struct toolLoadSection *toolLoadFind(const struct toolLoad *load,
                                           int64_t step, int64_t layer) {
  for (int64_t i = 0; i < load->numSections; i++) {
    const struct toolLoadSection *section = &load->sections[i];
    if ((step < 0 || section->step == step) &&
        (layer < 0 || section->layer == layer))
      return section;
  }
  return NULL;
}

/* [numRanks, numExperts] or their sum over ranks. */
static enum toolExit makeDense(const struct toolLoad *load,
                               const struct toolLoadSection *section,
                               int byRank, int64_t **counts,
                               struct toolError *error) {
  int64_t ranks = byRank ? load->numRanks : 1;
  int64_t numbers = ranks * load->numExperts;
  if (numbers > maxDenseNumbers)
    return toolFail(error, toolBadInput,
                    "%d ranks of %d experts are more counts than %d",
                    load->numRanks, load->numExperts, maxDenseNumbers);
  int64_t *made = calloc((size_t)numbers, sizeof *made);
  if (!made)
    return toolFail(error, toolBadInput, "no memory for %lld counts",
                    (long long)numbers);
  for (int64_t i = 0; i < section->numRows; i++) {
    const struct toolLoadRow *row = &load->rows[section->firstRow + i];
    int64_t rank = byRank ? row->rank : 0;
    made[rank * load->numExperts + row->expert] += row->count;
  }
  *counts = made;
  return toolGood;
}

enum toolExit toolLoadCounts(const struct toolLoad *load,
                             const struct toolLoadSection *section,
                             int64_t **counts, struct toolError *error) {
  return makeDense(load, section, 0, counts, error);
}

enum toolExit toolLoadCountsByRank(const struct toolLoad *load,
                                   const struct toolLoadSection *section,
                                   int64_t **counts, struct toolError *error) {
  return makeDense(load, section, 1, counts, error);
}

enum toolExit toolLoadImportance(const struct toolLoad *load,
                                 const struct toolLoadSection *section,
                                 double **shares, struct toolError *error) {
  const struct toolLoadRow *rows = load->rows + section->firstRow;
  double mass = 0;
  for (int64_t i = 0; i < section->numRows; i++)
    mass += (double)rows[i].importance;
  *shares = NULL;
  if (mass == 0) return toolGood;
  double *made = calloc((size_t)load->numExperts, sizeof *made);
  if (!made)
    return toolFail(error, toolBadInput, "no memory for %d experts",
                    load->numExperts);
  for (int64_t i = 0; i < section->numRows; i++)
    made[rows[i].expert] += (double)rows[i].importance / mass;
  *shares = made;
  return toolGood;
}
