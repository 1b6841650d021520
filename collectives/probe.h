/* Timing patterns of messages between ranks: the measuring half of
 * calibration.  It is the same over every transport and backend. */
#ifndef LRMOE_COLLECTIVES_PROBE_H
#define LRMOE_COLLECTIVES_PROBE_H

#include "collectives/comm.h"
#include "topo/topology.h"

/* Some messages that are sent at once, at every size of a sweep. */
enum lrmoeProbeShape {
  lrmoeProbeOne,     /* from `from` to `to`, which may be the same */
  lrmoeProbeGather,  /* from all others to `to` */
  lrmoeProbeScatter, /* from `from` to all others */
  lrmoeProbeRing,    /* from each rank to the next */
  lrmoeProbeAll      /* from each rank to all others */
};

struct lrmoeProbeKind {
  enum lrmoeProbeShape shape;
  int from;
  int to;
};

struct lrmoeProbeConfig {
  int64_t minBytes; /* of a rank's side, four times more each up to maxBytes */
  int64_t maxBytes;
  int64_t budgetNs;
  int32_t numRounds;
  void (*progress)(void *user, int64_t donePpm);
  void *user;
};

/* A communicator that is being probed. */
struct lrmoeProbe {
  struct lrmoeComm *comm;
  lrmoeStream_t stream;
  int64_t *words; /* of memAlloc, as are these */
  char *send;
  char *recv;
  int64_t room;   /* of send and recv */
  int64_t cursor; /* where in them the next messages begin */
};

/* Sets up the memory of a probe whose first two fields are given, for
 * messages of maxBytes a rank; collective in that all have to do it.  Close in
 * any state. */
lrmoeResult_t lrmoeProbeOpen(struct lrmoeProbe *probe, int64_t maxBytes);
void lrmoeProbeClose(struct lrmoeProbe *probe);

enum {
  lrmoeProbeMaxWords = 8
};

/* Each of values [count] becomes the largest that any rank
 * gave.  Collective. */
lrmoeResult_t lrmoeProbeMax(struct lrmoeProbe *probe, int64_t *values,
                            int count);

/* Samples of kind k are list[k * maxPerKind] and the numPerKind - 1 after it,
 * at most a sample per size and round. */
struct lrmoeProbeSamples {
  struct lrmoeSample *list;
  int64_t maxPerKind;
  int64_t numPerKind;
};

/* Sizes that a sweep has. */
int64_t lrmoeProbeNumSizes(const struct lrmoeProbeConfig *config);

/* Times all kinds at all sizes, smallest first, and again until numRounds or
 * the budget is reached: the same samples on every rank.  At least the smallest
 * size is done.  Collective. */
lrmoeResult_t lrmoeProbeRun(struct lrmoeProbe *probe,
                            const struct lrmoeProbeConfig *config,
                            const struct lrmoeProbeKind *kinds,
                            int32_t numKinds,
                            struct lrmoeProbeSamples *samples);

#endif
