/* See tiny.h. */
#include "tiny.h"

#include "story.h"

struct trainConfig tinyConfig(void) {
  return (struct trainConfig){.shape = {.dim = 16,
                                        .numLayers = 2,
                                        .numHeads = 2,
                                        .numExperts = 4,
                                        .topk = 2,
                                        .ffn = 8,
                                        .context = 8,
                                        .numGrams = 2,
                                        .gramRows = 13},
                              .batch = 6,
                              .numSteps = 10,
                              .seed = 3,
                              .learningRate = 1e-2,
                              .auxiliary = 0.05,
                              .retain = 1,
                              .quota = lrmoeQuotaUniform,
                              .routerGrad = lrmoeRouterGradOwner};
}

void tinySet(struct trainModel *model) {
  const struct toolRank *self = model->team.self;
  struct trainShare share =
      trainShareOf(model->config->batch, self->rank, self->numRanks);
  char story[8192];
  int64_t starts[64];
  storyTell(story, sizeof story);
  for (int64_t i = 0; i < share.count && i < 64; i++)
    starts[i] = 37 * (share.first + i);
  trainModelSet(model, (const uint8_t *)story, starts, share.count);
}

int64_t tinyTokens(const struct trainModel *model) {
  return model->config->batch * model->config->shape.context;
}

enum toolExit tinySum(const struct trainModel *model, double *value) {
  TOOL_RANK_OK(model->team.self,
               lrmoeAllReduce(value, value, 1, lrmoeFloat64, lrmoeSum,
                              model->team.comm, NULL));
  return toolGood;
}

enum toolExit tinyLoss(struct trainModel *model, double *loss) {
  enum toolExit code = trainModelForward(model);
  if (code) return code;
  struct trainModelLoss parts = trainModelScore(model, tinyTokens(model));
  *loss = parts.loss + parts.auxiliary;
  trainModelEnd(model);
  return tinySum(model, loss);
}
