/* The dense layers, attention and the router: gradients against differences,
 * and what each has to be by its definition. */
#include "difference.h"
#include "perf/train/attention.h"
#include "perf/train/dense.h"
#include "perf/train/router.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- RMSNorm ------------------------------------------------------------- */

enum {
  normRows = 5,
  normDim = 12,
  normCount = normRows * normDim
};

struct normCase {
  float *x, *gain, *out, *pull;
  float inverse[normRows];
};

static double normLoss(void *user) {
  struct normCase *c = user;
  trainNorm(trainMatrixMake(c->x, normRows, normDim), c->gain, c->inverse,
            c->out);
  return differenceDot(c->out, c->pull, normCount);
}

START_TEST(norm) {
  struct normCase c = {differenceNumbers(normCount, 1),
                       differenceNumbers(normDim, 2),
                       differenceNumbers(normCount, 3),
                       differenceNumbers(normCount, 4),
                       {0}};
  float dgain[normDim] = {0}, dx[normCount] = {0};
  normLoss(&c);
  trainNormBackward(trainMatrixMake(c.x, normRows, normDim), c.gain, c.inverse,
                    c.pull, dgain, dx);
  for (int t = 0; t < normRows; t++) {
    double mean = differenceDot(c.x + t * normDim, c.x + t * normDim, normDim);
    double want = (double)c.x[t * normDim] * (double)c.gain[0] /
                  sqrt(mean / normDim + 1e-5);
    ck_assert_double_eq_tol((double)c.out[t * normDim], want, 1e-5);
  }
  differenceCheck(&(struct difference){"x", c.x, dx, normCount, normLoss, &c});
  differenceCheck(
      &(struct difference){"gain", c.gain, dgain, normDim, normLoss, &c});
  free(c.x);
  free(c.gain);
  free(c.out);
  free(c.pull);
}
END_TEST

/* ---- Loss ---------------------------------------------------------------- */

struct lossCase {
  float *logits, *work;
  uint8_t targets[3];
  int64_t columns;
};

static double lossOf(void *user) {
  struct lossCase *c = user;
  memcpy(c->work, c->logits, (size_t)(3 * c->columns) * sizeof(float));
  return trainLoss(c->targets, 1, trainMatrixMake(c->work, 3, c->columns));
}

START_TEST(loss) {
  struct lossCase c = {
      differenceNumbers(3 * 9, 5), differenceNumbers(3 * 9, 6), {0, 8, 4}, 9};
  double sum = 0;
  for (int t = 0; t < 3; t++) {
    double all = 0;
    for (int i = 0; i < 9; i++)
      all += exp((double)c.logits[t * 9 + i]);
    sum += log(all) - (double)c.logits[t * 9 + c.targets[t]];
  }
  ck_assert_double_eq_tol(lossOf(&c), sum, 1e-5);
  float gradient[27];
  memcpy(gradient, c.work, sizeof gradient);
  differenceCheck(
      &(struct difference){"logits", c.logits, gradient, 27, lossOf, &c});
  /* Large logits do not overflow. */
  for (int i = 0; i < 27; i++)
    c.logits[i] += 1000;
  ck_assert_double_eq_tol(lossOf(&c), sum, 1e-2);
  free(c.logits);
  free(c.work);
}
END_TEST

START_TEST(embedding) {
  const uint8_t bytes[] = {2, 0, 2};
  float *table = differenceNumbers(3 * 4, 7), *d = differenceNumbers(12, 8);
  float x[12], sums[12] = {0};
  trainEmbed(bytes, table, trainMatrixMake(x, 3, 4));
  ck_assert_mem_eq(x + 8, table + 8, 4 * sizeof *x);
  ck_assert_mem_eq(x + 4, table, 4 * sizeof *x);
  trainEmbedBackward(bytes, trainMatrixMake(d, 3, 4), sums);
  for (int i = 0; i < 4; i++) {
    ck_assert(sums[i] == d[4 + i]);
    ck_assert(sums[4 + i] == 0);
    ck_assert(sums[8 + i] == d[i] + d[8 + i]);
  }
  free(table);
  free(d);
}
END_TEST

