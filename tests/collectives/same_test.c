/* Results that must be the same bits whatever the way: staged or fused, keys
 * gathered or sent home, run again, steps interleaved, retention 1 or the plain
 * backward (design invariants 4 and 7); and a caller with GEMMs of its own. */
#include "collectives/layer.h"
#include "driver.h"
#include "kernels/rows.h"
#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct oracleCase mediumCase(void) {
  struct oracleCase c = oracleRandomCase(5);
  c.numRanks = 4;
  for (int r = 0; r < 4; r++)
    c.numTokens[r] = 20 + r;
  c.numExperts = 10;
  c.topk = 3;
  c.hidden = 48;
  c.ffn = 24;
  c.type = lrmoeBfloat16;
  c.retainPpm = 600000;
  c.noneShare = 0.1;
  c.numSlots = 0;
  c.convention = lrmoeWeightPost;
  c.savedState = lrmoeSavedFull;
  c.routerGrad = lrmoeRouterGradKept;
  c.backward = (lrmoeBackwardConfig_t)LRMOE_BACKWARD_CONFIG_INITIALIZER;
  return c;
}

/* dx, dWeights, kept and the weight gradients of the last backward, as one
 * sequence of bytes. */
struct bits {
  unsigned char *bytes;
  size_t count;
};

static void append(struct bits *bits, const void *data, size_t count) {
  if (!count) return;
  bits->bytes = realloc(bits->bytes, bits->count + count);
  if (!bits->bytes) abort();
  memcpy(bits->bytes + bits->count, data, count);
  bits->count += count;
}

static struct bits bitsOf(const struct driver *d) {
  const struct oracleCase *spec = &d->oracle->spec;
  size_t numTokens = (size_t)spec->numTokens[d->self->rank];
  size_t slots = numTokens * (size_t)spec->topk;
  size_t hidden = (size_t)spec->hidden;
  size_t ffn = (size_t)spec->ffn;
  size_t fc1 = (size_t)lrmoeFc1Width(spec->activation, spec->ffn);
  struct bits bits = {NULL, 0};
  append(&bits, d->dx, numTokens * hidden * lrmoeTypeBytes(spec->type));
  append(&bits, d->dWeights, slots * sizeof(float));
  append(&bits, d->kept, slots);
  for (int i = 0; i < d->numLocal; i++) {
    append(&bits, d->dw1[i], fc1 * hidden * sizeof(float));
    append(&bits, d->dw2[i], ffn * hidden * sizeof(float));
  }
  return bits;
}

static int sameBits(struct bits *a, struct bits *b) {
  int isSame = a->count == b->count && !memcmp(a->bytes, b->bytes, a->count);
  free(a->bytes);
  free(b->bytes);
  return isSame;
}

/* user: a case. */
static int runWays(const struct testRank *self) {
  struct driver d;
  struct oracleCase spec = *(const struct oracleCase *)self->user;
  int failed = driverOpen(&d, self, &spec) || driverForward(&d);
  for (int wire = lrmoeWireDedup; wire <= lrmoeWireMasked && !failed; wire++) {
    lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
    config.wire = (lrmoeWire_t)wire;
    failed = driverBackward(&d, &config, 0);
    for (int i = 0; i < 4 && !failed; i++) {
      struct bits want = bitsOf(&d);
      d.layer->gatherRanks = i / 2 ? 1 : 64;
      failed = driverBackward(&d, &config, i % 2);
      struct bits got = bitsOf(&d);
      if (!sameBits(&want, &got) && !failed) {
        testRankComplain(self, __FILE__, __LINE__, "bits differ", lrmoeSuccess);
        failed = 1;
      }
    }
  }
  driverClose(&d);
  return failed;
}

START_TEST(sameBitsWhateverTheWay) {
  struct oracleCase spec = mediumCase();
  ck_assert_int_eq(testRanksRun(4, runWays, &spec), 0);
  spec.numSlots = 2;
  ck_assert_int_eq(testRanksRun(4, runWays, &spec), 0);
  spec.savedState = lrmoeSavedNone;
  spec.convention = lrmoeWeightPre;
  ck_assert_int_eq(testRanksRun(4, runWays, &spec), 0);
}
END_TEST

