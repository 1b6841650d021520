/* Where the parts of a route on the device lie: see device_route.h. */
#ifndef LRMOE_COLLECTIVES_DEVICE_LAYOUT_H
#define LRMOE_COLLECTIVES_DEVICE_LAYOUT_H

#include "collectives/device_route.h"

/* The device's part of a route, in one block: first what the host reads. */
struct lrmoeDeviceLayout {
  int64_t numOwn;   /* lists of the source */
  int64_t numLocal; /* and of the executor */
  int64_t ownMarks;
  int64_t localMarks;
  int64_t *ownOffsets;   /* [numOwn + 1] */
  int64_t *localOffsets; /* [numLocal + 1] */
  int64_t *dropped;      /* [numOwn] */
  int64_t *ownRows;      /* [G + 1] numbers where each executor's begin */
  int64_t *localRows;    /* [G + 1] and each source's */
  int64_t *ownNumbers;   /* [ownMarks + 1] */
  int64_t *localNumbers; /* [localMarks + 1] */
  uint8_t *marks;        /* [ownMarks], then [localMarks] */
};

/* The layout of a block; of its copy on the host, what the host reads. */
struct lrmoeDeviceLayout lrmoeDeviceLayoutAt(const struct lrmoeStep *step,
                                             void *block);

/* Ranges of the source (isOwn), or of the executor, as the backend sees
 * them. */
struct lrmoeFlagged lrmoeDeviceFlagged(const struct lrmoeStep *step,
                                       const struct lrmoeDeviceLayout *at,
                                       int isOwn);

#endif