/* ---- Attention ----------------------------------------------------------- */

enum {
  context = 6,
  dim = 16,
  heads = 2,
  windows = 2,
  tokens = windows * context
};

struct attentionCase {
  struct trainAttention attention;
  float *qkv, *turned, *saved, *out, *pull;
};

static double attentionLoss(void *user) {
  struct attentionCase *c = user;
  memcpy(c->turned, c->qkv, (size_t)(tokens * 3 * dim) * sizeof(float));
  trainAttend(&c->attention, windows, c->turned, c->saved, c->out);
  return differenceDot(c->out, c->pull, tokens * dim);
}

static struct attentionCase attentionCase(void) {
  struct attentionCase c = {.attention =
                                trainAttentionMake(context, dim, heads)};
  c.qkv = differenceNumbers(tokens * 3 * dim, 9);
  c.turned = differenceNumbers(tokens * 3 * dim, 9);
  c.saved = differenceNumbers(windows * trainAttentionSaved(&c.attention), 9);
  c.out = differenceNumbers(tokens * dim, 9);
  c.pull = differenceNumbers(tokens * dim, 10);
  return c;
}

static void freeAttention(struct attentionCase *c) {
  trainAttentionFree(&c->attention);
  free(c->qkv);
  free(c->turned);
  free(c->saved);
  free(c->out);
  free(c->pull);
}

START_TEST(attentionGradient) {
  struct attentionCase c = attentionCase();
  float dqkv[tokens * 3 * dim];
  attentionLoss(&c);
  trainAttendBackward(&c.attention, windows, c.turned, c.saved, c.pull, dqkv);
  differenceCheck(&(struct difference){"qkv", c.qkv, dqkv, tokens * 3 * dim,
                                       attentionLoss, &c});
  freeAttention(&c);
}
END_TEST

/* A later token changes nothing before it, nor in another window; and what
 * counts is the distance of positions only. */
START_TEST(attentionIsCausal) {
  struct attentionCase c = attentionCase();
  float before[tokens * dim];
  attentionLoss(&c);
  memcpy(before, c.out, sizeof before);
  c.qkv[(context - 1) * 3 * dim + dim + 3] += 1; /* a key of the first window */
  attentionLoss(&c);
  ck_assert_mem_eq(before, c.out, (context - 1) * dim * sizeof(float));
  ck_assert(memcmp(before + (context - 1) * dim, c.out + (context - 1) * dim,
                   dim * sizeof(float)) != 0);
  ck_assert_mem_eq(before + context * dim, c.out + context * dim,
                   context * dim * sizeof(float));
  float q[dim], far[dim];
  for (int i = 0; i < context - 1; i++) {
    for (int part = 0; part < 2; part++) /* the same query, key everywhere */
      for (int j = 0; j < dim; j++)
        c.qkv[i * 3 * dim + part * dim + j] = c.qkv[part * dim + j];
  }
  attentionLoss(&c);
  memcpy(q, c.turned + 3 * dim, sizeof q);         /* query of 1, key of 0 */
  memcpy(far, c.turned + 4 * 3 * dim, sizeof far); /* query of 4, key of 3 */
  ck_assert_double_eq_tol(differenceDot(q, c.turned + dim, dim),
                          differenceDot(far, c.turned + 3 * 3 * dim + dim, dim),
                          1e-4);
  freeAttention(&c);
}
END_TEST

/* ---- Router -------------------------------------------------------------- */

enum {
  routed = 4,
  experts = 6,
  topk = 2
};

struct routerCase {
  float *logits, *pull;
  float probabilities[routed * experts], weights[routed * topk];
  float pulls[experts];
  int64_t chosen[routed * topk];
  struct trainRouting routing;
};

static void route(struct routerCase *c) {
  memcpy(c->probabilities, c->logits, sizeof c->probabilities);
  c->routing = (struct trainRouting){routed,           experts,   topk,
                                     c->probabilities, c->chosen, c->weights};
  trainRoute(&c->routing);
}

