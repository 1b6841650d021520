/* Any bytes as a load CSV: refused with a text, or a load that is sorted,
 * whole and without duplicates. */
#include "fuzz/fuzz.h"
#include "tools/common/csv.h"

#include <string.h>

static int isBefore(const struct toolLoadRow *a, const struct toolLoadRow *b) {
  if (a->step != b->step) return a->step < b->step;
  if (a->layer != b->layer) return a->layer < b->layer;
  if (a->rank != b->rank) return a->rank < b->rank;
  return a->expert < b->expert;
}

static void checkRows(const struct toolLoad *load) {
  for (int64_t i = 0; i < load->numRows; i++) {
    const struct toolLoadRow *row = &load->rows[i];
    FUZZ_CHECK(row->count >= 0 && row->step >= 0 && row->layer >= 0);
    FUZZ_CHECK(row->expert >= 0 && row->expert < load->numExperts);
    FUZZ_CHECK(row->rank >= 0 && row->rank < load->numRanks);
    FUZZ_CHECK(i == 0 || isBefore(row - 1, row));
  }
}

static void checkCounts(const struct toolLoad *load,
                        const struct toolLoadSection *section) {
  struct toolError error;
  int64_t *counts = NULL, sum = 0;
  FUZZ_CHECK(toolLoadCounts(load, section, &counts, &error) == toolGood);
  for (int32_t e = 0; e < load->numExperts; e++)
    sum += counts[e];
  FUZZ_CHECK(sum == section->total);
  free(counts);
}

static void checkSections(const struct toolLoad *load) {
  int64_t next = 0;
  for (int64_t i = 0; i < load->numSections; i++) {
    const struct toolLoadSection *section = &load->sections[i];
    FUZZ_CHECK(section->firstRow == next && section->numRows > 0);
    next += section->numRows;
    FUZZ_CHECK(toolLoadFind(load, section->step, section->layer) == section);
    if (load->numExperts < 4096) checkCounts(load, section);
  }
  FUZZ_CHECK(next == load->numRows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct toolLoad load = {0};
  struct toolError error = {""};
  if (toolLoadParse("input", (const char *)data, bytes, &load, &error)) {
    FUZZ_CHECK(strncmp(error.text, "input:", 6) == 0);
    FUZZ_CHECK(!load.rows && !load.sections);
    return 0;
  }
  FUZZ_CHECK(load.numRows > 0 && load.numExperts > 0 && load.numRanks > 0);
  FUZZ_CHECK(load.numExperts <= toolMaxLoadExperts);
  checkRows(&load);
  checkSections(&load);
  toolLoadFree(&load);
  return 0;
}
