/* The process's configuration and reports: see simt.h. */
#include "config.h"

#include "lock.h"
#include "single.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace simt {

constexpr uint64_t defaultPreemption = 4;
constexpr uint64_t defaultMaxSteps = uint64_t{1} << 28;

[[noreturn]] static void refuse(const char *name, const char *value) {
  fprintf(stderr, "simt: %s=%s is not understood\n", name, value);
  exit(1);
}

uint64_t environmentNumber(const char *name, uint64_t assumed) {
  const char *value = getenv(name);
  if (!value || !*value) return assumed;
  char *end;
  uint64_t number = strtoull(value, &end, 10);
  if (*end || *value == '-') refuse(name, value);
  return number;
}

static simtOrder environmentOrder(simtOrder assumed) {
  const char *name = "LRMOE_SIMT_ORDER";
  const char *value = getenv(name);
  if (!value || !*value) return assumed;
  if (!strcmp(value, "fifo")) return simtOrderFifo;
  if (!strcmp(value, "lifo")) return simtOrderLifo;
  if (strcmp(value, "random") != 0) refuse(name, value);
  return simtOrderRandom;
}

static void setOrder(simtConfig *config, simtOrder order, uint64_t seed) {
  config->threads = config->blocks = config->streams = order;
  config->seed = seed;
  config->preemptOneIn = order == simtOrderRandom ? defaultPreemption : 0;
}

static simtConfig startConfig() {
  simtConfig config = {};
  const char *seed = getenv("LRMOE_SIMT_SEED");
  simtOrder assumed = seed && *seed ? simtOrderRandom : simtOrderFifo;
  setOrder(&config, environmentOrder(assumed),
           environmentNumber("LRMOE_SIMT_SEED", 0));
  config.maxSteps = defaultMaxSteps;
  return config;
}

struct Settings {
  QuietMutex mutex;
  simtConfig config = startConfig();
  std::string report;
  std::string shown; /* what simtLastReport gave */
};

static Settings &settings() {
  return single<Settings>();
}

simtConfig currentConfig() {
  Settings &s = settings();
  std::lock_guard<QuietMutex> guard(s.mutex);
  return s.config;
}

void report(const std::string &text) {
  Settings &s = settings();
  std::lock_guard<QuietMutex> guard(s.mutex);
  s.report = text;
  if (s.config.quiet) return;
  fprintf(stderr, "simt: %s\n", text.c_str());
  fflush(stderr);
}

} // namespace simt

using namespace simt;

extern "C" void simtGetConfig(struct simtConfig *config) {
  *config = currentConfig();
}

extern "C" void simtSetConfig(const struct simtConfig *config) {
  Settings &s = settings();
  std::lock_guard<QuietMutex> guard(s.mutex);
  s.config = *config;
}

extern "C" void simtSetOrder(enum simtOrder order, uint64_t seed) {
  Settings &s = settings();
  std::lock_guard<QuietMutex> guard(s.mutex);
  setOrder(&s.config, order, seed);
}

extern "C" const char *simtLastReport(void) {
  Settings &s = settings();
  std::lock_guard<QuietMutex> guard(s.mutex);
  s.shown = s.report;
  return s.shown.c_str();
}
