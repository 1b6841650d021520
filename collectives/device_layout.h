/* Where the parts of a route on the device lie: see device_route.h. */
#ifndef LRMOE_COLLECTIVES_DEVICE_LAYOUT_H
#define LRMOE_COLLECTIVES_DEVICE_LAYOUT_H

#include "collectives/device_route.h"

/* The device's part of a route, in one block: first what the host reads.
 * Lists come in pairs, of what stayed and of what comes with x. */
struct lrmoeDeviceLayout {
  int64_t numOwn;      /* lists of the source */
  int64_t numLocal;    /* and of the executor */
  int64_t numLabelled; /* experts whose pairs are labelled */
  int64_t ownMarks;
  int64_t localMarks;
  int hasX;
  int64_t *ownOffsets;   /* [numOwn + 1] */
  int64_t *localOffsets; /* [numLocal + 1] */
  int64_t *dropped;      /* [numOwn] */
  int64_t *missing;      /* [numLabelled] */
  int64_t *rows;         /* numbers where each rank's begin, [G + 1] each: rows
                            of g to executors, from sources; rows of x */
  int64_t *ownNumbers;   /* [ownMarks + 1] */
  int64_t *localNumbers; /* [localMarks + 1] */
  int64_t *ownX;         /* the same of rows of x, or NULL */
  int64_t *localX;
  uint8_t *marks; /* of the same four, each rounded up */
};

/* Labels the pairs of flags (labels.h), if they need it. */
int64_t lrmoeDeviceNumLabelled(const struct lrmoeStep *step);
lrmoeResult_t lrmoeDeviceLabel(struct lrmoeStep *step,
                               const struct lrmoeDeviceLayout *at);
/* The expert that is labelled as number n. */
int32_t lrmoeDeviceLabelled(const struct lrmoeStep *step, int64_t n);

/* The layout of a block; of its copy on the host, what the host reads. */
struct lrmoeDeviceLayout lrmoeDeviceLayoutAt(const struct lrmoeStep *step,
                                             void *block);

/* Ranges of both sides, uploaded; *boundaries: the marks at which each rank's
 * rows begin, of the source [G + 1] and of the executor, device. */
lrmoeResult_t lrmoeDeviceTabulate(struct lrmoeStep *step,
                                  const struct lrmoeDeviceLayout *at,
                                  int64_t **boundaries);

/* Ranges of the source (isOwn), or of the executor, as the backend sees
 * them. */
struct lrmoeFlagged lrmoeDeviceFlagged(const struct lrmoeStep *step,
                                       const struct lrmoeDeviceLayout *at,
                                       int isOwn);

#endif
