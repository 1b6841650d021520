/* Several steps in flight: a random order of phases, the same on all ranks.
 *
 * A seed gives up to two layers on one communicator, up to four steps of each,
 * with tokens, routing and plans of their own, and an order in which their
 * phases run: forwards between another step's forward and backward, backwards
 * in any order, forward again (recomputation), backward again, plans saved and
 * loaded, gradients added up over the steps or not.  Each backward is compared
 * with the oracle.  The orders are all those that lrmoe.h allows: of the steps
 * of a layer one at a time is between ExpertForward (Dispatch with saved state
 * none) and Combine or Select and Return, and none begins to dispatch
 * meanwhile; where slots are scarce, one at a time is between Prepare or
 * Dispatch and Combine too, since a step holds its replicas there. */
#include "driver.h"

#include <string.h>

enum {
  maxLayers = 2,
  maxFlightSteps = 4
};

enum phase {
  phaseBegin,
  phaseDispatch,
  phaseExperts,
  phaseCombine,
  phaseSelect,
  phaseSend,
  phaseExpertBackward,
  phaseReturn,
  phaseDone
};

struct flightStep {
  struct driver driver;
  enum phase next;
  int layer;
  int forwardsLeft; /* recomputations */
  int backwardsLeft;
};

struct flightLayer {
  struct driver base;
  struct oracleCase spec;
  int areSlotsScarce;
  const struct flightStep *busy; /* the step that has the layer to itself */
};

struct flight {
  uint64_t seed;
  struct flightLayer layers[maxLayers];
  int numLayers;
  struct flightStep steps[maxLayers * maxFlightSteps];
  int numSteps;
};

/* Whether the step has the layer to itself from this phase on. */
static int takesLayer(const struct flightLayer *layer, enum phase phase) {
  if (phase == phaseBegin) return layer->areSlotsScarce;
  if (phase == phaseDispatch)
    return layer->areSlotsScarce || layer->spec.savedState == lrmoeSavedNone;
  return phase == phaseExperts || phase == phaseSelect;
}

static int needsLayer(const struct flightLayer *layer, enum phase phase) {
  return takesLayer(layer, phase) || phase == phaseDispatch;
}

static int mayRun(const struct flight *flight, const struct flightStep *step) {
  const struct flightLayer *layer = &flight->layers[step->layer];
  return step->next != phaseDone && (!needsLayer(layer, step->next) ||
                                     !layer->busy || layer->busy == step);
}

static int endBackward(struct flight *flight, struct flightStep *step) {
  uint64_t seed = step->driver.oracle->spec.dataSeed;
  int failed =
      driverCheckSelection(&step->driver) || driverCheckResults(&step->driver);
  flight->layers[step->layer].busy = NULL;
  step->backwardsLeft--;
  step->next = phaseSelect;
  if (step->forwardsLeft > 0 && oraclePick(seed, 80, 0, 1)) {
    step->forwardsLeft--;
    step->next = phaseDispatch;
  }
  if (step->backwardsLeft) return failed;
  step->next = phaseDone;
  if (lrmoeStepDestroy(step->driver.step) != lrmoeSuccess) failed = 1;
  step->driver.step = NULL;
  return failed;
}

/* Combined: backward may begin, or forward run again before it. */
static void endForward(struct flight *flight, struct flightStep *step) {
  flight->layers[step->layer].busy = NULL;
  step->next = phaseSelect;
  if (step->forwardsLeft > 1) {
    step->forwardsLeft--;
    step->next = phaseDispatch;
  }
}

static int runPhase(struct flight *flight, struct flightStep *step) {
  struct flightLayer *layer = &flight->layers[step->layer];
  const struct oracleCase *spec = &step->driver.oracle->spec;
  enum phase phase = step->next;
  if (takesLayer(layer, phase)) layer->busy = step;
  step->next++;
  switch (phase) {
  case phaseBegin:
    return driverBegin(&step->driver);
  case phaseDispatch:
    return driverDispatch(&step->driver);
  case phaseExperts:
    return driverExperts(&step->driver);
  case phaseCombine:
    endForward(flight, step);
    return driverCombine(&step->driver);
  case phaseSelect:
    return driverSelect(&step->driver, &spec->backward, spec->isFused);
  case phaseSend:
    return !spec->isFused && driverSend(&step->driver);
  case phaseExpertBackward:
    return driverExpertBackward(&step->driver);
  case phaseReturn:
    return driverReturn(&step->driver) || endBackward(flight, step);
  case phaseDone:
    break;
  }
  return 1;
}

