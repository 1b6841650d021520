/* The whole model on several ranks: the gradients of all its parameters, as
 * they are when those of all ranks have been brought together, against
 * differences of the whole loss. */
#include "perf/train/optimizer.h"
#include "support/suite.h"
#include "tiny.h"
#include "tools/common/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Differences --------------------------------------------------------- */

/* Parameters that are moved together: the same on all ranks, or each rank has
 * its own. */
struct group {
  const char *name;
  float *values;
  const float *gradient;
  int64_t count;
  int isShared;
};

static void remember(const struct trainModel *model, int64_t *routes) {
  int64_t count = model->numTokens * model->config->shape.topk;
  for (int64_t i = 0; i < model->config->shape.numLayers; i++)
    memcpy(routes + i * count, model->layers[i].routing.experts,
           (size_t)count * sizeof *routes);
}

/* Adds step * direction to the group, and forgets replicas of old weights. */
static enum toolExit move(struct trainModel *model, const struct group *group,
                          const float *from, const float *direction,
                          double step) {
  for (int64_t i = 0; i < group->count; i++)
    group->values[i] = (float)((double)from[i] + step * (double)direction[i]);
  for (int64_t i = 0; i < model->config->shape.numLayers; i++)
    TOOL_RANK_OK(model->team.self,
                 lrmoeLayerAdvanceVersion(model->layers[i].moe.layer));
  return toolGood;
}

struct probe {
  struct trainModel *model;
  const struct group *group;
  const float *from;
  const float *direction;
  const int64_t *routes; /* of the unchanged model */
  int64_t *now;
};

/* Loss at `step` along the direction; *isSame: nothing was routed anew. */
static enum toolExit lossAt(const struct probe *p, double step, double *loss,
                            int *isSame) {
  const struct trainModel *model = p->model;
  size_t bytes = (size_t)(model->config->shape.numLayers * model->numTokens *
                          model->config->shape.topk) *
                 sizeof *p->now;
  enum toolExit code = move(p->model, p->group, p->from, p->direction, step);
  if (code == toolGood) code = tinyLoss(p->model, loss);
  if (code) return code;
  remember(model, p->now);
  double numOther = memcmp(p->now, p->routes, bytes) != 0;
  code = tinySum(model, &numOther);
  *isSame &= numOther == 0;
  return code;
}

/* The slope along the direction; where routes change the loss has a jump, so
 * steps get smaller until none does. */
static enum toolExit slopeOf(const struct probe *p, double *slope) {
  double step = 0.02, up = 0, down = 0;
  int isSame = 0;
  for (int i = 0; i < 6 && !isSame; i++) {
    step /= 2;
    isSame = 1;
    enum toolExit code = lossAt(p, step, &up, &isSame);
    if (code == toolGood) code = lossAt(p, -step, &down, &isSame);
    if (code == toolGood)
      code = move(p->model, p->group, p->from, p->direction, 0);
    if (code) return code;
  }
  *slope = (up - down) / (2 * step);
  return isSame
             ? toolGood
             : toolRankFail(p->model->team.self, lrmoeSuccess,
                            "%s: routes change at every step", p->group->name);
}

static enum toolExit dot(const struct trainModel *model,
                         const struct group *group, const float *a,
                         const float *b, double *sum) {
  *sum = 0;
  for (int64_t i = 0; i < group->count; i++)
    *sum += (double)a[i] * (double)b[i];
  return group->isShared ? toolGood : tinySum(model, sum);
}

/* Along the gradient (kind 0), or a direction of chance, of length 1. */
static enum toolExit makeDirection(const struct trainModel *model,
                                   const struct group *group, int kind,
                                   float *direction) {
  uint64_t rank = group->isShared ? 0 : (uint64_t)model->team.self->rank;
  struct toolRandom random = toolRandomMake((uint64_t)kind, rank);
  double square = 0;
  for (int64_t i = 0; i < group->count; i++)
    direction[i] = kind ? (float)toolRandomNormal(&random) : group->gradient[i];
  enum toolExit code = dot(model, group, direction, direction, &square);
  for (int64_t i = 0; i < group->count; i++)
    direction[i] = (float)((double)direction[i] / sqrt(square));
  return code;
}

static enum toolExit checkDirection(const struct probe *p, int kind,
                                    double norm, double count) {
  struct trainModel *model = p->model;
  double slope = 0, want = 0;
  enum toolExit code = slopeOf(p, &slope);
  if (code == toolGood)
    code = dot(model, p->group, p->group->gradient, p->direction, &want);
  if (code) return code;
  double tolerance = 0.02 * (kind ? norm / sqrt(count) : norm) + 3e-5;
  if (fabs(slope - want) <= tolerance) return toolGood;
  return toolRankFail(model->team.self, lrmoeSuccess,
                      "%s, direction %d: slope %g, by the gradient %g",
                      p->group->name, kind, slope, want);
}

