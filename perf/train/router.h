/* The router: which experts a token goes to, and how much each counts.
 *
 * p = softmax of the logits over all experts; the k largest are chosen (ties:
 * the lower expert), and alpha is their p divided by their sum, which is the
 * softmax over the chosen logits.  The auxiliary loss of a step (Switch,
 * GShard) is
 *
 *   weight E sum over experts of f P,
 *
 * f the share of the pairs that the expert gets, P its mean p, both over the
 * tokens of all ranks; f counts as constant. */
#ifndef LRMOE_PERF_TRAIN_ROUTER_H
#define LRMOE_PERF_TRAIN_ROUTER_H

#include <stdint.h>

struct trainRouting {
  int64_t numTokens;
  int64_t numExperts;
  int64_t topk;
  float *probabilities; /* [T, E]; the logits before */
  int64_t *experts;     /* [T, k] */
  float *weights;       /* [T, k] alpha */
};

/* From the logits in routing->probabilities to all else. */
void trainRoute(const struct trainRouting *routing);

/* mass [E]: the sum of p over these tokens. */
void trainRouteMass(const struct trainRouting *routing, double *mass);

/* dlogits [T, E] of dweights [T, k] = d(alpha) and of pulls [E] = d(loss) /
 * d(p): weight E f / T of all ranks. */
void trainRouteBackward(const struct trainRouting *routing,
                        const float *dweights, const float *pulls,
                        float *dlogits);

#endif