/* The next step to run: any that may, NULL when all are done. */
static struct flightStep *chooseStep(struct flight *flight, uint64_t tick) {
  int first = (int)(oracleUniform(flight->seed, 81, tick) * flight->numSteps);
  for (int i = 0; i < flight->numSteps; i++) {
    struct flightStep *step = &flight->steps[(first + i) % flight->numSteps];
    if (mayRun(flight, step)) return step;
  }
  return NULL;
}

static void addStep(struct flight *flight, int layer, uint64_t seed) {
  struct flightStep *step = &flight->steps[flight->numSteps++];
  struct oracleCase spec = flight->layers[layer].spec;
  int64_t most = oracleMostTokens(&spec);
  spec.dataSeed = seed;
  for (int r = 0; r < spec.numRanks; r++)
    spec.numTokens[r] = oraclePick(seed, 100 + (uint64_t)r, 0, most);
  spec.isFused = (int)oraclePick(seed, 82, 0, 1);
  if (spec.routerGrad != lrmoeRouterGradExecutor)
    spec.backward.wire = (lrmoeWire_t)oraclePick(seed, 83, 0, 3);
  step->layer = layer;
  step->forwardsLeft = (int)oraclePick(seed, 84, 0, 2);
  step->backwardsLeft = (int)oraclePick(seed, 85, 1, 2);
  driverJoin(&step->driver, &flight->layers[layer].base, &spec);
  step->driver.isReplayed = (int)oraclePick(seed, 86, 0, 1);
}

static int openLayer(struct flight *flight, const struct testRank *self,
                     const struct oracleCase *spec) {
  int index = flight->numLayers;
  struct flightLayer *layer = &flight->layers[index];
  int numSteps = (int)oraclePick(spec->seed, 87, 1, maxFlightSteps);
  layer->areSlotsScarce =
      spec->numSlots && (int)oraclePick(spec->seed, 88, 0, 1);
  struct driverLayer options = {
      index ? flight->layers[0].base.comm : NULL, numSteps,
      layer->areSlotsScarce ? spec->numSlots : spec->numSlots * numSteps};
  layer->spec = *spec;
  flight->numLayers++;
  if (driverOpenLayer(&layer->base, self, spec, &options)) return 1;
  if (oraclePick(spec->seed, 89, 0, 1)) driverAccumulate(&layer->base);
  for (int i = 0; i < numSteps; i++)
    addStep(flight, index, spec->seed * 1000 + (uint64_t)i + 1);
  return 0;
}

/* A second layer of other shapes over the same ranks. */
static struct oracleCase otherLayer(const struct oracleCase *spec) {
  struct oracleCase other = oracleRandomCase(spec->seed + 1000003);
  other.numRanks = spec->numRanks;
  for (int r = 0; r < spec->numRanks; r++)
    other.numTokens[r] = oraclePick(other.seed, 30 + (uint64_t)r, 0, 24);
  return other;
}

int flightRunCase(const struct testRank *self) {
  static const struct flight empty;
  const struct oracleCase *spec = self->user;
  struct flight flight = empty;
  flight.seed = spec->seed;
  int failed = openLayer(&flight, self, spec);
  if (!failed && !oraclePick(spec->seed, 90, 0, 2)) {
    struct oracleCase other = otherLayer(spec);
    failed = openLayer(&flight, self, &other);
  }
  struct flightStep *step = NULL;
  for (uint64_t tick = 0; !failed && (step = chooseStep(&flight, tick)); tick++)
    failed = runPhase(&flight, step);
  for (int i = 0; i < flight.numLayers && !failed; i++)
    if (flight.layers[i].base.sums1)
      failed = driverCheckSums(&flight.layers[i].base);
  for (int i = 0; i < flight.numSteps; i++)
    driverClose(&flight.steps[i].driver);
  for (int i = flight.numLayers - 1; i >= 0; i--)
    driverClose(&flight.layers[i].base);
  return failed;
}
