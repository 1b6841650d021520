/* Traces for planning programs: the demand of steps and layers, measured
 * (a load CSV, see csv.h) or made (see workload.h).
 *
 * A made layer has the expected load of its routing and no sampling noise:
 * every rank's tokens in proportion to the workload's shares, so that no
 * expert has more pairs than tokens.  Layer i is drawn from seed + i.
 *
 * A measured layer is spread over G ranks thus: a file with G ranks gives the
 * demand as it is; one with a multiple of G has neighbours added up; any other
 * (one without ranks, say) has its counts divided evenly.  With numTokens > 0
 * the counts are first scaled to numTokens * topk pairs. */
#ifndef LRMOE_TOOLS_TRACE_H
#define LRMOE_TOOLS_TRACE_H

#include "tools/common/fail.h"

#include <stdint.h>

struct toolTraceConfig {
  const char *load;    /* CSV file, or NULL: made by routing */
  const char *routing; /* as in struct toolWorkloadConfig */
  int64_t step;        /* of the CSV, negative: all */
  int64_t layer;
  int64_t numLayers; /* made ones */
  int64_t numTokens; /* of a step, all ranks; 0 with load: counts as they are */
  uint64_t seed;
  int32_t numRanks;
  int32_t numExperts; /* 0 with load: as many as the file has */
  int32_t topk;
};

/* One layer of one step.  Owned by the trace, until the next is read. */
struct toolTraceSection {
  int64_t step;
  int64_t layer;
  int64_t pairs;            /* sum of counts */
  const int64_t *demand;    /* [G, E] by source */
  const int64_t *counts;    /* [E] its sums */
  const double *importance; /* [E] shares of gate mass, or NULL: not known */
  int32_t numExperts;
};

struct toolTrace;

/* Fails with toolBadInput for wrong routing, files or shapes. */
enum toolExit toolTraceOpen(const struct toolTraceConfig *config,
                            struct toolTrace **trace, struct toolError *error);

/* Releases trace; NULL is legal. */
void toolTraceClose(struct toolTrace *trace);

int64_t toolTraceLength(const struct toolTrace *trace);
int32_t toolTraceExperts(const struct toolTrace *trace);

/* How demand came about, one line for people. */
const char *toolTraceSource(const struct toolTrace *trace);

/* Section index, 0 .. length - 1. */
enum toolExit toolTraceRead(struct toolTrace *trace, int64_t index,
                            struct toolTraceSection *section,
                            struct toolError *error);

#endif
