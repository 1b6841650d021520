/* Hints of a framework to liblrmoe_preload.so (LRMOE_PRELOAD=calibrate).
 *
 * The one thing that a library in front of NCCL cannot see is which rows of an
 * exchange are gradients of which expert.  A framework that tells it, with one
 * call a backward, gets LRMoE's selection (paper 3.2) without its own
 * all-to-all being touched: rows that are not kept do not cross, and arrive as
 * zeros, as if the framework had masked them.
 *
 * Nothing has to be linked: look "lrmoeHintBackward" up with dlsym
 * (RTLD_DEFAULT, ...) and go without where it is not found.  A missing, late
 * or wrong hint costs the saving and one warning, never a result. */
#ifndef LRMOE_HINT_H
#define LRMOE_HINT_H

#include "lrmoe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What stays the same between the backwards of a layer. */
typedef struct {
  size_t size;
  uint32_t magic;
  uint32_t version;
  int64_t id; /* the framework's number of the layer, the same on all ranks */
  int64_t numExperts; /* E, a multiple of G; the home of expert e is rank
                         e / (E / G) */
} lrmoeHintLayer_t;

#define LRMOE_HINT_LAYER_INITIALIZER \
  { sizeof(lrmoeHintLayer_t), LRMOE_MAGIC, LRMOE_VERSION, 0, 0 }

/* Says that the next exchange of this thread on comm is the backward of an MoE
 * layer's combine: to the home of each expert go the gradient rows of the pairs
 * that this rank has routed to it, by expert, each expert's by ascending token.
 * An exchange is one ncclAlltoAll, or one group with a send to and a receive
 * from every rank, empty ones too, of bf16, fp16 or fp32 elements.
 *   layer     read during the call
 *   rowBytes  of a row, a multiple of 8 elements
 *   demand    [G, E] routed pairs by source and expert, on the host; copied
 *   quotas    [E] pairs of each expert that all ranks together keep, at most
 *             its demand, on the host; copied
 *   phiNorms  [rows that this rank sends] |row that entered FC2| of each pair,
 *             in the order of the rows and in memory of the same kind (on a
 *             device written before the exchange's stream gets there); read
 *             by the exchange, and yours again when that is done.  With a
 *             weight that multiplies FC2's input it is the norm of the product.
 * The quotas[e] rows with the largest |row| * |phi| of each expert over all
 * ranks are kept, ties by ascending rank and row; this is lrmoeSelect's
 * choice.
 *
 * One-shot: the next exchange on comm uses it up, and so do messages there that
 * are none; a second hint before that replaces the first.  All ranks hint the
 * same.  Rows cross as they are where ranks differ in anything but phiNorms,
 * where the exchange has other sizes, and where a row that is not finite would
 * be dropped, which would hide an overflow.
 *
 * Not collective, waits for nothing.  From the thread that then communicates,
 * between a group's start and end too.  In other modes than calibrate it does
 * nothing.  lrmoeInvalidArgument says that there is no hint; the reason is in
 * the log with LRMOE_DEBUG=2. */
lrmoeResult_t lrmoeHintBackward(struct ncclComm *comm,
                                const lrmoeHintLayer_t *layer, int64_t rowBytes,
                                const int64_t *demand, const int64_t *quotas,
                                const float *phiNorms);

/* For what dlsym gives. */
typedef lrmoeResult_t (*lrmoeHintBackwardFunction)(
    struct ncclComm *comm, const lrmoeHintLayer_t *layer, int64_t rowBytes,
    const int64_t *demand, const int64_t *quotas, const float *phiNorms);

#ifdef __cplusplus
}
#endif

#endif
