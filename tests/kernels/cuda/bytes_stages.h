/* Bytes that the stages of a backward load and store, counted on the emulator
 * on few rows of full width. */
#ifndef LRMOE_TESTS_KERNELS_CUDA_BYTES_STAGES_H
#define LRMOE_TESTS_KERNELS_CUDA_BYTES_STAGES_H

#include "mirror.h"

enum {
  hidden = 2048,
  ffn = 768,
  numExperts = 128,
  topk = 8,
  numRanks = 8,
  expertsPerRank = numExperts / numRanks,
  numTokens = 32768,
  keptOfTen = 7,
  rowBytes = 2 * hidden,
  sample = 64 /* rows of a stage on the emulator */
};

/* Bytes of all kernels since the last call. */
double countBytes(void);

double normsOfToken(struct naiveRandom *random);
double scoresOfPair(struct naiveRandom *random);

/* Keys of all ranks into expert order, and the selection, per key. */
double selectionOfKey(struct naiveRandom *random);

/* Tokens that are spread to numRows rows; and straight into windows.  A row
 * of the rank's own that is copied meanwhile. */
double packOf(struct naiveRandom *random, int64_t tokens, int64_t numRows);
double putOf(struct naiveRandom *random, int64_t tokens, int64_t numRows);
double copyOfOwn(struct naiveRandom *random);

/* numRows rows that are added into numOut; and straight into windows. */
double sumOf(struct naiveRandom *random, int64_t numRows, int64_t numOut);
double putSumOf(struct naiveRandom *random, int64_t numRows, int64_t numOut);

/* Kernels of an expert's backward, between its GEMMs. */
double expertOfPair(struct naiveRandom *random, int isXPacked);

/* The same in two phases: up to dX, and for the weight gradients. */
struct expertPhases {
  double first;
  double later;
};
struct expertPhases expertPhasesOfPair(struct naiveRandom *random);

#endif
