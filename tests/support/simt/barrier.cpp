/* __syncthreads and its votes.  All threads must come to the same call. */
#include "machine.h"
#include "sanitizer.h"

#include <cstring>

namespace simt {

static bool isSamePlace(const Site &a, const Site &b) {
  return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

static void addVote(Barrier &barrier, Vote vote, bool predicate) {
  int &tally = barrier.tally[barrier.round & 1];
  switch (vote) {
  case Vote::none:
    break;
  case Vote::count:
    tally += predicate;
    break;
  case Vote::any:
    tally = tally || predicate;
    break;
  case Vote::all:
    tally = (barrier.numWaiting == 0 || tally) && predicate;
    break;
  }
}

void releaseBarrier(Machine &m) {
  m.barrier.numWaiting = 0;
  m.barrier.round++;
  m.barrier.tally[m.barrier.round & 1] = 0;
  madeProgress(m);
  for (unsigned i = 0; i < m.numThreads; i++)
    if (m.threads[i].state == State::atBarrier) makeReady(m, m.threads[i]);
}

int blockBarrier(const Site &site, Vote vote, bool predicate) {
  Machine &m = machine();
  Barrier &barrier = m.barrier;
  Thread &thread = *m.running;
  if (barrier.numWaiting == 0) {
    barrier.site = site;
    barrier.vote = vote;
  }
  thread.site = site;
  if (!isSamePlace(site, barrier.site))
    fail(site,
         "divergent barrier: %u threads wait at %s:%d and this one comes "
         "to %s:%d",
         barrier.numWaiting, barrier.site.file, barrier.site.line, site.file,
         site.line);
  if (vote != barrier.vote)
    fail(site, "divergent barrier: %s and %s", barrier.site.what, site.what);
  thread.state = State::atBarrier;
  unsigned parity = barrier.round & 1;
  addVote(barrier, vote, predicate);
  tsanRelease(m.shared.cell(parity));
  if (++barrier.numWaiting == m.numAlive) releaseBarrier(m);
  runOthers(m);
  tsanAcquire(m.shared.cell(parity));
  return barrier.tally[parity];
}

} // namespace simt