/* Retention 1 without replicas is the plain MoE backward. */
static int runWhole(const struct testRank *self) {
  struct driver d;
  struct oracleCase spec = mediumCase();
  spec.retainPpm = 1000000;
  int failed = driverOpen(&d, self, &spec) || driverForward(&d);
  for (int wire = lrmoeWireDedup; wire <= lrmoeWirePairwise && !failed;
       wire++) {
    lrmoeBackwardConfig_t config = LRMOE_BACKWARD_CONFIG_INITIALIZER;
    config.wire = (lrmoeWire_t)wire;
    failed = driverBackward(&d, &config, 1);
    struct bits scored = bitsOf(&d);
    config.metric = lrmoeMetricAll;
    failed = failed || driverBackward(&d, &config, 1);
    struct bits plain = bitsOf(&d);
    if (!sameBits(&scored, &plain)) failed = 1;
  }
  driverClose(&d);
  return failed;
}

START_TEST(retentionOneIsThePlainBackward) {
  ck_assert_int_eq(testRanksRun(4, runWhole, NULL), 0);
}
END_TEST

/* Two steps in flight with different plans: forward A, forward B, backward A,
 * backward B, both right; and A again, the same bits. */
static int runTwoSteps(const struct testRank *self) {
  struct driver a;
  struct oracleCase spec = *(const struct oracleCase *)self->user;
  int failed = driverOpen(&a, self, &spec);
  struct driver b = a;
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = spec.numExperts;
  config.retainPpm = 200000;
  config.homes = a.oracle->homes;
  b.planner = NULL;
  if (!failed)
    failed =
        lrmoePlannerCreate(a.topology, &config, &b.planner) != lrmoeSuccess;
  failed = failed || driverForward(&a) || driverForward(&b) ||
           driverBackward(&a, NULL, 0) || driverCheckSelection(&a) ||
           driverCheckResults(&a);
  struct bits first = bitsOf(&a);
  failed = failed || driverBackward(&b, NULL, 1) || driverCheckSelection(&b) ||
           driverCheckResults(&b) || driverBackward(&a, NULL, 1);
  struct bits again = bitsOf(&a);
  if (!sameBits(&first, &again)) failed = 1;
  lrmoeStepDestroy(b.step);
  lrmoePlanDestroy(b.plan);
  lrmoePlannerDestroy(b.planner);
  driverClose(&a);
  return failed;
}

START_TEST(twoStepsInFlight) {
  struct oracleCase spec = mediumCase();
  ck_assert_int_eq(testRanksRun(4, runTwoSteps, &spec), 0);
  /* More replicas in the two plans than slots: they give way to each other. */
  spec.numSlots = 1;
  ck_assert_int_eq(testRanksRun(4, runTwoSteps, &spec), 0);
}
END_TEST

/* Adds sign times this rank's weight gradients to sums. */
static void addGradients(const struct driver *d, float sign, float *sums) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t fc1 = lrmoeFc1Width(spec->activation, spec->ffn);
  for (int i = 0; i < d->numLocal; i++) {
    for (int64_t k = 0; k < fc1 * spec->hidden; k++)
      *sums++ += sign * d->dw1[i][k];
    for (int64_t k = 0; k < spec->ffn * spec->hidden; k++)
      *sums++ += sign * d->dw2[i][k];
  }
}

/* Gradients of two steps whose replicas have to give way to each other, brought
 * home once at the end, are the sum of those of each step alone. */
