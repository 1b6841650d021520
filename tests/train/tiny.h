/* A tiny model, its batch and its whole loss. */
#ifndef LRMOE_TESTS_TRAIN_TINY_H
#define LRMOE_TESTS_TRAIN_TINY_H

#include "perf/train/model.h"

struct trainConfig tinyConfig(void);

/* Sets the rank's windows of a batch that is always the same. */
void tinySet(struct trainModel *model);

/* Bytes of the batch, of all ranks. */
int64_t tinyTokens(const struct trainModel *model);

/* *value summed over ranks. */
enum toolExit tinySum(const struct trainModel *model, double *value);

/* The loss of all ranks, both parts. */
enum toolExit tinyLoss(struct trainModel *model, double *loss);

#endif
