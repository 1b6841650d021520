/* Weight gradients that are still added to while dX returns.
 *
 * With overlapsReturn lrmoeExpertBackward leaves them to the experts' streams
 * (backend.h, expertBackwardSplit) and the layer knows the event after them.
 * They read rows of g, of x and the handoff's indices, and add to dw1 and dw2,
 * so whatever may touch these waits first: lrmoeReturn at its end, other steps
 * and lrmoeReplicaReduce on their streams; what has no stream makes the host
 * wait.  Rows of g lie in a window that peers write: see device_fused.c. */
#ifndef LRMOE_COLLECTIVES_GRADIENTS_H
#define LRMOE_COLLECTIVES_GRADIENTS_H

#include "collectives/layer.h"

/* The event, if the layer is to overlap. */
lrmoeResult_t lrmoeGradientsInit(struct lrmoeLayer *layer);
void lrmoeGradientsFree(struct lrmoeLayer *layer);

/* The stream goes on after them, if there are any. */
lrmoeResult_t lrmoeGradientsJoin(struct lrmoeLayer *layer,
                                 lrmoeStream_t stream);

/* The same for the stream that ends their backward; then there are none. */
lrmoeResult_t lrmoeGradientsEnd(struct lrmoeLayer *layer, lrmoeStream_t stream);

/* The same for the host. */
lrmoeResult_t lrmoeGradientsFinish(struct lrmoeLayer *layer);

#endif
