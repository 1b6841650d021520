/* RMSNorm, embedding, and the loss; each with its gradient. */
#ifndef LRMOE_PERF_TRAIN_DENSE_H
#define LRMOE_PERF_TRAIN_DENSE_H

#include "perf/train/matrix.h"

/* y = x gain / sqrt(mean of x^2 + 1e-5) for rows of x [T, dim]; inverse [T]
 * gets the 1 / sqrt(...) (Zhang and Sennrich 2019). */
void trainNorm(struct trainMatrix x, const float *gain, float *inverse,
               float *y);

/* dgain += its gradient; dx += that of x. */
void trainNormBackward(struct trainMatrix x, const float *gain,
                       const float *inverse, const float *dy, float *dgain,
                       float *dx);

/* x [T, dim]: rows of table for the bytes. */
void trainEmbed(const uint8_t *bytes, const float *table, struct trainMatrix x);
void trainEmbedBackward(const uint8_t *bytes, struct trainMatrix dx,
                        float *dtable);

/* Sum over rows of -log softmax(logits)[target]; logits [T, vocabulary] become
 * the gradient of that sum times `scale`. */
double trainLoss(const uint8_t *targets, float scale,
                 struct trainMatrix logits);

#endif