static int runAccumulation(const struct testRank *self) {
  struct driver a;
  struct oracleCase spec = mediumCase();
  spec.seed = *(const uint64_t *)self->user;
  spec.numSlots = 1;
  spec.type = lrmoeFloat32;
  int failed = driverOpen(&a, self, &spec);
  int64_t fc1 = lrmoeFc1Width(spec.activation, spec.ffn);
  int64_t count = a.numLocal * (fc1 + spec.ffn) * spec.hidden;
  float *sums = calloc((size_t)(count > 0 ? count : 1), sizeof *sums);
  if (!sums) abort();
  failed = failed || driverForward(&a);
  struct driver b = a; /* the same handles and buffers, another step */
  failed = failed || driverForward(&b) || driverBackward(&a, NULL, 0);
  addGradients(&a, 1, sums);
  failed = failed || driverBackward(&b, NULL, 1);
  addGradients(&a, 1, sums);
  a.isAccumulating = b.isAccumulating = 1;
  driverClearGradients(&a);
  failed = failed || driverBackward(&a, NULL, 0) ||
           driverBackward(&b, NULL, 1) ||
           lrmoeLayerAdvanceVersion(a.layer) != lrmoeInvalidUsage ||
           lrmoeReplicaReduce(a.layer, NULL) != lrmoeSuccess;
  driverPullGradients(&a);
  addGradients(&a, -1, sums);
  for (int64_t i = 0; i < count && !failed; i++)
    failed = fabsf(sums[i]) > 1e-4f;
  failed = failed || lrmoeLayerAdvanceVersion(a.layer) != lrmoeSuccess;
  free(sums);
  lrmoeStepDestroy(b.step);
  lrmoePlanDestroy(b.plan);
  driverClose(&a);
  return failed;
}

START_TEST(gradientsOfTwoSteps) {
  /* Random plans; in some of these the two steps want the same slots. */
  for (uint64_t seed = 70; seed < 78; seed++)
    ck_assert_int_eq(testRanksRun(4, runAccumulation, &seed), 0);
}
END_TEST

/* Rows of the handoff as fp32. */
static void readRow(const struct driver *d, const void *rows, int64_t row,
                    float *out) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t rowBytes = spec->hidden * (int64_t)lrmoeTypeBytes(spec->type);
  char *raw = oracleZeroed(rowBytes, 1);
  mirrorFetch(&d->mirrors, (const char *)rows + row * rowBytes, rowBytes, raw);
  oracleConvert(spec->type, raw, lrmoeFloat32, spec->hidden, out);
  free(raw);
}

static int64_t readIndex(const struct driver *d, const int64_t *index,
                         int64_t i) {
  int64_t value;
  mirrorFetch(&d->mirrors, index + i, (int64_t)sizeof value, &value);
  return value;
}

/* One pair in double, from the public handoff and the weights alone. */
static double ownExpert(const struct driver *d, const struct oracleWeights *w,
                        const float *x, const float *g, double alpha,
                        float *dx) {
  const struct oracleCase *spec = &d->oracle->spec;
  int64_t hidden = spec->hidden;
  double dAlpha = 0;
  memset(dx, 0, (size_t)hidden * sizeof *dx);
  for (int64_t f = 0; f < spec->ffn; f++) {
    double gate = 0;
    double up = 0;
    double dPhi = 0;
    for (int64_t h = 0; h < hidden; h++) {
      gate += (double)w->w1f[f * hidden + h] * x[h];
      up += (double)w->w1f[(spec->ffn + f) * hidden + h] * x[h];
      dPhi += (double)w->w2f[h * spec->ffn + f] * g[h];
    }
    double s = 1 / (1 + exp(-gate));
    dAlpha += dPhi * gate * s * up;
    double dGate = alpha * dPhi * up * s * (1 + gate * (1 - s));
    double dUp = alpha * dPhi * gate * s;
    for (int64_t h = 0; h < hidden; h++)
      dx[h] += (float)(dGate * w->w1f[f * hidden + h] +
                       dUp * w->w1f[(spec->ffn + f) * hidden + h]);
  }
  return dAlpha;
}

/* Room for a row of x and one of g, for dx, and for d(alpha). */
struct ownRows {
  float *x;
  float *g;
  float *dx;
  float *dAlpha;
};

