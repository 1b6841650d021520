/* Runs one case of the oracle through the library, as one rank, and compares.
 */
#ifndef LRMOE_TESTS_DRIVER_H
#define LRMOE_TESTS_DRIVER_H

#include "oracle.h"
#include "support/ranks.h"

/* The handles of one rank, and its buffers. */
struct driver {
  const struct testRank *self;
  struct oracle *oracle;
  lrmoeComm_t comm;
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoeLayer_t layer;
  lrmoeStep_t step;
  lrmoePlan_t plan;
  void *y;
  void *dx;
  float *dWeights;
  uint8_t *kept;     /* [T, k] */
  uint8_t **allKept; /* [G] */
  float **dw1;       /* [numLocal] */
  float **dw2;
  int numPlans;
  int isAccumulating; /* backward neither clears dw nor brings replicas home */
  int numLocal;
  const int32_t *local;
};

/* Each returns 0, or 1 after a complaint on stderr. */
int driverOpen(struct driver *driver, const struct testRank *self,
               const struct oracleCase *spec);
int driverForward(struct driver *driver);
int driverBackward(struct driver *driver, const lrmoeBackwardConfig_t *config,
                   int isFused);
int driverCheckSelection(struct driver *driver);
int driverCheckResults(struct driver *driver);

/* Everything that driverOpen made; safe after a failure half-way. */
void driverClose(struct driver *driver);

/* A testRankBody: opens, runs and checks the case that user points to. */
int driverRunCase(const struct testRank *self);

#endif
