/* Runs one case of the oracle through the library, as one rank, and compares.
 */
#ifndef LRMOE_TESTS_DRIVER_H
#define LRMOE_TESTS_DRIVER_H

#include "mirror.h"
#include "oracle.h"
#include "support/ranks.h"

/* One step of one rank, its layer's handles, and its buffers. */
struct driver {
  const struct testRank *self;
  struct oracle *oracle;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoeLayer_t layer;
  lrmoeStep_t step;
  lrmoePlan_t plan;
  struct mirrors mirrors;
  void *y;
  void *dx;
  float *dWeights;
  uint8_t *kept;     /* [T, k] */
  uint8_t **allKept; /* [G] */
  float **dw1;       /* [numLocal] of the layer */
  float **dw2;
  double **sums1; /* [numLocal] gradients that the oracle gave so far, or NULL:
                     each backward clears dw and brings replicas home */
  double **sums2;
  int ownsComm;
  int ownsLayer;
  int isAccumulating; /* backward neither clears dw nor brings replicas home */
  int isReplayed;     /* the step runs on a plan that was saved and loaded */
  int numPlans;
  int numLocal;
  const int32_t *local;
};

/* What the layers of a test have in common. */
struct driverLayer {
  lrmoeComm_t comm; /* NULL: makes one */
  int maxSteps;
  int slotsPerRank;
};

/* Each returns 0, or 1 after a complaint on stderr. */
int driverOpen(struct driver *driver, const struct testRank *self,
               const struct oracleCase *spec);
int driverOpenLayer(struct driver *driver, const struct testRank *self,
                    const struct oracleCase *spec,
                    const struct driverLayer *options);

/* Another step of base's layer, with data of its own (spec differs from base's
 * in dataSeed and numTokens only). */
void driverJoin(struct driver *driver, const struct driver *base,
                const struct oracleCase *spec);

/* The phases of a step, one call each; forward and backward are all of them. */
int driverBegin(struct driver *driver);
int driverDispatch(struct driver *driver);
int driverExperts(struct driver *driver);
int driverCombine(struct driver *driver);
int driverForward(struct driver *driver);
int driverSelect(struct driver *driver, const lrmoeBackwardConfig_t *config,
                 int isFused);
int driverSend(struct driver *driver); /* after a select that was not fused */
int driverExpertBackward(struct driver *driver);
int driverReturn(struct driver *driver);
int driverBackward(struct driver *driver, const lrmoeBackwardConfig_t *config,
                   int isFused);
int driverCheckSelection(struct driver *driver);
int driverCheckResults(struct driver *driver);

/* dw1 and dw2: to zero, and as the library has them now. */
void driverClearGradients(struct driver *driver);
void driverPullGradients(const struct driver *driver);

/* A GEMM that the communicator's backend has. */
const char *driverGemm(const struct driver *driver);

/* Where the library finds one of this rank's arrays. */
static inline void *driverDevice(const struct driver *driver,
                                 const void *array) {
  return mirrorOf(&driver->mirrors, array);
}

/* Gradients are added up from here on ... */
void driverAccumulate(struct driver *driver);
/* ... and are the sum of the oracle's, once replicas are home. */
int driverCheckSums(struct driver *driver);

/* Everything that was made; safe after a failure half-way. */
void driverClose(struct driver *driver);

int64_t driverSlots(const struct oracleCase *spec, int rank);

/* |got - want| within the tolerance of the largest value; what is not finite
 * must not be finite on both sides. */
int driverCompare(struct driver *driver, const char *what, int64_t count,
                  const float *got, const double *want);

/* A testRankBody: opens, runs and checks the case that user points to. */
int driverRunCase(const struct testRank *self);

/* The same with up to four steps in flight, of up to two layers: see
 * flight.c. */
int flightRunCase(const struct testRank *self);

#endif
