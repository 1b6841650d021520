/* LRMOE_TRACE: who did what when, as a Chrome trace (chrome://tracing,
 * Perfetto).
 *
 * Spans of time are collected in memory and appended to the file when there are
 * many and at the end.  Several ranks of one machine may share the file: it is
 * locked while one of them appends, and whole JSON in between.  Of the times
 * only those of one machine can be compared.
 *
 * Tracing never fails what is traced: a file that cannot be written is warned
 * of once, and then left. */
#ifndef LRMOE_BASE_TRACE_H
#define LRMOE_BASE_TRACE_H

#include "base/result.h"

#include <stdint.h>

struct lrmoeTrace;

/* A span; name is a constant.  bytes: what it carried, -1 for nothing said.
 * The device's spans are drawn beneath the host's. */
struct lrmoeTraceEvent {
  const char *name;
  int64_t startNs; /* lrmoeNowNs */
  int64_t endNs;
  int64_t bytes;
  int isDevice;
};

/* *trace = NULL unless LRMOE_TRACE is set.  In its value %r stands for the
 * rank, %h for the host's name and %% for %. */
lrmoeResult_t lrmoeTraceOpen(int rank, int numRanks, struct lrmoeTrace **trace);

void lrmoeTraceAdd(struct lrmoeTrace *trace,
                   const struct lrmoeTraceEvent *event);

/* Appends what has been collected. */
void lrmoeTraceFlush(struct lrmoeTrace *trace);

/* Flushes, and frees; NULL is legal. */
void lrmoeTraceClose(struct lrmoeTrace *trace);

#endif
