/* The trainer: what a run is told, and the small things that all files share.
 *
 * perf/train is a language model over bytes: embedding, then layers of causal
 * attention with rotary positions and an MoE block, each behind an RMSNorm on a
 * residual stream.  Ranks share the tokens of a step and the experts: the dense
 * part is data-parallel, the experts are expert-parallel through lrmoe.h.
 *
 *   text        bytes of files, split into train and held-out
 *   ngram       the 5-gram model that the trained one has to beat
 *   matrix      products, by the OpenBLAS that the library uses
 *   params      the dense parameters
 *   dense       RMSNorm, embedding, loss
 *   grams       embeddings of the last bytes together
 *   attention   causal attention
 *   router      top-k, its gradient and the auxiliary loss
 *   moe         one MoE block on the public API
 *   cost        CPU time of the critical rank, and bytes on a wire
 *   model       all of it, forward and backward
 *   optimizer   gradients together, clipping, AdamW
 *   shard       one file of a checkpoint
 *   folder      names of checkpoints, and what makes one whole at once
 *   checkpoint  what goes in, and resume
 *   probe       gradients of kept pairs beside those of all
 *   report      what a step did; loads as CSV
 *   trainer     the loop of a rank */
#ifndef LRMOE_PERF_TRAIN_CONFIG_H
#define LRMOE_PERF_TRAIN_CONFIG_H

#include "lrmoe.h"
#include "tools/common/ranks.h"

#include <stdint.h>

enum {
  trainVocabulary = 256 /* bytes */
};

struct trainShape {
  int64_t dim;
  int64_t numLayers;
  int64_t numHeads;
  int64_t numExperts;
  int64_t topk;
  int64_t ffn;      /* of an expert */
  int64_t context;  /* bytes of a window */
  int64_t numGrams; /* tables for the last 2, 3, ... bytes together */
  int64_t gramRows; /* of each */
};

struct trainConfig {
  struct trainShape shape;
  int64_t batch; /* windows of a step, of all ranks together */
  int64_t numSteps;
  int64_t lastStep; /* where this run ends, numSteps at most */
  int64_t seed;

  double learningRate; /* after the warm-up; falls to a tenth of it */
  int64_t warmup;      /* steps */
  double clip;         /* largest norm of all gradients; 0: none */
  double auxiliary;    /* weight of the router's auxiliary loss */

  double retain;
  lrmoeMetric_t metric;
  int64_t exactSteps; /* so many at the beginning keep all pairs */
  lrmoeScope_t scope;
  lrmoePolicy_t policy;
  lrmoeQuota_t quota;
  lrmoeRouterGrad_t routerGrad;
  int64_t numSlots;
  int placesByPast; /* plans get the load of the step before */
  const char *gemm; /* NULL: LRMOE_GEMM */

  const char *checkpoint; /* folder, NULL: none */
  int64_t checkpointEvery;
  int resumes;

  int64_t reportEvery;
  int64_t heldOutEvery;
  int64_t heldOutWindows; /* 0: all */
  const char *record;     /* CSV of loads, NULL: none */
  int64_t recordEvery;
  int64_t probeBatches; /* at the end; 0: none */
};

/* Zeroed memory; ends the process where there is none: the parent says which
 * rank died. */
void *trainRoom(int64_t count, size_t bytes);

/* The part of `total` that is rank's: [first, first + count). */
struct trainShare {
  int64_t first;
  int64_t count;
};
struct trainShare trainShareOf(int64_t total, int rank, int numRanks);

#endif
