/* Embeddings of the last bytes together: what a position starts with is, beside
 * its byte's row, a row for its last 2 bytes, one for its last 3, and so on,
 * each from a table of its own, which a hash shares out (as in the Byte Latent
 * Transformer, Pagnoni et al. 2024).  Attention would need most of a short run
 * to find these neighbours. */
#ifndef LRMOE_PERF_TRAIN_GRAMS_H
#define LRMOE_PERF_TRAIN_GRAMS_H

#include "perf/train/config.h"
#include "perf/train/matrix.h"

/* Numbers of all tables together: [grams, gramRows, dim]. */
int64_t trainGramsCount(const struct trainShape *shape);

/* Adds to x [T, dim], T a multiple of the context, the rows for `bytes` [T].
 * Where a window has fewer bytes before, the longer ones give none. */
void trainGramsAdd(const struct trainShape *shape, const uint8_t *bytes,
                   const float *tables, struct trainMatrix x);

/* dtables += the gradient, of dx [T, dim]. */
void trainGramsBackward(const struct trainShape *shape, const uint8_t *bytes,
                        struct trainMatrix dx, float *dtables);

#endif
