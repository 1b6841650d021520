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

lrmoeResult_t lrmoeGradientsFinish(struct lrmoeLayer *layer) {
  if (layer->hasOpenGradients)
    LRMOE_RUN(layer->backend, eventWait, layer->gradients);
  layer->hasOpenGradients = 0;
  return lrmoeSuccess;
}
