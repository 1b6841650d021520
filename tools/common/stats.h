/* What is said about repeated measurements: median and spread. */
#ifndef LRMOE_TOOLS_STATS_H
#define LRMOE_TOOLS_STATS_H

#include <stdint.h>

struct toolStats {
  double minimum;
  double lower; /* quartiles */
  double median;
  double upper;
  double maximum;
  int64_t count;
};

/* Of values [count >= 1], which it sorts.  Quantile q is at place
 * q * (count - 1) of the sorted values, between two of them in proportion. */
struct toolStats toolStatsMake(double *values, int64_t count);

/* Half the distance between the quartiles, relative to the median: the
 * +- that goes with it; 0 where the median is 0. */
double toolStatsSpread(const struct toolStats *stats);

/* Wall and CPU time of this process, in ns; CPU of all its threads. */
int64_t toolWallNs(void);
int64_t toolCpuNs(void);

#endif
