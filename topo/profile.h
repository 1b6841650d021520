/* Calibration profiles: a topology's fits as text. */
#ifndef LRMOE_TOPO_PROFILE_H
#define LRMOE_TOPO_PROFILE_H

#include "topo/calibration.h"

/* The profile of a calibrated topology; free() the text. */
lrmoeResult_t lrmoeProfileWrite(const struct lrmoeTopology *topology,
                                char **text);

/* Calibrates topology with a profile; `source` begins messages.  The text may
 * be hostile.  Results as lrmoeTopologyLoadProfile. */
lrmoeResult_t lrmoeProfileRead(const char *source, const char *text,
                               size_t bytes, struct lrmoeTopology *topology);

#endif