static int putOwnRow(struct driver *d, const lrmoeHandoff_t *handoff, int64_t j,
                     int64_t p, const struct ownRows *rows) {
  lrmoeHandoffRows_t put = LRMOE_HANDOFF_ROWS_INITIALIZER;
  int isMoved = p - handoff->offsets[j] >= handoff->stayed[j];
  float alpha;
  readRow(d, isMoved ? handoff->movedX : handoff->x,
          readIndex(d, handoff->xRow, p), rows->x);
  readRow(d, handoff->g, readIndex(d, handoff->gRow, p), rows->g);
  mirrorFetch(&d->mirrors, handoff->weights + p, (int64_t)sizeof alpha, &alpha);
  *rows->dAlpha = (float)ownExpert(d, &d->oracle->experts[handoff->experts[j]],
                                   rows->x, rows->g, alpha, rows->dx);
  mirrorPush(&d->mirrors, rows->dx);
  mirrorPush(&d->mirrors, rows->dAlpha);
  put.instance = j;
  put.first = p - handoff->offsets[j];
  put.rows = 1;
  put.dx = driverDevice(d, rows->dx);
  put.dWeights = driverDevice(d, rows->dAlpha);
  RANK_OK(d->self, lrmoeHandoffPut(d->step, &put, NULL));
  return 0;
}

static int runOwnGemms(struct driver *d) {
  int64_t hidden = d->oracle->spec.hidden;
  lrmoeHandoff_t handoff = LRMOE_HANDOFF_INITIALIZER;
  const struct oracleRank *data = &d->oracle->ranks[d->self->rank];
  RANK_OK(d->self, lrmoeSelectPackSend(d->step, driverDevice(d, data->x),
                                       driverDevice(d, data->g), NULL, NULL));
  RANK_OK(d->self, lrmoeStepGetHandoff(d->step, &handoff));
  float *block = oracleZeroed(3 * hidden + 1, sizeof *block);
  const struct ownRows rows = {block, block + hidden, block + 2 * hidden,
                               block + 3 * hidden};
  int failed = 0;
  mirrorAdd(&d->mirrors, rows.dx, hidden * (int64_t)sizeof *block);
  mirrorAdd(&d->mirrors, rows.dAlpha, (int64_t)sizeof *block);
  for (int64_t j = 0; j < handoff.numInstances; j++)
    for (int64_t p = handoff.offsets[j]; p < handoff.offsets[j + 1] && !failed;
         p++)
      failed = putOwnRow(d, &handoff, j, p, &rows);
  free(block);
  if (failed) return 1;
  RANK_OK(d->self, lrmoeReturn(d->step, driverDevice(d, d->dx),
                               driverDevice(d, d->dWeights), NULL));
  mirrorPull(&d->mirrors, d->dx);
  mirrorPull(&d->mirrors, d->dWeights);
  return 0;
}

/* dx and d(alpha) of a caller's own experts are those of ExpertBackward. */
static int ownGemmsRank(const struct testRank *self) {
  struct driver d;
  struct oracleCase spec = mediumCase();
  spec.activation = lrmoeSwiglu;
  spec.type = lrmoeFloat32;
  int failed = driverOpen(&d, self, &spec) || driverForward(&d) ||
               driverBackward(&d, NULL, 0);
  int64_t slots = spec.numTokens[self->rank] * spec.topk;
  int64_t count = spec.numTokens[self->rank] * spec.hidden;
  float *dx = calloc((size_t)count, sizeof *dx);
  float *dWeights = calloc((size_t)slots, sizeof *dWeights);
  if (!dx || !dWeights) abort();
  memcpy(dx, d.dx, (size_t)count * sizeof *dx);
  memcpy(dWeights, d.dWeights, (size_t)slots * sizeof *dWeights);
  failed = failed || runOwnGemms(&d);
  for (int64_t i = 0; i < count && !failed; i++)
    failed = fabsf(((float *)d.dx)[i] - dx[i]) > 1e-4f;
  for (int64_t i = 0; i < slots && !failed; i++)
    failed = fabsf(d.dWeights[i] - dWeights[i]) > 1e-4f;
  free(dx);
  free(dWeights);
  driverClose(&d);
  return failed;
}

START_TEST(callersOwnGemms) {
  ck_assert_int_eq(testRanksRun(4, ownGemmsRank, NULL), 0);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {
      sameBitsWhateverTheWay, retentionOneIsThePlainBackward, twoStepsInFlight,
      gradientsOfTwoSteps, callersOwnGemms};
  return suiteRunTests("same", tests, sizeof tests / sizeof *tests, 600);
}
