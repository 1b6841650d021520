/* Exchanges of the rows that a hint keeps. */
#ifndef LRMOE_PLUGIN_PRELOAD_CALIBRATE_H
#define LRMOE_PLUGIN_PRELOAD_CALIBRATE_H

#include "plugin/preload/elide.h"

/* NULL, or why the hint is not of this exchange, as far as this rank sees. */
const char *lrmoeCalibrationRefusal(const struct lrmoeElision *elision);

/* Reserves what the selection needs and writes the keys of this rank's rows
 * into its record; false: something has no room. */
int lrmoeCalibrationFill(struct lrmoeElision *elision,
                         struct lrmoeBoardRecord *record);

/* When all ranks have published the same hint: the bits and rows of every
 * peer.  False, on all ranks: a row that is not finite would be dropped. */
int lrmoeCalibrationSelect(struct lrmoeElision *elision);

#endif