static enum toolExit checkGroup(struct trainModel *model,
                                const struct group *group) {
  int64_t numRoutes = model->config->shape.numLayers * model->numTokens *
                      model->config->shape.topk;
  float *direction = trainRoom(group->count, sizeof *direction);
  float *from = trainRoom(group->count, sizeof *from);
  int64_t *routes = trainRoom(2 * numRoutes, sizeof *routes);
  double norm = 0, loss = 0, count = (double)group->count;
  struct probe probe = {model,     group,  from,
                        direction, routes, routes + numRoutes};
  memcpy(from, group->values, (size_t)group->count * sizeof *from);
  enum toolExit code =
      dot(model, group, group->gradient, group->gradient, &norm);
  norm = sqrt(norm);
  if (code == toolGood && !group->isShared) code = tinySum(model, &count);
  if (code == toolGood) code = tinyLoss(model, &loss);
  remember(model, routes);
  if (code == toolGood && !(norm > 1e-3))
    code = toolRankFail(model->team.self, lrmoeSuccess, "%s: gradient %g",
                        group->name, norm);
  for (int kind = 0; kind < 4 && code == toolGood; kind++) {
    code = makeDirection(model, group, kind, direction);
    if (code == toolGood) code = checkDirection(&probe, kind, norm, count);
  }
  free(direction);
  free(from);
  free(routes);
  return code;
}

/* ---- All parameters ------------------------------------------------------ */

static enum toolExit checkDense(struct trainModel *model) {
  const struct trainShape *s = &model->config->shape;
  int64_t dim = s->dim;
  const struct trainParams *p = &model->params, *g = &model->gradients;
  const struct trainLayerParams *pl = &p->layers[0], *gl = &g->layers[0];
  const struct trainLayerParams *pn = &p->layers[1], *gn = &g->layers[1];
  const struct group groups[] = {
      {"embedding", p->embedding, g->embedding, trainVocabulary * dim, 1},
      {"grams", p->grams, g->grams, s->numGrams * s->gramRows * dim, 1},
      {"head", p->head, g->head, trainVocabulary * dim, 1},
      {"final norm", p->finalNorm, g->finalNorm, dim, 1},
      {"attention norm", pl->attentionNorm, gl->attentionNorm, dim, 1},
      {"qkv", pl->qkv, gl->qkv, 3 * dim * dim, 1},
      {"out", pl->out, gl->out, dim * dim, 1},
      {"moe norm", pl->moeNorm, gl->moeNorm, dim, 1},
      {"router", pl->router, gl->router, s->numExperts * dim, 1},
      {"last qkv", pn->qkv, gn->qkv, 3 * dim * dim, 1},
      {"last router", pn->router, gn->router, s->numExperts * dim, 1}};
  enum toolExit code = toolGood;
  for (size_t i = 0; i < sizeof groups / sizeof *groups && code == toolGood;
       i++)
    code = checkGroup(model, &groups[i]);
  return code;
}

static enum toolExit checkExperts(struct trainModel *model) {
  const struct trainShape *shape = &model->config->shape;
  enum toolExit code = toolGood;
  for (int64_t i = 0; i < shape->numLayers && code == toolGood; i++) {
    const struct trainMoe *moe = &model->layers[i].moe;
    const struct group group = {"experts", moe->weights, moe->gradients,
                                moe->numLocal * (trainExpertCount(shape, 0) +
                                                 trainExpertCount(shape, 1)),
                                0};
    code = checkGroup(model, &group);
  }
  return code;
}

/* Gradients of all ranks, as an update has them. */
static enum toolExit makeGradients(struct trainModel *model) {
  struct trainMoeFigures figures = {0};
  const struct trainTeam *team = &model->team;
  enum toolExit code = trainModelForward(model);
  if (code) return code;
  trainModelScore(model, tinyTokens(model));
  code = trainModelBackward(model, tinyTokens(model), 1, &figures);
  if (code) return code;
  if (figures.kept != figures.pairs ||
      figures.pairs != (int64_t)4 * model->numTokens)
    return toolRankFail(team->self, lrmoeSuccess, "%lld of %lld pairs kept",
                        (long long)figures.kept, (long long)figures.pairs);
  trainModelEnd(model);
  return trainOptimizerGather(model);
}

static enum toolExit runGradients(const struct toolRank *self) {
  struct trainModel model;
  enum toolExit code = trainModelOpen(self, self->user, &model);
  if (code == toolGood) {
    tinySet(&model);
    code = makeGradients(&model);
  }
  if (code == toolGood) code = checkDense(&model);
  if (code == toolGood) code = checkExperts(&model);
  trainModelClose(&model);
  return code;
}

static void runOn(int numRanks, toolRankBody body, struct trainConfig *config) {
  struct toolError error = {""};
  int code = toolRanksRun(numRanks, body, config, NULL, &error);
  ck_assert_msg(code == 0, "%d ranks: %s", numRanks, error.text);
}

START_TEST(gradients) {
  struct trainConfig config = tinyConfig();
  runOn(1, runGradients, &config);
  runOn(2, runGradients, &config);
  config.batch = 4; /* ranks with one window and with two */
  runOn(3, runGradients, &config);
}
END_TEST

START_TEST(gradientsOfReplicas) {
  struct trainConfig config = tinyConfig();
  config.policy = lrmoePolicyLrmoe;
  config.numSlots = 1;
  runOn(2, runGradients, &config);
}
END_TEST

START_TEST(gradientsOfAllExperts) {
  struct trainConfig config = tinyConfig();
  config.shape.topk = config.shape.numExperts;
  config.routerGrad = lrmoeRouterGradExecutor;
  config.shape.numExperts = config.shape.topk = 2;
  runOn(2, runGradients, &config);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {gradients, gradientsOfReplicas,
                                gradientsOfAllExperts};
  return suiteRunTests("model", tests, sizeof tests / sizeof *tests, 240);
}