/* The auxiliary loss with the shares f in pulls, which stay as they are. */
static double routerLoss(void *user) {
  struct routerCase *c = user;
  double mass[experts], sum = 0;
  route(c);
  trainRouteMass(&c->routing, mass);
  for (int e = 0; e < experts; e++)
    sum += mass[e] * (double)c->pulls[e];
  return sum + differenceDot(c->weights, c->pull, routed * topk);
}

START_TEST(router) {
  struct routerCase c = {differenceNumbers(routed * experts, 11),
                         differenceNumbers(routed * topk, 12)};
  float gradient[routed * experts];
  for (int e = 0; e < experts; e++)
    c.pulls[e] = 0.1f * (float)(e + 1);
  /* Farther apart than the differences go, so that no choice changes. */
  for (int i = 0; i < routed * experts; i++)
    c.logits[i] = 0.4f * (float)((5 * (i % experts) + i / experts) % experts);
  c.logits[2] = c.logits[3] = 9; /* a tie: the lower expert first */
  route(&c);
  ck_assert_int_eq(c.chosen[0], 2);
  ck_assert_int_eq(c.chosen[1], 3);
  for (int t = 0; t < routed; t++) {
    const float *p = c.probabilities + t * experts;
    float least = fminf(p[c.chosen[t * 2]], p[c.chosen[t * 2 + 1]]);
    int numAbove = 0;
    for (int e = 0; e < experts; e++)
      numAbove += p[e] >= least;
    ck_assert_int_eq(numAbove, topk);
    ck_assert_double_eq_tol((double)(c.weights[t * 2] + c.weights[t * 2 + 1]),
                            1, 1e-6);
    ck_assert_double_eq_tol(
        (double)(c.weights[t * 2] / c.weights[t * 2 + 1]),
        (double)(p[c.chosen[t * 2]] / p[c.chosen[t * 2 + 1]]), 1e-4);
  }
  trainRouteBackward(&c.routing, c.pull, c.pulls, gradient);
  /* All but the token with the tie. */
  differenceCheck(&(struct difference){"logits", c.logits + experts,
                                       gradient + experts,
                                       (routed - 1) * experts, routerLoss, &c});
  free(c.logits);
  free(c.pull);
}
END_TEST

/* ---- Products ------------------------------------------------------------ */

enum {
  m = 3,
  n = 5,
  k = 4,
  stride = 7
};

/* Every way to transpose, a stride, and beta, against sums in double. */
static void checkProduct(float *a, float *b, int kind) {
  int ta = kind & 1, tb = kind >> 1 & 1;
  float beta = kind & 4 ? 0.5f : 0;
  float c[m * stride], before[m * stride];
  for (int i = 0; i < m * stride; i++)
    c[i] = before[i] = beta == 0 ? NAN : (float)i;
  struct trainMatrix left = {a, ta ? k : m, ta ? m : k, stride, ta};
  struct trainMatrix right = {b, tb ? n : k, tb ? k : n, stride, tb};
  trainMultiply(2, left, right, beta, (struct trainMatrix){c, m, n, stride, 0});
  for (int at = 0; at < m * n; at++) {
    int i = at / n, j = at % n;
    double sum = beta == 0 ? 0 : (double)(beta * before[i * stride + j]);
    for (int l = 0; l < k; l++)
      sum += 2.0 * (double)a[ta ? l * stride + i : i * stride + l] *
             (double)b[tb ? j * stride + l : l * stride + j];
    ck_assert_double_eq_tol((double)c[i * stride + j], sum, 1e-4);
  }
}

/* By plain loops, and by OpenBLAS where it is installed. */
START_TEST(products) {
  float *a = differenceNumbers(stride * stride, 13);
  float *b = differenceNumbers(stride * stride, 14);
  trainMatrixOpen("reference");
  for (int kind = 0; kind < 8; kind++)
    checkProduct(a, b, kind);
  void *openblas = dlopen("libopenblas.so.0", RTLD_NOW);
  trainMatrixOpen("openblas");
  for (int kind = 0; kind < 8 && openblas; kind++)
    checkProduct(a, b, kind);
  free(a);
  free(b);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      norm,   loss,    embedding, attentionGradient, attentionIsCausal,
      router, products};
  return suiteRunTests("layers", tests, sizeof tests / sizeof *tests, 60);
}
