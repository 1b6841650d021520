/* Joining, the side of rank 0: see bootstrap.h.
 *
 * Connections are served together, as far as each has come, so that a stranger
 * who connects and says nothing, or the wrong thing, holds nobody up.  A
 * connection that is not yet authentic is dropped when it errs and when it is
 * the oldest of too many (a rank that this happens to comes again); an
 * authentic one that errs fails the joining for all, with the reason. */
#include "collectives/cpu/bootstrap.h"
#include "collectives/cpu/fault.h"
#include "collectives/cpu/secret.h"
#include "collectives/cpu/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
  maxStrangers = 64
};

/* A connection whose other end has not proved anything yet. */
struct stranger {
  int socket;
  struct lrmoeNote challenge;
};

struct guest {
  int socket; /* -1: has not come */
  int heapFd;
  struct lrmoeNote join;
  int isReady;
};

struct root {
  struct ncclComm *comm;
  const lrmoeUniqueId *id;
  int listener;
  int64_t deadlineNs;   /* the earliest of all ranks */
  struct guest *guests; /* [numRanks]; [0] is rank 0 itself */
  int numGuests;        /* that have come, rank 0 included */
  struct stranger strangers[maxStrangers]; /* oldest first */
  int numStrangers;
  struct pollfd *polls; /* [1 + maxStrangers + numRanks] */
};

/* Takes a stranger off the list; its socket is the caller's. */
static int takeStranger(struct root *root, int index) {
  int socket = root->strangers[index].socket;
  root->numStrangers--;
  memmove(&root->strangers[index], &root->strangers[index + 1],
          (size_t)(root->numStrangers - index) * sizeof *root->strangers);
  return socket;
}

static void dropStranger(struct root *root, int index) {
  close(takeStranger(root, index));
}

/* Room for one more: the oldest that has said nothing goes first. */
static void makeRoom(struct root *root) {
  int silent = 0;
  while (silent < root->numStrangers && root->strangers[silent].challenge.kind)
    silent++;
  dropStranger(root, silent < root->numStrangers ? silent : 0);
}

static void acceptStranger(struct root *root) {
  int socket =
      accept4(root->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return;
  if (!lrmoeNoteIsSameUser(socket)) {
    close(socket);
    return;
  }
  if (root->numStrangers == maxStrangers) makeRoom(root);
  struct stranger *stranger = &root->strangers[root->numStrangers++];
  memset(stranger, 0, sizeof *stranger);
  stranger->socket = socket;
}

static lrmoeResult_t checkJoin(const struct root *root,
                               const struct lrmoeNote *join) {
  if (join->version != LRMOE_VERSION)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "rank %d has version %u of the library, rank 0 has %d",
                      join->rank, join->version, LRMOE_VERSION);
  if (join->numRanks != root->comm->numRanks)
    return LRMOE_FAIL(lrmoeInvalidUsage,
                      "rank %d says that there are %d ranks, rank 0 says %d",
                      join->rank, join->numRanks, root->comm->numRanks);
  if (join->rank < 0 || join->rank >= root->comm->numRanks)
    return LRMOE_FAIL(lrmoeInvalidUsage, "there is no rank %d of %d",
                      join->rank, root->comm->numRanks);
  if (join->rank == 0 || root->guests[join->rank].socket >= 0)
    return LRMOE_FAIL(lrmoeInvalidUsage, "rank %d has joined twice",
                      join->rank);
  return lrmoeSuccess;
}

/* Who knows the id has come.  One that does not fit is told why, like all. */
static lrmoeResult_t admit(struct root *root, int socket,
                           const struct lrmoeNote *join, int heapFd) {
  lrmoeResult_t result = checkJoin(root, join);
  if (result != lrmoeSuccess) {
    struct lrmoeNote note = lrmoeNoteFail(result);
    lrmoeNoteTrySend(socket, &note, -1);
    close(socket);
    close(heapFd);
    return result;
  }
  struct guest *guest = &root->guests[join->rank];
  guest->socket = socket;
  guest->heapFd = heapFd;
  guest->join = *join;
  root->numGuests++;
  int64_t theirs = lrmoeNowNs() + join->patienceMs * 1000000;
  if (theirs < root->deadlineNs) root->deadlineNs = theirs;
  return lrmoeSuccess;
}

static lrmoeResult_t challenge(struct root *root, struct stranger *stranger,
                               const struct lrmoeNote *hello) {
  struct lrmoeNote *note = &stranger->challenge;
  *note = lrmoeNoteMake(lrmoeNoteChallenge);
  memcpy(note->nonces[0], hello->nonces[0], sizeof note->nonces[0]);
  LRMOE_CHECK(lrmoeSecretRandom(note->nonces[1], sizeof note->nonces[1]));
  lrmoeNoteSign(root->id, note);
  lrmoeNoteTrySend(stranger->socket, note, -1); /* if not, it will hang up */
  return lrmoeSuccess;
}

