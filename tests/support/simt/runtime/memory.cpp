/* Device memory: see memory.h. */
#include "memory.h"

#include "../config.h"
#include "../lock.h"
#include "../sanitizer.h"
#include "../simt.h"
#include "../single.h"
#include "crash.h"
#include "gate.h"
#include "order.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace simt {

constexpr size_t alignment = 256;
constexpr unsigned char fill = 0xA5;
/* Freed addresses are kept out of use until there are so many. */
constexpr size_t maxFreedBytes = size_t{64} << 30;
constexpr size_t maxFreedCount = 8192;
constexpr uint64_t defaultDeviceBytes = uint64_t{8} << 30;

struct Allocation {
  char *start; /* what the user has */
  size_t bytes;
  int device;
  bool isLive;
  char *pages; /* between the guards */
  size_t pageBytes;
  Shadow *shadow; /* of the pages */
};

static void listLeaks();

struct Registry {
  Registry() {
    if (environmentNumber("LRMOE_SIMT_LEAKS", 0)) atexit(listLeaks);
    crashReportsInstall();
  }
  QuietRecursiveMutex mutex;
  std::map<const char *, Allocation> all; /* by end of the second guard */
  std::deque<const char *> freed;         /* keys, the oldest first */
  size_t freedBytes = 0;
  std::map<int, size_t> used; /* per device */
  int64_t numLive = 0;
  int numOpen = 0;
  size_t guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
};

using Guard = std::lock_guard<QuietRecursiveMutex>;

static Registry &registry() {
  return single<Registry>();
}

static const char *kindName(const Allocation &a) {
  return a.device == pinnedHost ? "pinned memory" : "device memory";
}

static void listLeaks() {
  Registry &r = registry();
  Guard guard(r.mutex);
  for (const auto &entry : r.all) {
    const Allocation &a = entry.second;
    if (a.isLive)
      fprintf(stderr, "simt: leak: %zu bytes at %p of %s\n", a.bytes,
              static_cast<void *>(a.start), kindName(a));
  }
}

static size_t roundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

static const char *keyOf(const Registry &r, const Allocation &a) {
  return a.pages + a.pageBytes + r.guard;
}

/* The allocation whose pages or guards have the address. */
static const Allocation *find(const Registry &r, const void *address) {
  const char *at = static_cast<const char *>(address);
  auto found = r.all.upper_bound(at);
  if (found == r.all.end()) return nullptr;
  const Allocation &a = found->second;
  return at >= a.pages - r.guard ? &a : nullptr;
}

static void protect(const Allocation &a, bool open) {
  if (a.device == pinnedHost) return;
  if (mprotect(a.pages, a.pageBytes, open ? PROT_READ | PROT_WRITE : PROT_NONE))
    perror("simt: mprotect");
}

static uint64_t capacity() {
  static uint64_t bytes =
      environmentNumber("LRMOE_SIMT_MEMORY", defaultDeviceBytes);
  return bytes;
}

static size_t slackAfter(const Allocation &a) {
  return static_cast<size_t>(a.pages + a.pageBytes - (a.start + a.bytes));
}

/* Addresses of one device in flat memory. */
constexpr size_t flatBytes = size_t{4} << 30;
constexpr int maxFlatDevices = 16;

