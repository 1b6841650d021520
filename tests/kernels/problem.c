/* A random expert and its naive passes: see problem.h. */
#include "problem.h"

#include "support/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeros(int64_t count, size_t bytes) {
  void *array = calloc((size_t)count + 1, bytes);
  ck_assert_ptr_nonnull(array);
  return array;
}

struct problem problemMake(struct naiveRandom *random,
                           const struct lrmoeExpertShape *shape,
                           int64_t numRows) {
  struct problem made = {.shape = *shape, .numRows = numRows};
  int64_t hidden = shape->hidden;
  made.numTokens = 1 + numRows / 2;
  made.fc1Width = lrmoeFc1Width(shape->activation, shape->ffn);
  made.x = naiveRandomArray(random, shape->type, made.numTokens * hidden, 1);
  made.g = naiveRandomArray(random, shape->type, made.numTokens * hidden, 1);
  made.alpha = naiveRandomArray(random, lrmoeFloat32, numRows, 1);
  made.token = zeros(numRows, sizeof *made.token);
  for (int64_t i = 0; i < numRows; i++)
    made.token[i] = naiveRandomBelow(random, made.numTokens);
  made.w1 = naiveRandomArray(random, shape->type, made.fc1Width * hidden, 0.5);
  made.w2 = naiveRandomArray(random, shape->type, hidden * shape->ffn, 0.5);
  made.saved = zeros(numRows * made.fc1Width, naiveTypeBytes(shape->type));
  made.phiNorm = zeros(numRows, sizeof(float));
  made.rows = zeros(numRows * hidden, naiveTypeBytes(shape->type));
  made.y = zeros(made.numTokens * hidden, sizeof(float));
  made.dw1 = zeros(made.fc1Width * hidden, sizeof(float));
  made.dw2 = zeros(hidden * shape->ffn, sizeof(float));
  made.dx = zeros(numRows * hidden, sizeof(float));
  made.dAlpha = zeros(numRows, sizeof(float));
  return made;
}

void problemFree(struct problem *problem) {
  void *arrays[] = {problem->x,     problem->g,       problem->token,
                    problem->alpha, problem->w1,      problem->w2,
                    problem->saved, problem->phiNorm, problem->y,
                    problem->dw1,   problem->dw2,     problem->dx,
                    problem->rows,  problem->dAlpha};
  for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
    free(arrays[i]);
}

lrmoeResult_t problemForward(struct problem *problem,
                             struct lrmoeExpertContext *context) {
  const struct lrmoeExpertForward args = {
      .weights = {.w1 = problem->w1, .w2 = problem->w2},
      .numRows = problem->numRows,
      .x = {problem->x, problem->token, problem->shape.type,
            problem->shape.hidden},
      .alpha = problem->alpha,
      .saved = problem->saved,
      .phiNorm = problem->phiNorm,
      .y = problem->rows,
  };
  int64_t hidden = problem->shape.hidden;
  memset(problem->y, 0, (size_t)(problem->numTokens * hidden) * sizeof(float));
  LRMOE_CHECK(lrmoeExpertCpuForward(context, 1, &args, NULL));
  for (int64_t i = 0; i < problem->numRows * hidden; i++)
    problem->y[problem->token[i / hidden] * hidden + i % hidden] +=
        (float)naiveGet(problem->shape.type, problem->rows, i);
  return lrmoeSuccess;
}

lrmoeResult_t problemBackward(struct problem *problem,
                              struct lrmoeExpertContext *context) {
  lrmoeDataType_t type = problem->shape.type;
  int64_t hidden = problem->shape.hidden;
  int64_t ffn = problem->shape.ffn;
  const struct lrmoeExpertBackward args = {
      .weights = {problem->w1, problem->w2, problem->dw1, problem->dw2},
      .numRows = problem->numRows,
      .g = {problem->g, problem->token, type, hidden},
      .x = {problem->x, problem->token, type, hidden},
      .saved = {problem->saved, NULL, type, problem->fc1Width},
      .alpha = problem->alpha,
      .dx = problem->rows,
      .dAlpha = problem->dAlpha,
  };
  if (problem->dw1)
    memset(problem->dw1, 0, (size_t)(problem->fc1Width * hidden) * 4);
  if (problem->dw2) memset(problem->dw2, 0, (size_t)(hidden * ffn) * 4);
  LRMOE_CHECK(lrmoeExpertCpuBackward(context, 1, &args, NULL));
  for (int64_t i = 0; i < problem->numRows * hidden; i++)
    problem->dx[i] = (float)naiveGet(type, problem->rows, i);
  return lrmoeSuccess;
}

/* Naive passes, row by row. */
struct naiveRow {
  double *fc1;
  struct naiveActivation *activation; /* [F] */
};

static double at(const struct problem *problem, const void *matrix,
                 int64_t index) {
  return naiveGet(problem->shape.type, matrix, index);
}

