/* Races between streams: see order.h. */
#include "order.h"

#include "../counters.h"
#include "../device/peers.h"
#include "../lock.h"
#include "../machine.h"
#include "../single.h"
#include "memory.h"

#include <cstring>
#include <deque>
#include <map>
#include <sys/mman.h>

namespace simt {

void clockJoin(Clock &clock, const Clock &other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); i++)
    if (clock[i] < other[i]) clock[i] = other[i];
}

bool clockKnows(const Clock &clock, const Clock &other) {
  for (size_t i = 0; i < other.size(); i++)
    if (other[i] > (i < clock.size() ? clock[i] : 0)) return false;
  return true;
}

/* ---- Operations ---- */

struct StreamName {
  int device;
  uint64_t stream;
};

struct Record {
  const char *what;
  uint32_t stream; /* its place in clocks */
  uint32_t count;  /* in its stream, from 1 */
};

struct Log {
  QuietMutex mutex;
  std::deque<StreamName> streams;
  std::deque<Record> operations;         /* by number, from 1 */
  std::map<const void *, Clock> signals; /* by word */
};

static Log &history() {
  return single<Log>();
}

size_t orderAddStream(int device, uint64_t stream) {
  Log &log = history();
  std::lock_guard<QuietMutex> guard(log.mutex);
  log.streams.push_back({device, stream});
  return log.streams.size() - 1;
}

/* ---- Shadow ---- */

constexpr size_t wordBytes = 4;
constexpr unsigned numReaders = 2;
constexpr size_t pageBytes = 4096;

/* An operation's number and which bytes of the word it touched, as number * 16
 * + mask; 0: none. */
using Mark = uint32_t;

/* Of readers that do not know each other only so many are kept, and of writers
 * of other bytes of a word the last: then a race may be missed, never made
 * up. */
struct Word {
  Mark writer;
  Mark readers[numReaders];
};

struct Shadow {
  Word words[1];
};

static size_t shadowBytes(size_t bytes) {
  return (bytes + wordBytes - 1) / wordBytes * sizeof(Word);
}

