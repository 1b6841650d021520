/* Settings: see mode.h.  They are read once: what ranks have agreed on must not
 * change under a communicator. */
#include "plugin/preload/mode.h"

#include "base/log.h"
#include "base/param.h"

#include <pthread.h>
#include <string.h>

static const char *const names[] = {
    [lrmoePreloadOff] = "off",
    [lrmoePreloadObserve] = "observe",
    [lrmoePreloadSchedule] = "schedule",
    [lrmoePreloadElide] = "elide",
    [lrmoePreloadCalibrate] = "calibrate",
};

static struct lrmoePreloadSettings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char *lrmoePreloadModeName(enum lrmoePreloadMode mode) {
  return names[mode];
}

/* A word that is none of the modes is refused, and then nothing is touched. */
static enum lrmoePreloadMode modeOf(const char *text) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(text, names[i])) return (enum lrmoePreloadMode)i;
  lrmoeLog(lrmoeLogWarn,
           "LRMOE_PRELOAD=%s is refused: it is none of off, observe, "
           "schedule, elide and calibrate; calls are forwarded untouched",
           text);
  return lrmoePreloadOff;
}

static const char *textOrNull(enum lrmoeParam param) {
  const char *text = lrmoeParamGetText(param);
  return *text && strcmp(text, "none") != 0 ? text : NULL;
}

static void read(void) {
  settings.mode = modeOf(lrmoeParamGetText(lrmoeParamPreload));
  settings.report = textOrNull(lrmoeParamPreloadReport);
  settings.topology = textOrNull(lrmoeParamTopology);
  settings.rowBytes = lrmoeParamGet(lrmoeParamRowBytes);
  settings.timeoutMs = lrmoeParamGet(lrmoeParamTimeoutMs);
  if (settings.mode == lrmoePreloadElide && !settings.rowBytes) {
    lrmoeLog(lrmoeLogWarn,
             "LRMOE_PRELOAD=elide is refused without LRMOE_ROW_BYTES, the "
             "bytes of a row: this rank observes");
    settings.mode = lrmoePreloadObserve;
  }
  if (settings.mode == lrmoePreloadOff) settings.report = NULL;
  settings.isIdle = settings.mode <= lrmoePreloadObserve && !settings.report;
}

const struct lrmoePreloadSettings *lrmoePreloadSettings(void) {
  pthread_once(&once, read);
  return &settings;
}