/* The next address for so many bytes, or nullptr. */
static char *takeFlat(size_t bytes, int device) {
  static char *flat = nullptr;
  static size_t used[maxFlatDevices];
  if (!flat) {
    void *base = mmap(nullptr, flatBytes * maxFlatDevices, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    flat = static_cast<char *>(base);
  }
  if (device >= maxFlatDevices || bytes > flatBytes - used[device])
    return nullptr;
  char *place = flat + static_cast<size_t>(device) * flatBytes + used[device];
  used[device] += bytes;
  return place;
}

void *memoryAllocate(size_t bytes, int device, bool isFlat) {
  Registry &r = registry();
  Guard guard(r.mutex);
  if (device != pinnedHost && bytes > capacity() - r.used[device])
    return nullptr;
  size_t pageBytes = roundUp(roundUp(bytes, alignment), r.guard);
  char *place = isFlat ? takeFlat(pageBytes + 2 * r.guard, device) : nullptr;
  void *base = mmap(place, pageBytes + 2 * r.guard, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
                        (place ? MAP_FIXED : 0),
                    -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char *pages = static_cast<char *>(base) + r.guard;
  char *start = pages + pageBytes - roundUp(bytes, alignment);
  Allocation a = {
      start, bytes, device, true, pages, pageBytes, shadowMake(pageBytes)};
  mprotect(pages, pageBytes, PROT_READ | PROT_WRITE);
  memset(pages, fill, pageBytes);
  asanPoison(pages, static_cast<size_t>(start - pages));
  asanPoison(start + bytes, slackAfter(a));
  if (gateHasKey() && device != pinnedHost)
    gateCover(pages, pageBytes);
  else if (r.numOpen == 0)
    protect(a, false);
  r.all[keyOf(r, a)] = a;
  r.used[device] += bytes;
  r.numLive++;
  return start;
}

static bool isFill(const char *start, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (static_cast<unsigned char>(start[i]) != fill) return false;
  return true;
}

/* The bytes around it, which belong to nobody. */
static void checkSlack(const Allocation &a) {
  if (gateHasKey())
    gateOpen();
  else
    protect(a, true);
  asanUnpoison(a.pages, a.pageBytes);
  if (!isFill(a.start + a.bytes, slackAfter(a)))
    report("out of bounds: something wrote past the end of device memory of " +
           std::to_string(a.bytes) + " bytes");
  if (!isFill(a.pages, static_cast<size_t>(a.start - a.pages)))
    report("out of bounds: something wrote before the start of device memory "
           "of " +
           std::to_string(a.bytes) + " bytes");
  if (gateHasKey()) gateClose();
}

static void forgetOldest(Registry &r) {
  auto oldest = r.all.find(r.freed.front());
  const Allocation &a = oldest->second;
  munmap(a.pages - r.guard, a.pageBytes + 2 * r.guard);
  r.freedBytes -= a.pageBytes;
  r.freed.pop_front();
  r.all.erase(oldest);
}

static void freeAllocation(Registry &r, Allocation &a) {
  checkSlack(a);
  r.used[a.device] -= a.bytes;
  r.numLive--;
  a.isLive = false;
  shadowFree(a.shadow, a.pageBytes);
  a.shadow = nullptr;
  /* No page is kept, but nobody gets these addresses yet. */
  void *gone =
      mmap(a.pages, a.pageBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (gone == MAP_FAILED) perror("simt: mmap");
  r.freed.push_back(keyOf(r, a));
  r.freedBytes += a.pageBytes;
  while (r.freedBytes > maxFreedBytes || r.freed.size() > maxFreedCount)
    forgetOldest(r);
}

bool memoryFree(void *start, bool isPinned) {
  Registry &r = registry();
  Guard guard(r.mutex);
  const Allocation *a = find(r, start);
  if (!a || !a->isLive || a->start != start) return false;
  if ((a->device == pinnedHost) != isPinned) return false;
  freeAllocation(r, *const_cast<Allocation *>(a));
  return true;
}

bool memoryOwner(const void *address, int *device) {
  Registry &r = registry();
  Guard guard(r.mutex);
  const Allocation *a = find(r, address);
  if (!a) return false;
  *device = a->device;
  return true;
}

bool memoryIsLive(const void *address, size_t bytes) {
  Registry &r = registry();
  Guard guard(r.mutex);
  const Allocation *a = find(r, address);
  const char *at = static_cast<const char *>(address);
  return a && a->isLive && at >= a->start && bytes <= a->bytes &&
         at <= a->start + (a->bytes - bytes);
}

std::string memoryDescribe(const void *address) {
  Registry &r = registry();
  if (!r.mutex.try_lock()) return "";
  Guard guard(r.mutex, std::adopt_lock);
  const Allocation *a = find(r, address);
  if (!a) return "";
  const char *at = static_cast<const char *>(address);
  const char *kind = kindName(*a);
  char text[200];
  if (!a->isLive)
    snprintf(text, sizeof text,
             "use after free: byte %td of freed %s of %zu bytes", at - a->start,
             kind, a->bytes);
  else if (at >= a->start + a->bytes)
    snprintf(text, sizeof text,
             "out of bounds: %td bytes past the end of %s of %zu bytes",
             at - (a->start + a->bytes), kind, a->bytes);
  else if (at < a->start)
    snprintf(text, sizeof text,
             "out of bounds: %td bytes before the start of %s of %zu bytes",
             a->start - at, kind, a->bytes);
  else
    snprintf(text, sizeof text, "host code touches byte %td of %s of %zu bytes",
             at - a->start, kind, a->bytes);
  return text;
}

std::string memoryCheck(const void *address, size_t bytes) {
  if (memoryIsLive(address, bytes)) return "";
  Registry &r = registry();
  Guard guard(r.mutex);
  if (!memoryIsLive(address, 1)) {
    std::string text = memoryDescribe(address);
    return text.empty() ? "not in device memory" : text;
  }
  const Allocation &a = *find(r, address);
  char text[200];
  snprintf(text, sizeof text,
           "out of bounds: %zu bytes from byte %td of %s of %zu bytes", bytes,
           static_cast<const char *>(address) - a.start, kindName(a), a.bytes);
  return text;
}

size_t memoryBytes(const void *start) {
  Registry &r = registry();
  Guard guard(r.mutex);
  const Allocation *a = find(r, start);
  return a && a->isLive && a->start == start ? a->bytes : 0;
}

std::string memoryPlace(const void *address) {
  Registry &r = registry();
  Guard guard(r.mutex);
  const Allocation *a = find(r, address);
  if (!a) return "nobody's memory";
  return "byte " +
         std::to_string(static_cast<const char *>(address) - a->start) +
         " of " + kindName(*a) + " of " + std::to_string(a->bytes) + " bytes";
}

void *memoryShadowOfPage(uintptr_t page) {
  Registry &r = registry();
  Guard guard(r.mutex);
  const char *at = reinterpret_cast<const char *>(page);
  const Allocation *a = find(r, at);
  bool isInside = a && a->isLive && a->shadow && at >= a->pages &&
                  at < a->pages + a->pageBytes;
  return isInside ? shadowAt(a->shadow, static_cast<size_t>(at - a->pages))
                  : nullptr;
}

void memoryInfo(int device, size_t *freeBytes, size_t *totalBytes) {
  Registry &r = registry();
  Guard guard(r.mutex);
  *totalBytes = capacity();
  *freeBytes = capacity() - r.used[device];
}

void memoryReset(int device) {
  Registry &r = registry();
  Guard guard(r.mutex);
  for (;;) {
    auto next = r.all.begin();
    while (next != r.all.end() &&
           !(next->second.isLive && next->second.device == device))
      ++next;
    if (next == r.all.end()) return;
    freeAllocation(r, next->second);
  }
}

static void setOpen(Registry &r, bool open) {
  for (const auto &entry : r.all)
    if (entry.second.isLive) protect(entry.second, open);
}

} // namespace simt

using namespace simt;

extern "C" void simtOpenDevice(void) {
  if (gateHasKey()) return gateOpen();
  Registry &r = registry();
  Guard guard(r.mutex);
  if (r.numOpen++ == 0) setOpen(r, true);
}

extern "C" void simtCloseDevice(void) {
  if (gateHasKey()) return gateClose();
  Registry &r = registry();
  Guard guard(r.mutex);
  if (--r.numOpen == 0) setOpen(r, false);
}

extern "C" int64_t simtGetBytesInUse(void) {
  Registry &r = registry();
  Guard guard(r.mutex);
  int64_t bytes = 0;
  for (const auto &device : r.used)
    if (device.first != pinnedHost)
      bytes += static_cast<int64_t>(device.second);
  return bytes;
}

extern "C" int64_t simtGetAllocations(void) {
  Registry &r = registry();
  Guard guard(r.mutex);
  return r.numLive;
}
