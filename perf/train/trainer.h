/* The loop of a rank. */
#ifndef LRMOE_PERF_TRAIN_TRAINER_H
#define LRMOE_PERF_TRAIN_TRAINER_H

#include "perf/train/report.h"
#include "perf/train/text.h"

/* What ranks inherit from the program. */
struct trainRun {
  struct trainConfig config;
  struct trainText text;
  struct toolJson *json; /* rank 0 writes it; NULL: none */
};

/* toolRankBody; user is a struct trainRun. */
enum toolExit trainRankMain(const struct toolRank *self);

#endif
