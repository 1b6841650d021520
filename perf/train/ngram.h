/* An n-gram model of bytes, n = 5: what the trained model has to beat.
 *
 * Interpolated Kneser-Ney smoothing (Kneser and Ney 1995; Chen and Goodman
 * 1999): the longest n-grams have their counts, shorter ones the number of
 * different bytes that come before them; with c the count of context h and byte
 * w,
 *
 *   P(w | h) = max(c(hw) - D, 0) / c(h) + D N(h) / c(h) P(w | h without its
 *              first byte),
 *
 * N(h) the number of different bytes after h, and D = n1 / (n1 + 2 n2) of each
 * length, n1 and n2 the n-grams with counts 1 and 2, held within 0.1..0.9.
 * Below one byte there is the uniform distribution. */
#ifndef LRMOE_PERF_TRAIN_NGRAM_H
#define LRMOE_PERF_TRAIN_NGRAM_H

#include <stdint.h>

enum {
  trainNgramLength = 5
};

struct trainNgram;

/* Counts bytes [count]; trainNgramFree releases it. */
struct trainNgram *trainNgramMake(const uint8_t *bytes, int64_t count);
void trainNgramFree(struct trainNgram *ngram);

/* P(byte | the length bytes before it); at most four of them are used. */
double trainNgramProbability(const struct trainNgram *ngram,
                             const uint8_t *before, int64_t length,
                             uint8_t byte);

/* -sum of log P of bytes [first, first + count) of a text, each after all that
 * comes before it in the text; in nats. */
double trainNgramLoss(const struct trainNgram *ngram, const uint8_t *text,
                      int64_t first, int64_t count);

#endif
