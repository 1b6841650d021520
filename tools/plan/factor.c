/* The table of --capacity-factor: see plan.h and capacity.h. */
#include "tools/plan/capacity.h"
#include "tools/plan/plan.h"

#include <math.h>

static const struct toolColumn columns[] = {
    {"step", "", 7},         {"layer", "", 6},         {"pairs", "", 9},
    {"capacity", "", 9},     {"drops", "pairs", 9},    {"drop_rate", "", 9},
    {"utilisation", "", 11}, {"aux_loss", "", 9},      {"importance", "P", 10},
    {"comm_us", "us", 9},    {"compute_us", "us", 10}, {"layer_us", "us", 9}};

void planCapacityBegin(struct toolTable *table, struct toolJson *json) {
  const struct planSettings *s = &planSettings;
  toolTableNote(stdout,
                "capacity factor %g, top-%lld, H %lld, F %lld; %g GB/s and %g "
                "TFLOP/s a rank",
                s->capacityFactor, (long long)s->topk, (long long)s->hidden,
                (long long)s->ffn, s->gigabytesPerSecond, s->teraflops);
  *table = (struct toolTable){.out = stdout,
                              .json = json,
                              .columns = columns,
                              .numColumns = sizeof columns / sizeof *columns};
  toolTableBegin(table);
}

/* A GELU expert is the source text's: two matrices, 16 H^2 with F = 4H. */
static double findPairFlops(void) {
  double matrices = planSettings.activation == lrmoeGelu ? 2 : 3;
  return 2 * matrices * (double)planSettings.hidden * (double)planSettings.ffn;
}

void planCapacityRow(struct toolTable *table,
                     const struct toolTraceSection *section) {
  static const double elementBytes[] = {2, 2, 4};
  const struct planSettings *s = &planSettings;
  const struct planCapacityInput input = {
      .counts = section->counts,
      .importance = section->importance,
      .numExperts = section->numExperts,
      .numRanks = (int32_t)s->numRanks,
      .factor = s->capacityFactor,
      .rowBytes = (double)s->hidden * elementBytes[s->type],
      .pairFlops = findPairFlops(),
      .bytesPerSecond = s->gigabytesPerSecond * 1e9,
      .flopsPerSecond = s->teraflops * 1e12};
  struct planCapacity found;
  planCapacityMake(&input, &found);
  double comm = s->hidden ? found.commUs : NAN;
  double compute = s->hidden ? found.computeUs : NAN;
  toolTableInt(table, section->step);
  toolTableInt(table, section->layer);
  toolTableInt(table, section->pairs);
  toolTableInt(table, found.capacity);
  toolTableInt(table, found.drops);
  toolTableReal(table, found.dropRate, 4);
  toolTableReal(table, found.utilisation, 4);
  toolTableReal(table, found.auxLoss, 4);
  toolTableText(table, section->importance ? "given" : "f");
  toolTableReal(table, comm, 1);
  toolTableReal(table, compute, 1);
  toolTableReal(table, comm + compute, 1);
}