/* What one stranger says. */
static lrmoeResult_t hear(struct root *root, int index) {
  struct stranger *stranger = &root->strangers[index];
  struct lrmoeNote note;
  int fd = -1;
  enum lrmoeNoteEnd end = lrmoeNoteTake(stranger->socket, &note, &fd);
  if (end == lrmoeNoteNone) return lrmoeSuccess;
  int isCame = end == lrmoeNoteCame;
  int isChallenged = stranger->challenge.kind == lrmoeNoteChallenge;
  int isHello = isCame && !isChallenged && note.kind == lrmoeNoteHello;
  int isJoin =
      isCame && isChallenged && note.kind == lrmoeNoteJoin && fd >= 0 &&
      !memcmp(note.nonces, stranger->challenge.nonces, sizeof note.nonces) &&
      lrmoeNoteIsSigned(root->id, &note);
  if (isJoin) return admit(root, takeStranger(root, index), &note, fd);
  if (fd >= 0) close(fd);
  if (!isHello) {
    dropStranger(root, index);
    return lrmoeSuccess;
  }
  return challenge(root, stranger, &note);
}

/* A guest says nothing until it is ready, unless it fails. */
static lrmoeResult_t hearGuest(struct root *root, int rank) {
  struct guest *guest = &root->guests[rank];
  struct lrmoeNote note;
  int fd = -1;
  enum lrmoeNoteEnd end = lrmoeNoteTake(guest->socket, &note, &fd);
  if (fd >= 0) close(fd);
  if (end == lrmoeNoteNone) return lrmoeSuccess;
  if (end == lrmoeNoteClosed)
    return LRMOE_FAIL(lrmoeRemoteError, "rank %d has died while joining", rank);
  if (note.kind == lrmoeNoteFailure)
    return LRMOE_FAIL(lrmoeRemoteError, "rank %d has failed: %s", rank,
                      note.text);
  guest->isReady = note.kind == lrmoeNoteReady;
  return lrmoeSuccess;
}

/* One look at everybody, for at most the time that is left. */
static lrmoeResult_t serve(struct root *root) {
  int numRanks = root->comm->numRanks, numPolls = 0;
  root->polls[numPolls++] = (struct pollfd){root->listener, POLLIN, 0};
  for (int i = 0; i < maxStrangers; i++) {
    int socket = i < root->numStrangers ? root->strangers[i].socket : -1;
    root->polls[numPolls++] = (struct pollfd){socket, POLLIN, 0};
  }
  for (int rank = 0; rank < numRanks; rank++)
    root->polls[numPolls++] =
        (struct pollfd){root->guests[rank].socket, POLLIN, 0};
  poll(root->polls, (nfds_t)numPolls, lrmoeNoteLeftMs(root->deadlineNs));
  const struct pollfd *polls = root->polls + 1 + maxStrangers;
  for (int rank = 1; rank < numRanks; rank++)
    if (polls[rank].revents) LRMOE_CHECK(hearGuest(root, rank));
  for (int i = root->numStrangers - 1; i >= 0; i--)
    if (root->polls[1 + i].revents) LRMOE_CHECK(hear(root, i));
  if (root->polls[0].revents) acceptStranger(root);
  return lrmoeSuccess;
}

/* " 2, 3 and 5": the ranks that have not come (or are not ready). */
static void listMissing(const struct root *root, char *text, size_t bytes) {
  size_t used = 0;
  for (int rank = 1; rank < root->comm->numRanks && used < bytes; rank++) {
    const struct guest *guest = &root->guests[rank];
    if (guest->socket >= 0 &&
        (root->numGuests < root->comm->numRanks || guest->isReady))
      continue;
    used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                             used ? ", " : "", rank);
  }
}

static lrmoeResult_t failMissing(const struct root *root, const char *what) {
  char missing[200] = "";
  listMissing(root, missing, sizeof missing);
  return LRMOE_FAIL(
      lrmoeRemoteError, "of %d ranks these have not %s within %lld ms: %s",
      root->comm->numRanks, what, (long long)root->comm->timeoutMs, missing);
}

static lrmoeResult_t collectGuests(struct root *root) {
  while (root->numGuests < root->comm->numRanks) {
    if (lrmoeNowNs() > root->deadlineNs) return failMissing(root, "come");
    LRMOE_CHECK(serve(root));
  }
  return lrmoeSuccess;
}

static int numReady(const struct root *root) {
  int count = 1;
  for (int rank = 1; rank < root->comm->numRanks; rank++)
    count += root->guests[rank].isReady;
  return count;
}

