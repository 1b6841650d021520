/* Median and spread: see stats.h. */
#include "tools/common/stats.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static int compareReal(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double quantile(const double *sorted, int64_t count, double q) {
  double place = q * (double)(count - 1);
  int64_t below = (int64_t)place;
  int64_t above = below + 1 < count ? below + 1 : below;
  double part = place - (double)below;
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

struct toolStats toolStatsMake(double *values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, compareReal);
  return (struct toolStats){
      .minimum = values[0],
      .lower = quantile(values, count, 0.25),
      .median = quantile(values, count, 0.5),
      .upper = quantile(values, count, 0.75),
      .maximum = values[count - 1],
      .count = count,
  };
}

double toolStatsSpread(const struct toolStats *stats) {
  if (stats->median == 0) return 0;
  return (stats->upper - stats->lower) / 2 / fabs(stats->median);
}

static int64_t readClock(clockid_t clock) {
  struct timespec now = {0};
  clock_gettime(clock, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t toolWallNs(void) {
  return readClock(CLOCK_MONOTONIC);
}

int64_t toolCpuNs(void) {
  return readClock(CLOCK_PROCESS_CPUTIME_ID);
}
