/* Layout and creation of the shared segment: see segment.h. */
#include "collectives/cpu/segment.h"

#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t roundUp(size_t value, size_t step) {
  return (value + step - 1) / step * step;
}

static size_t seatsOffset(void) {
  return roundUp(sizeof(struct lrmoeSegment), lrmoePageBytes);
}

static size_t channelsOffset(int64_t numRanks) {
  return roundUp(seatsOffset() + (size_t)numRanks * sizeof(struct lrmoeSeat),
                 lrmoePageBytes);
}

static size_t ringsOffset(int64_t numRanks) {
  size_t numChannels = (size_t)numRanks * (size_t)numRanks;
  return roundUp(channelsOffset(numRanks) +
                     numChannels * sizeof(struct lrmoeChannel),
                 lrmoePageBytes);
}

size_t lrmoeSegmentBytes(int64_t numRanks, int64_t ringBytes) {
  size_t numChannels = (size_t)numRanks * (size_t)numRanks;
  return ringsOffset(numRanks) + numChannels * (size_t)ringBytes;
}

struct lrmoeSeat *lrmoeSegmentSeat(struct lrmoeSegment *segment, int rank) {
  void *seats = (char *)segment + seatsOffset();
  return (struct lrmoeSeat *)seats + rank;
}

static size_t channelIndex(const struct lrmoeSegment *segment, int from,
                           int to) {
  return (size_t)from * (size_t)segment->numRanks + (size_t)to;
}

struct lrmoeChannel *lrmoeSegmentChannel(struct lrmoeSegment *segment, int from,
                                         int to) {
  void *channels = (char *)segment + channelsOffset(segment->numRanks);
  return (struct lrmoeChannel *)channels + channelIndex(segment, from, to);
}

char *lrmoeSegmentRing(struct lrmoeSegment *segment, int from, int to) {
  return (char *)segment + ringsOffset(segment->numRanks) +
         channelIndex(segment, from, to) * (size_t)segment->ringBytes;
}

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* Linux 6.3; some systems insist on it */
#endif

lrmoeResult_t lrmoeMemfdCreate(const char *name, size_t bytes, int *fd) {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int made = memfd_create(name, flags | MFD_NOEXEC_SEAL);
  if (made < 0 && errno == EINVAL) made = memfd_create(name, flags);
  if (made < 0)
    return LRMOE_FAIL(lrmoeSystemError, "memfd_create: %s", strerror(errno));
  /* A file that shrinks would turn a peer's read into SIGBUS. */
  if (ftruncate(made, (off_t)bytes) ||
      fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
    int error = errno;
    close(made);
    return LRMOE_FAIL(lrmoeSystemError, "cannot size a memfd to %zu B: %s",
                      bytes, strerror(error));
  }
  *fd = made;
  return lrmoeSuccess;
}

int64_t lrmoeRingBytes(void) {
  int64_t wanted = lrmoeParamGet(lrmoeParamRingBytes);
  int64_t bytes = lrmoePageBytes;
  while (bytes < wanted)
    bytes *= 2;
  return bytes;
}