static lrmoeResult_t collectReady(struct root *root) {
  while (numReady(root) < root->comm->numRanks) {
    if (lrmoeNowNs() > root->deadlineNs) return failMissing(root, "answered");
    LRMOE_CHECK(serve(root));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t tellGuest(const struct root *root, int rank,
                               const struct lrmoeNote *note, int fd) {
  char who[32];
  snprintf(who, sizeof who, "rank %d", rank);
  return lrmoeNoteSend(root->guests[rank].socket, note, fd, root->deadlineNs,
                       who);
}

static lrmoeResult_t tellGuests(const struct root *root,
                                const struct lrmoeNote *note, int fd) {
  for (int rank = 1; rank < root->comm->numRanks; rank++)
    LRMOE_CHECK(tellGuest(root, rank, note, fd));
  return lrmoeSuccess;
}

/* Makes the segment, maps it, and hands it and all heaps to the guests. */
static lrmoeResult_t handOutSegment(struct root *root) {
  struct ncclComm *comm = root->comm;
  int64_t ringBytes = lrmoeRingBytes();
  struct lrmoeNote note = lrmoeNoteMake(lrmoeNoteSegment);
  note.bytes = (int64_t)lrmoeSegmentBytes(comm->numRanks, ringBytes);
  LRMOE_CHECK(lrmoeSecretRandom(note.token, sizeof note.token));
  int fd = -1;
  LRMOE_CHECK(lrmoeMemfdCreate("lrmoe-comm", (size_t)note.bytes, &fd));
  /* The mapping's layout comes from the header: write it first. */
  struct lrmoeSegment header = {0};
  header.numRanks = comm->numRanks;
  header.ringBytes = ringBytes;
  if (pwrite(fd, &header, sizeof header, 0) != (ssize_t)sizeof header) {
    close(fd);
    return LRMOE_FAIL(lrmoeSystemError, "cannot write a memfd: %s",
                      strerror(errno));
  }
  LRMOE_CHECK(lrmoeBootstrapMapSegment(comm, &note, fd));
  return tellGuests(root, &note, fd);
}

static lrmoeResult_t handOutHeaps(struct root *root) {
  for (int rank = 0; rank < root->comm->numRanks; rank++) {
    struct guest *guest = &root->guests[rank];
    guest->join.kind = lrmoeNoteHeap;
    LRMOE_CHECK(tellGuests(root, &guest->join, guest->heapFd));
    int fd = guest->heapFd;
    guest->heapFd = -1;
    LRMOE_CHECK(lrmoeBootstrapMapHeap(root->comm, rank, &guest->join, fd));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t rootPrepare(struct root *root) {
  struct ncclComm *comm = root->comm;
  LRMOE_CHECK(LRMOE_ALLOCATE(comm->numRanks, &root->guests));
  for (int rank = 0; rank < comm->numRanks; rank++)
    root->guests[rank].socket = root->guests[rank].heapFd = -1;
  LRMOE_CHECK(LRMOE_ALLOCATE(1 + maxStrangers + comm->numRanks, &root->polls));
  root->guests[0].join = lrmoeBootstrapJoinNote(comm);
  root->guests[0].heapFd = fcntl(comm->heap->fd, F_DUPFD_CLOEXEC, 0);
  if (root->guests[0].heapFd < 0)
    return LRMOE_FAIL(lrmoeSystemError, "cannot duplicate a descriptor: %s",
                      strerror(errno));
  root->numGuests = 1;
  return lrmoeSuccess;
}

static lrmoeResult_t rootRun(struct root *root) {
  LRMOE_CHECK(rootPrepare(root));
  LRMOE_CHECK(collectGuests(root));
  LRMOE_CHECK(handOutSegment(root));
  LRMOE_CHECK(handOutHeaps(root));
  LRMOE_CHECK(collectReady(root));
  struct lrmoeNote go = lrmoeNoteMake(lrmoeNoteGo);
  return tellGuests(root, &go, -1);
}

static void rootFree(struct root *root) {
  while (root->numStrangers)
    dropStranger(root, 0);
  for (int rank = 0; root->guests && rank < root->comm->numRanks; rank++) {
    struct guest *guest = &root->guests[rank];
    if (guest->socket >= 0) close(guest->socket);
    if (guest->heapFd >= 0) close(guest->heapFd);
  }
  lrmoeFree(root->guests);
  lrmoeFree(root->polls);
  lrmoeFree(root);
}

lrmoeResult_t lrmoeBootstrapRoot(struct ncclComm *comm, const lrmoeUniqueId *id,
                                 int listener) {
  struct root *root = NULL;
  LRMOE_CHECK(LRMOE_ALLOCATE(1, &root));
  root->comm = comm;
  root->id = id;
  root->listener = listener;
  root->deadlineNs = lrmoeNowNs() + comm->timeoutMs * 1000000;
  lrmoeResult_t result = rootRun(root);
  if (result != lrmoeSuccess && root->guests) {
    struct lrmoeNote note = lrmoeNoteFail(result);
    for (int rank = 1; rank < comm->numRanks; rank++)
      if (root->guests[rank].socket >= 0)
        lrmoeNoteTrySend(root->guests[rank].socket, &note, -1);
  }
  rootFree(root);
  return result;
}
