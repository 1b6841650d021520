/* Which instance executes each kept pair (paper 3.3), as labels in the place of
 * the flags of a selection: the contract.
 *
 * Pairs of an expert lie by (source, ordinal), and forward gave each instance a
 * stretch of them.  A cell is what a source and an instance have in common;
 * with cells in order both a source's and an instance's are neighbours.
 *
 * An instance of which the plan wants X keeps the first X of its kept pairs.
 * The others move, sources ascending, a source's own in order: to instances on
 * the source itself, then (for all sources) in its domain, then on its host,
 * then anywhere; of those equally near to the first with room.  Integers only:
 * every backend gives the same labels. */
#ifndef LRMOE_KERNELS_LABELS_H
#define LRMOE_KERNELS_LABELS_H

#include "base/result.h"

enum {
  lrmoeLabelDropped = 0,
  lrmoeLabelStayed = 1,  /* executed where forward ran it, its state at hand */
  lrmoeLabelMoved = 2,   /* + i: by instance i of its expert, x comes again */
  lrmoeMaxLabelled = 252 /* instances of an expert that labels can tell */
};

struct lrmoeLabels {
  int64_t numRanks;
  int64_t numExperts;   /* that are labelled */
  int64_t numInstances; /* of these experts */
  int64_t numCells;
  int64_t maxPairs; /* of a cell */

  const int64_t *cellFirsts;  /* [numCells] where its flags begin */
  const int64_t *cellCounts;  /* [numCells] */
  const int64_t *cellSources; /* [numCells] */
  const int64_t *cellOwners;  /* [numCells] its instance, of all */
  const int64_t *cellExperts; /* [numCells] */

  const int64_t *instanceFirsts; /* [numExperts + 1] an expert's instances */
  const int64_t *instanceCells;  /* [numInstances + 1] an instance's cells */
  const int64_t *sourceCells;    /* [numExperts * G + 1] a source's cells */
  const int64_t *shares;  /* [numInstances] pairs of the plan; INT64_MAX: of its
                            expert none moves */
  const int64_t *ranks;   /* [numInstances] */
  const int64_t *domains; /* [G] */
  const int64_t *hosts;   /* [G] */

  int comesWithX;   /* also what stays is labelled as if it had moved */
  uint8_t *flags;   /* in: 0 or 1; out: labels */
  int64_t *missing; /* [numExperts] out: pairs for which there is no room */
  int64_t *work;    /* room: lrmoeLabelWords */
};

static inline int64_t lrmoeLabelWords(const struct lrmoeLabels *args) {
  return 3 * args->numCells + 2 * args->numRanks * args->numExperts +
         (2 * args->numRanks + 1) * args->numInstances;
}

/* How near two ranks are: a pass of the order above. */
enum {
  lrmoeNearRank,
  lrmoeNearDomain,
  lrmoeNearHost,
  lrmoeNearAny,
  lrmoeNumNear
};

/* The CPU's. */
void lrmoeLabelPairs(const struct lrmoeLabels *args);

#endif
