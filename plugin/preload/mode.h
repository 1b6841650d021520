/* What LRMOE_PRELOAD and its companions ask for. */
#ifndef LRMOE_PLUGIN_PRELOAD_MODE_H
#define LRMOE_PLUGIN_PRELOAD_MODE_H

#include <stdint.h>

enum lrmoePreloadMode {
  lrmoePreloadOff,
  lrmoePreloadObserve,
  lrmoePreloadSchedule,
  lrmoePreloadElide,
  lrmoePreloadCalibrate
};

struct lrmoePreloadSettings {
  enum lrmoePreloadMode mode;
  const char *report;   /* a file, NULL: none */
  const char *topology; /* a file, NULL: the live machine */
  int64_t rowBytes;     /* 0: not known */
  int64_t timeoutMs;
  int isIdle; /* calls are forwarded and nothing else */
};

/* Read from the environment on the first call; any thread. */
const struct lrmoePreloadSettings *lrmoePreloadSettings(void);
const char *lrmoePreloadModeName(enum lrmoePreloadMode mode);

#endif
