/* From measured times to a latency and a rate: a pure function of samples. */
#ifndef LRMOE_TOPO_FIT_H
#define LRMOE_TOPO_FIT_H

#include "base/result.h"

/* So many messages, so many bytes in all of them together, took so long. */
struct lrmoeSample {
  int64_t messages; /* at least 1 */
  int64_t bytes;    /* at least 1 */
  int64_t ns;       /* at least 1 */
};

/* t = latencyNs * messages + bytes / bytesPerSecond. */
struct lrmoeLine {
  int64_t latencyNs;      /* 0 or more */
  int64_t bytesPerSecond; /* 1 or more */
  /* How far the samples are from it, |predicted / measured - 1|, in
   * millionths: the median and the worst. */
  int64_t medianErrorPpm;
  int64_t worstErrorPpm;
  int64_t numSamples;
};

/* The line that is nearest to the samples: the least sum of the relative
 * errors.  lrmoeInvalidArgument without samples, with one out of its range, or
 * where no line with a positive rate exists (time does not grow with bytes). */
lrmoeResult_t lrmoeFitLine(const struct lrmoeSample *samples,
                           int64_t numSamples, struct lrmoeLine *line);

/* What the line says about so many messages and bytes, rounded up. */
int64_t lrmoeLineNs(const struct lrmoeLine *line, int64_t messages,
                    int64_t bytes);

#endif