static void naiveFc1(const struct problem *problem, int64_t row, int isRounded,
                     struct naiveRow *result) {
  lrmoeDataType_t type = problem->shape.type;
  int64_t hidden = problem->shape.hidden;
  int64_t ffn = problem->shape.ffn;
  int64_t from = problem->token[row] * hidden;
  for (int64_t o = 0; o < problem->fc1Width; o++) {
    double sum = 0;
    for (int64_t h = 0; h < hidden; h++)
      sum += at(problem, problem->x, from + h) *
             at(problem, problem->w1, o * hidden + h);
    result->fc1[o] = isRounded ? naiveRound(type, sum) : sum;
  }
  for (int64_t f = 0; f < ffn; f++) {
    double up =
        problem->shape.activation == lrmoeSwiglu ? result->fc1[ffn + f] : 0;
    result->activation[f] =
        naiveActivate(problem->shape.activation, result->fc1[f], up);
    if (isRounded)
      result->activation[f].phi = naiveRound(type, result->activation[f].phi);
  }
}

static struct naiveRow naiveRowMake(const struct problem *problem) {
  struct naiveRow row = {
      zeros(problem->fc1Width, sizeof(double)),
      zeros(problem->shape.ffn, sizeof(struct naiveActivation))};
  return row;
}

static void naiveRowFree(struct naiveRow *row) {
  free(row->fc1);
  free(row->activation);
}

static void naiveForwardRow(const struct problem *problem, int64_t row,
                            const struct naiveRow *given,
                            struct naiveResults *results) {
  int64_t hidden = problem->shape.hidden;
  int64_t ffn = problem->shape.ffn;
  double squares = 0;
  for (int64_t f = 0; f < ffn; f++)
    squares += given->activation[f].phi * given->activation[f].phi;
  results->phiNorm[row] = sqrt(squares);
  for (int64_t h = 0; h < hidden; h++) {
    double sum = 0;
    for (int64_t f = 0; f < ffn; f++)
      sum += given->activation[f].phi * at(problem, problem->w2, h * ffn + f);
    results->y[problem->token[row] * hidden + h] += problem->alpha[row] * sum;
  }
}

/* gPhi, d(alpha), dW2 and, in given->fc1, dFc1. */
static void naiveBackwardFc2(const struct problem *problem, int64_t row,
                             struct naiveRow *given,
                             struct naiveResults *results) {
  int64_t hidden = problem->shape.hidden;
  int64_t ffn = problem->shape.ffn;
  double alpha = problem->alpha[row];
  int64_t from = problem->token[row] * hidden;
  for (int64_t f = 0; f < ffn; f++) {
    struct naiveActivation activation = given->activation[f];
    double gPhi = 0;
    for (int64_t h = 0; h < hidden; h++) {
      double g = at(problem, problem->g, from + h);
      gPhi += g * at(problem, problem->w2, h * ffn + f);
      results->dw2[h * ffn + f] += g * alpha * activation.phi;
    }
    results->dAlpha[row] += gPhi * activation.phi;
    given->fc1[f] = alpha * gPhi * activation.dGate;
    if (problem->shape.activation == lrmoeSwiglu)
      given->fc1[ffn + f] = alpha * gPhi * activation.dUp;
  }
}

static void naiveBackwardFc1(const struct problem *problem, int64_t row,
                             const struct naiveRow *given,
                             struct naiveResults *results) {
  int64_t hidden = problem->shape.hidden;
  int64_t from = problem->token[row] * hidden;
  for (int64_t o = 0; o < problem->fc1Width; o++)
    for (int64_t h = 0; h < hidden; h++) {
      results->dx[row * hidden + h] +=
          given->fc1[o] * at(problem, problem->w1, o * hidden + h);
      results->dw1[o * hidden + h] +=
          given->fc1[o] * at(problem, problem->x, from + h);
    }
}

struct naiveResults problemNaive(const struct problem *problem) {
  int64_t hidden = problem->shape.hidden;
  struct naiveResults results = {
      zeros(problem->numTokens * hidden, sizeof(double)),
      zeros(problem->numRows, sizeof(double)),
      zeros(problem->numRows * hidden, sizeof(double)),
      zeros(problem->numRows, sizeof(double)),
      zeros(problem->fc1Width * hidden, sizeof(double)),
      zeros(problem->shape.ffn * hidden, sizeof(double)),
  };
  struct naiveRow row = naiveRowMake(problem);
  for (int64_t i = 0; i < problem->numRows; i++) {
    naiveFc1(problem, i, problem->shape.type != lrmoeFloat32, &row);
    naiveForwardRow(problem, i, &row, &results);
    naiveBackwardFc2(problem, i, &row, &results);
    naiveBackwardFc1(problem, i, &row, &results);
  }
  naiveRowFree(&row);
  return results;
}

void naiveResultsFree(struct naiveResults *results) {
  free(results->y);
  free(results->phiNorm);
  free(results->dx);
  free(results->dAlpha);
  free(results->dw1);
  free(results->dw2);
}

double problemLoss(const struct problem *problem) {
  int64_t hidden = problem->shape.hidden;
  int64_t ffn = problem->shape.ffn;
  struct naiveRow row = naiveRowMake(problem);
  double loss = 0;
  for (int64_t i = 0; i < problem->numRows; i++) {
    naiveFc1(problem, i, 0, &row);
    for (int64_t h = 0; h < hidden; h++) {
      double g = at(problem, problem->g, problem->token[i] * hidden + h);
      for (int64_t f = 0; f < ffn; f++)
        loss += problem->alpha[i] * g * row.activation[f].phi *
                at(problem, problem->w2, h * ffn + f);
    }
  }
  naiveRowFree(&row);
  return loss;
}
