/* Weight gradients beside the return: see gradients.h. */
#include "collectives/gradients.h"

lrmoeResult_t lrmoeGradientsInit(struct lrmoeLayer *layer) {
  if (layer->overlapsReturn)
    LRMOE_RUN(layer->backend, eventCreate, &layer->gradients);
  return lrmoeSuccess;
}

void lrmoeGradientsFree(struct lrmoeLayer *layer) {
  if (layer->gradients) layer->backend->eventDestroy(layer->gradients);
}

lrmoeResult_t lrmoeGradientsJoin(struct lrmoeLayer *layer,
                                 lrmoeStream_t stream) {
  if (layer->hasOpenGradients)
    LRMOE_RUN(layer->backend, streamWait, stream, layer->gradients);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeGradientsEnd(struct lrmoeLayer *layer,
                                lrmoeStream_t stream) {
  LRMOE_CHECK(lrmoeGradientsJoin(layer, stream));
  layer->hasOpenGradients = 0;
  return lrmoeSuccess;
}

/* Behind a communicator that has failed nothing may ever be done: no wait, and
 * nothing that they use is freed before the layer. */
lrmoeResult_t lrmoeGradientsFinish(struct lrmoeLayer *layer) {
  if (!layer->hasOpenGradients) return lrmoeSuccess;
  LRMOE_CHECK(lrmoeCommCheck(layer->comm));
  LRMOE_RUN(layer->backend, eventWait, layer->gradients);
  layer->hasOpenGradients = 0;
  return lrmoeSuccess;
}