/* Pages come when they are touched. */
Shadow *shadowMake(size_t bytes) {
  void *made = mmap(nullptr, shadowBytes(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return made == MAP_FAILED ? nullptr : static_cast<Shadow *>(made);
}

void shadowFree(Shadow *shadow, size_t bytes) {
  if (shadow) munmap(shadow, shadowBytes(bytes));
}

void *shadowAt(Shadow *shadow, size_t offset) {
  return shadow->words + offset / wordBytes;
}

/* ---- The running operation ---- */

struct KnownPage {
  uintptr_t page; /* its number; 0: none */
  Word *words;    /* of its first byte; nullptr: nobody's memory */
};

constexpr size_t numKnownPages = 64;

struct Current {
  uint32_t number; /* 0: none runs */
  uint32_t known;  /* an operation that it knows: mostly the next one too */
  Clock *clock;    /* of its stream, whose front it is */
  KnownPage pages[numKnownPages];
};

static thread_local Current current __attribute__((tls_model("initial-exec")));
static thread_local std::string race;

void orderBegin(const char *what, size_t stream, Clock &clock) {
  Log &log = history();
  std::lock_guard<QuietMutex> guard(log.mutex);
  log.operations.push_back(
      {what, static_cast<uint32_t>(stream), clock[stream]});
  current.number = static_cast<uint32_t>(log.operations.size());
  current.clock = &clock;
  current.known = current.number;
  race.clear();
  memset(current.pages, 0, sizeof current.pages);
}

std::string orderEnd() {
  current.number = 0;
  return std::move(race);
}

void orderRelease(const void *word) {
  Log &log = history();
  std::lock_guard<QuietMutex> guard(log.mutex);
  if (current.number) clockJoin(log.signals[word], *current.clock);
}

void orderAcquire(const void *word) {
  Log &log = history();
  std::lock_guard<QuietMutex> guard(log.mutex);
  auto found = log.signals.find(word);
  if (current.number && found != log.signals.end())
    clockJoin(*current.clock, found->second);
}

/* Whether an operation is known to have ended before this one begins. */
static bool isKnown(uint32_t number) {
  if (number == current.known || number == current.number || number == 0)
    return true;
  Log &log = history();
  std::lock_guard<QuietMutex> guard(log.mutex);
  const Record &record = log.operations[number - 1];
  const Clock &clock = *current.clock;
  if (record.stream >= clock.size() || clock[record.stream] < record.count)
    return false;
  current.known = number;
  return true;
}

static std::string nameOf(uint32_t number) {
  Log &log = history();
  std::lock_guard<QuietMutex> guard(log.mutex);
  const Record &record = log.operations[number - 1];
  const StreamName &stream = log.streams[record.stream];
  return kernelName(record.what) + " on stream " +
         std::to_string(stream.stream) + " of device " +
         std::to_string(stream.device);
}

static void keepRace(Mark other, const char *otherDid, bool isWrite,
                     const void *address) {
  race = "race between streams: " + nameOf(current.number) +
         (isWrite ? " writes what " : " reads what ") + nameOf(other / 16) +
         " " + otherDid + ", " + memoryPlace(address) +
         ", and nothing says which comes first: an event is missing";
}

static bool conflicts(Mark mark, Mark mine) {
  return (mark & mine & 15) && !isKnown(mark / 16);
}

/* A place for a reader: its own, a free one, that of one whose end it knows,
 * or the last. */
static Mark &placeOf(Word &word) {
  for (Mark &reader : word.readers)
    if (reader / 16 == current.number || isKnown(reader / 16)) return reader;
  return word.readers[numReaders - 1];
}

/* False at a race. */
static bool touchWord(Word &word, Mark mine, bool isWrite,
                      const void *address) {
  if (conflicts(word.writer, mine)) {
    keepRace(word.writer, "writes", isWrite, address);
    return false;
  }
  if (!isWrite) {
    Mark &place = placeOf(word);
    place = place / 16 == current.number ? place | mine : mine;
    return true;
  }
  for (Mark &reader : word.readers) {
    if (conflicts(reader, mine)) {
      keepRace(reader, "reads", true, address);
      return false;
    }
    reader = 0;
  }
  bool isOwn = word.writer / 16 == current.number;
  word.writer = isOwn ? word.writer | mine : mine;
  return true;
}

/* The shadow of an address's page, as this operation knows it. */
static Word *wordsOf(uintptr_t page) {
  KnownPage &known = current.pages[page % numKnownPages];
  if (known.page != page) {
    known.page = page;
    known.words = static_cast<Word *>(memoryShadowOfPage(page * pageBytes));
  }
  return known.words;
}

const char *orderTouch(const void *start, size_t bytes, bool isWrite) {
  uintptr_t at = reinterpret_cast<uintptr_t>(start);
  uintptr_t end = at + bytes;
  if (!current.number) return nullptr;
  while (at < end) {
    uintptr_t word = at / wordBytes * wordBytes;
    unsigned first = static_cast<unsigned>(at - word);
    unsigned last = end - word < wordBytes ? static_cast<unsigned>(end - word)
                                           : static_cast<unsigned>(wordBytes);
    Mark mask = (1u << last) - (1u << first);
    Word *words = wordsOf(at / pageBytes);
    if (words && !touchWord(words[at % pageBytes / wordBytes],
                            current.number * 16 + mask, isWrite,
                            reinterpret_cast<const void *>(at)))
      return race.c_str();
    at = word + wordBytes;
  }
  return nullptr;
}

/* Of kernels: device/access.h. */
void noteAccess(const Site &site, const void *start, size_t bytes,
                bool isWrite) {
  const char *found = orderTouch(start, bytes, isWrite);
  if (found) fail(site, "%s", found);
}

} // namespace simt

using namespace simt;

extern "C" void lrmoeSimtTouch(const void *start, size_t bytes, int isWrite) {
  (void)orderTouch(start, bytes, isWrite != 0);
}

extern "C" void lrmoeSimtRelease(const void *channel) {
  orderRelease(channel);
}

extern "C" void lrmoeSimtAcquire(const void *channel) {
  orderAcquire(channel);
}
