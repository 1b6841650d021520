/* Bytes and launches per kernel name: see simt.h. */
#include "counters.h"

#include "lock.h"
#include "single.h"

#include <algorithm>
#include <map>

namespace simt {

struct CounterTable {
  QuietMutex mutex;
  std::map<std::string, simtCounters> kernels;
};

static CounterTable &table() {
  return single<CounterTable>();
}

std::string kernelName(const char *written) {
  std::string name = written;
  name.erase(0, name.find_first_not_of("( &"));
  name.erase(std::min(name.find_first_of("<) "), name.size()));
  size_t scope = name.rfind(':');
  return scope == std::string::npos ? name : name.substr(scope + 1);
}

void addCounters(const char *written, const simtCounters &counters) {
  CounterTable &all = table();
  std::lock_guard<QuietMutex> guard(all.mutex);
  simtCounters &sum = all.kernels[kernelName(written)];
  sum.launches += counters.launches;
  sum.threads += counters.threads;
  sum.bytesLoaded += counters.bytesLoaded;
  sum.bytesStored += counters.bytesStored;
}

} // namespace simt

using namespace simt;

extern "C" void simtGetCounters(const char *kernel,
                                struct simtCounters *counters) {
  CounterTable &all = table();
  std::lock_guard<QuietMutex> guard(all.mutex);
  auto found = all.kernels.find(kernel);
  *counters = found == all.kernels.end() ? simtCounters{} : found->second;
}

extern "C" void simtVisitCounters(void (*visit)(const char *kernel,
                                                const struct simtCounters *what,
                                                void *user),
                                  void *user) {
  CounterTable &all = table();
  std::map<std::string, simtCounters> copy;
  {
    std::lock_guard<QuietMutex> guard(all.mutex);
    copy = all.kernels;
  }
  for (const auto &kernel : copy)
    visit(kernel.first.c_str(), &kernel.second, user);
}

extern "C" void simtResetCounters(void) {
  CounterTable &all = table();
  std::lock_guard<QuietMutex> guard(all.mutex);
  all.kernels.clear();
}
