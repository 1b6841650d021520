/* Fitting a latency and a rate: see fit.h.
 *
 * Times span four orders of magnitude, so what counts is the relative error;
 * and a neighbour on the machine makes some samples far too slow, so it counts
 * by its size and not by its square: the sum of |a m + b n - t| / t is made
 * least (least absolute deviations).  A minimum of such a sum is reached by a
 * line through two of the samples, or through one with a = 0, so these are
 * tried, all of them; of equal ones the first is taken.  The work grows with
 * the cube of the samples: points of the same size are first made one, their
 * median, which the number of sizes bounds.  Up to half of the samples of a
 * size may then be wrong by any factor without moving the line.
 *
 * Samples and results are whole numbers; doubles are used in between, and ranks
 * get the results of one of them. */
#include "topo/fit.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>

/* A size: the median time of its samples, and how many they are. */
struct point {
  double messages;
  double bytes;
  double ns;
  double weight;
};

struct candidate {
  double latency; /* ns a message */
  double perByte; /* ns a byte */
  double error;   /* sum over points */
};

static int compareSamples(const void *left, const void *right) {
  const struct lrmoeSample *a = left, *b = right;
  if (a->messages != b->messages) return a->messages < b->messages ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return (a->ns > b->ns) - (a->ns < b->ns);
}

static int compareReals(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* Makes points of sorted samples; how many. */
static int64_t makePoints(const struct lrmoeSample *sorted, int64_t numSamples,
                          struct point *points) {
  int64_t numPoints = 0;
  for (int64_t first = 0, next; first < numSamples; first = next) {
    next = first + 1;
    while (next < numSamples && sorted[next].bytes == sorted[first].bytes &&
           sorted[next].messages == sorted[first].messages)
      next++;
    int64_t low = first + (next - first - 1) / 2;
    int64_t high = first + (next - first) / 2;
    double below = (double)sorted[low].ns;
    double above = (double)sorted[high].ns;
    points[numPoints++] = (struct point){
        .messages = (double)sorted[first].messages,
        .bytes = (double)sorted[first].bytes,
        .ns = (below + above) / 2,
        .weight = (double)(next - first),
    };
  }
  return numPoints;
}

/* Takes the candidate if it is a line and better than the best. */
static void tryLine(const struct point *points, int64_t numPoints,
                    double latency, double perByte, struct candidate *best) {
  if (!(latency >= 0) || !(perByte > 0)) return;
  double error = 0;
  for (int64_t i = 0; i < numPoints && error < best->error; i++)
    error += points[i].weight *
             fabs((latency * points[i].messages + perByte * points[i].bytes) /
                      points[i].ns -
                  1);
  if (error < best->error) *best = (struct candidate){latency, perByte, error};
}

static struct candidate findLine(const struct point *points,
                                 int64_t numPoints) {
  struct candidate best = {0, 0, INFINITY};
  for (int64_t i = 0; i < numPoints; i++) {
    const struct point *p = &points[i];
    tryLine(points, numPoints, 0, p->ns / p->bytes, &best);
    for (int64_t j = 0; j < i; j++) {
      const struct point *q = &points[j];
      double determinant = p->messages * q->bytes - q->messages * p->bytes;
      if (determinant == 0) continue;
      tryLine(points, numPoints,
              (p->ns * q->bytes - q->ns * p->bytes) / determinant,
              (p->messages * q->ns - q->messages * p->ns) / determinant, &best);
    }
  }
  return best;
}

static int64_t toPpm(double part) {
  return part < 1e9 ? (int64_t)llround(part * 1e6) : (int64_t)1e15;
}

/* Of the rounded line, as users see it. */
static void measureErrors(const struct lrmoeSample *samples, double *errors,
                          struct lrmoeLine *line) {
  int64_t count = line->numSamples;
  for (int64_t i = 0; i < count; i++) {
    double predicted =
        (double)lrmoeLineNs(line, samples[i].messages, samples[i].bytes);
    errors[i] = fabs(predicted / (double)samples[i].ns - 1);
  }
  qsort(errors, (size_t)count, sizeof *errors, compareReals);
  line->medianErrorPpm =
      toPpm((errors[(count - 1) / 2] + errors[count / 2]) / 2);
  line->worstErrorPpm = toPpm(errors[count - 1]);
}

/* With memory for all of it: sorted samples, points, errors. */
static lrmoeResult_t fit(struct lrmoeSample *sorted, struct point *points,
                         double *errors, struct lrmoeLine *line) {
  int64_t numSamples = line->numSamples;
  qsort(sorted, (size_t)numSamples, sizeof *sorted, compareSamples);
  int64_t numPoints = makePoints(sorted, numSamples, points);
  struct candidate best = findLine(points, numPoints);
  double rate = 1e9 / best.perByte;
  LRMOE_REQUIRE(isfinite(best.error) && rate < 1e18,
                "no rate fits the samples: they take no time");
  line->latencyNs = llround(best.latency);
  line->bytesPerSecond = rate < 1 ? 1 : llround(rate);
  measureErrors(sorted, errors, line);
  return lrmoeSuccess;
}

static lrmoeResult_t copySamples(const struct lrmoeSample *samples,
                                 int64_t numSamples,
                                 struct lrmoeSample *sorted) {
  for (int64_t i = 0; i < numSamples; i++) {
    LRMOE_REQUIRE(samples[i].messages >= 1 && samples[i].bytes >= 1 &&
                      samples[i].ns >= 1,
                  "sample %lld: %lld messages, %lld bytes, %lld ns",
                  (long long)i, (long long)samples[i].messages,
                  (long long)samples[i].bytes, (long long)samples[i].ns);
    sorted[i] = samples[i];
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeFitLine(const struct lrmoeSample *samples,
                           int64_t numSamples, struct lrmoeLine *line) {
  LRMOE_REQUIRE(numSamples >= 1, "no samples to fit");
  struct lrmoeSample *sorted = NULL;
  struct point *points = NULL;
  double *errors = NULL;
  struct lrmoeLine made = {.numSamples = numSamples};
  lrmoeResult_t result = LRMOE_ALLOCATE(numSamples, &sorted);
  if (result == lrmoeSuccess) result = LRMOE_ALLOCATE(numSamples, &points);
  if (result == lrmoeSuccess) result = LRMOE_ALLOCATE(numSamples, &errors);
  if (result == lrmoeSuccess) result = copySamples(samples, numSamples, sorted);
  if (result == lrmoeSuccess) result = fit(sorted, points, errors, &made);
  if (result == lrmoeSuccess) *line = made;
  lrmoeFree(errors);
  lrmoeFree(points);
  lrmoeFree(sorted);
  return result;
}

int64_t lrmoeLineNs(const struct lrmoeLine *line, int64_t messages,
                    int64_t bytes) {
  __extension__ typedef __int128 wide;
  wide rate = line->bytesPerSecond;
  wide ns = ((wide)bytes * 1000000000 + rate - 1) / rate +
            (wide)line->latencyNs * messages;
  return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}
