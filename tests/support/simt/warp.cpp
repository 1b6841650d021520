/* Warp operations: an exchange is complete when every live lane of its mask
 * waits in one with the same mask and operation. */
#include "machine.h"
#include "sanitizer.h"

#include <cstring>

namespace simt {

/* The lanes that take part, from `thread` objects of one warp. */
struct Group {
  Thread *lanes; /* lane 0 of the warp */
  unsigned members;
  const Exchange &of(unsigned lane) const {
    return *lanes[lane].exchange;
  }
};

template <class Visit>
static void forEachLane(unsigned lanes, Visit visit) {
  for (; lanes; lanes &= lanes - 1)
    visit(static_cast<unsigned>(__builtin_ctz(lanes)));
}

static unsigned lowestLane(unsigned lanes) {
  return static_cast<unsigned>(__builtin_ctz(lanes));
}

static uint32_t load32(const Exchange &exchange) {
  uint32_t value;
  __builtin_memcpy(&value, exchange.value, sizeof value);
  return value;
}

static uint64_t load64(const Exchange &exchange) {
  uint64_t value;
  __builtin_memcpy(&value, exchange.value, sizeof value);
  return value;
}

static void store32(const Exchange &exchange, uint32_t value) {
  __builtin_memcpy(exchange.result, &value, sizeof value);
}

static void store64(const Exchange &exchange, uint64_t value) {
  __builtin_memcpy(exchange.result, &value, sizeof value);
}

/* Inlined copies: TSan would see a call of memcpy. */
static void copyValue(const Exchange &to, const Exchange &from) {
  switch (to.bytes) {
  case 4:
    store32(to, load32(from));
    break;
  case 8:
    store64(to, load64(from));
    break;
  default:
    for (int i = 0; i < to.bytes; i++)
      static_cast<volatile char *>(to.result)[i] =
          static_cast<const volatile char *>(from.value)[i];
  }
}

/* The lane that a shuffle reads; its own where CUDA says so. */
static int sourceLane(const Exchange &exchange, int lane) {
  int width = exchange.width;
  int first = lane & ~(width - 1);
  int source = lane;
  switch (exchange.op) {
  case Op::shuffle:
    return first | (exchange.argument & (width - 1));
  case Op::shuffleUp:
    source = lane - exchange.argument;
    return source < first ? lane : source;
  case Op::shuffleDown:
    source = lane + exchange.argument;
    break;
  default:
    source = lane ^ exchange.argument;
    break;
  }
  return source >= first + width ? lane : source;
}

static void shuffle(const Group &group) {
  forEachLane(group.members, [&](unsigned lane) {
    const Exchange &exchange = group.of(lane);
    int source = sourceLane(exchange, static_cast<int>(lane));
    if (source < 0 || source > 31 || !((group.members >> source) & 1))
      fail(exchange.site,
           "lane %u reads from lane %d, which does not take part", lane,
           source);
    copyValue(exchange, group.of(static_cast<unsigned>(source)));
  });
}

static void match(const Group &group, bool all) {
  forEachLane(group.members, [&](unsigned lane) {
    unsigned same = 0;
    forEachLane(group.members, [&](unsigned other) {
      if (load64(group.of(other)) == load64(group.of(lane)))
        same |= 1u << other;
    });
    store64(group.of(lane), all && same != group.members ? 0 : same);
  });
}

static uint32_t combine(Op op, uint32_t sum, uint32_t value) {
  int32_t left = static_cast<int32_t>(sum);
  int32_t right = static_cast<int32_t>(value);
  switch (op) {
  case Op::any:
    return sum || value;
  case Op::all:
    return sum && value;
  case Op::add:
    return sum + value;
  case Op::minSigned:
    return right < left ? value : sum;
  case Op::maxSigned:
    return left < right ? value : sum;
  case Op::minUnsigned:
    return value < sum ? value : sum;
  case Op::maxUnsigned:
    return sum < value ? value : sum;
  case Op::bitAnd:
    return sum & value;
  case Op::bitOr:
    return sum | value;
  default:
    return sum ^ value;
  }
}

static uint32_t ballot(const Group &group) {
  uint32_t lanes = 0;
  forEachLane(group.members, [&](unsigned lane) {
    if (load32(group.of(lane))) lanes |= 1u << lane;
  });
  return lanes;
}

static void reduce(const Group &group, Op op) {
  unsigned first = lowestLane(group.members);
  uint32_t sum = load32(group.of(first));
  if (op == Op::ballot) {
    sum = ballot(group);
  } else {
    if (op == Op::any || op == Op::all) sum = sum != 0;
    forEachLane(group.members & (group.members - 1), [&](unsigned lane) {
      sum = combine(op, sum, load32(group.of(lane)));
    });
  }
  forEachLane(group.members,
              [&](unsigned lane) { store32(group.of(lane), sum); });
}

static void perform(const Group &group) {
  Op op = group.of(lowestLane(group.members)).op;
  switch (op) {
  case Op::sync:
    break;
  case Op::shuffle:
  case Op::shuffleUp:
  case Op::shuffleDown:
  case Op::shuffleXor:
    shuffle(group);
    break;
  case Op::matchAny:
    match(group, false);
    break;
  case Op::matchAll:
    match(group, true);
    break;
  default:
    reduce(group, op);
    break;
  }
}

static void checkAgreement(const Group &group, unsigned mask) {
  unsigned first = lowestLane(group.members);
  const Exchange &lead = group.of(first);
  forEachLane(group.members, [&](unsigned lane) {
    const Exchange &other = group.of(lane);
    if (other.mask != mask)
      fail(other.site,
           "mask mismatch: lane %u waits in %s at %s:%d with %08x and lane %u "
           "in %s at %s:%d with %08x",
           first, lead.site.what, lead.site.file, lead.site.line, lead.mask,
           lane, other.site.what, other.site.file, other.site.line, other.mask);
    if (other.op != lead.op || other.width != lead.width ||
        other.bytes != lead.bytes)
      fail(other.site,
           "divergent warp operation: lane %u waits in %s at %s:%d and lane %u "
           "in %s at %s:%d",
           first, lead.site.what, lead.site.file, lead.site.line, lane,
           other.site.what, other.site.file, other.site.line);
  });
}

static MaskUse &maskUse(Warp &warp, const Exchange &exchange) {
  unsigned i = 0;
  while (i < warp.numMasks && warp.masks[i].mask != exchange.mask)
    i++;
  if (i == maxMasks)
    fail(exchange.site, "TSan builds know %u masks of a warp in a block",
         maxMasks);
  if (i == warp.numMasks) {
    warp.masks[i] = {exchange.mask, 0};
    warp.numMasks++;
  }
  return warp.masks[i];
}

static void complete(Machine &m, Warp &warp, Thread *lanes, unsigned mask) {
  Group group = {lanes, warp.waiting & mask};
  checkAgreement(group, mask);
  perform(group);
  if (tsan) maskUse(warp, group.of(lowestLane(group.members))).rounds++;
  warp.waiting &= ~group.members;
  forEachLane(group.members, [&](unsigned lane) {
    Thread &thread = lanes[lane];
    thread.state = State::ready;
    if (&thread != m.running) makeReady(m, thread);
  });
}

static bool isComplete(const Warp &warp, unsigned mask) {
  unsigned waiting = warp.waiting & mask;
  return waiting && waiting == (warp.alive & mask);
}

void exchangeAfterExit(Machine &m, Thread &thread) {
  Warp &warp = m.warps[thread.warp];
  Thread *lanes = &thread - thread.lane;
  warp.alive &= ~(1u << thread.lane);
  unsigned waiting = warp.waiting;
  while (waiting) {
    const Exchange &exchange = *lanes[lowestLane(waiting)].exchange;
    bool isNamed = exchange.mask >> thread.lane & 1;
    if (isNamed && m.config.strictExit)
      fail(exchange.site,
           "a thread exits while others of its warp wait for it");
    if (isNamed && isComplete(warp, exchange.mask))
      complete(m, warp, lanes, exchange.mask);
    waiting &= warp.waiting & (waiting - 1);
  }
}

void resetWarp(Warp &warp, unsigned numLanes) {
  warp.alive = numLanes == 32 ? ~0u : (1u << numLanes) - 1;
  warp.waiting = 0;
  warp.numMasks = 0;
}

static bool isPowerOfTwo(int width) {
  return width > 0 && width <= 32 && (width & (width - 1)) == 0;
}

void warpExchange(const Exchange &exchange) {
  Machine &m = machine();
  Thread &thread = *m.running;
  Warp &warp = m.warps[thread.warp];
  Thread *lanes = &thread - thread.lane;
  thread.site = exchange.site;
  if (!(exchange.mask >> thread.lane & 1))
    fail(exchange.site, "bad mask: lane %u calls with %08x, which lacks it",
         thread.lane, exchange.mask);
  if (!isPowerOfTwo(exchange.width))
    fail(exchange.site, "bad width %d of a shuffle", exchange.width);
  thread.exchange = &exchange;
  thread.state = State::inExchange;
  void *cell = nullptr;
  if (tsan && exchange.op == Op::sync) {
    MaskUse &use = maskUse(warp, exchange);
    unsigned slot = static_cast<unsigned>(&use - warp.masks);
    cell = m.shared.cell(2 + (thread.warp * maxMasks + slot) * 2 +
                         (use.rounds & 1));
    tsanRelease(cell);
  }
  warp.waiting |= 1u << thread.lane;
  if (isComplete(warp, exchange.mask))
    complete(m, warp, lanes, exchange.mask);
  else
    runOthers(m);
  if (cell) tsanAcquire(cell);
}

} // namespace simt
