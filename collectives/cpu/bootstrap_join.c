/* Joining, the side of ranks other than 0: see bootstrap.h. */
#include "collectives/cpu/bootstrap.h"
#include "collectives/cpu/secret.h"
#include "collectives/cpu/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rank 0 reports a time-out to everybody, by the shortest patience of all;
 * a joiner waits this much longer for that report, which names the missing. */
static const int64_t graceNs = 2000000000;

struct joiner {
  struct ncclComm *comm;
  const lrmoeUniqueId *id;
  int64_t deadlineNs;
  int socket;
  int knowsRoot; /* rank 0 has proved itself once */
  int isClosed;  /* it has closed the connection */
};

static lrmoeResult_t failAbsent(const struct joiner *joiner) {
  return LRMOE_FAIL(lrmoeRemoteError, "rank 0 has not come within %lld ms",
                    (long long)joiner->comm->timeoutMs);
}

static void rest(int64_t ns) {
  struct timespec pause = {0, (long)ns};
  nanosleep(&pause, NULL);
}

static lrmoeResult_t failDead(void) {
  return LRMOE_FAIL(lrmoeRemoteError, "rank 0 has died while joining");
}

/* Connects, as soon as rank 0 listens. */
static lrmoeResult_t reach(struct joiner *joiner) {
  struct sockaddr_un address;
  socklen_t bytes = lrmoeNoteAddress(joiner->id, &address);
  int64_t pauseNs = 200000;
  if (joiner->socket >= 0) close(joiner->socket);
  joiner->isClosed = 0;
  for (;;) {
    joiner->socket =
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (joiner->socket < 0)
      return LRMOE_FAIL(lrmoeSystemError, "socket: %s", strerror(errno));
    if (!connect(joiner->socket, (struct sockaddr *)&address, bytes))
      return lrmoeSuccess;
    int error = errno;
    close(joiner->socket);
    joiner->socket = -1;
    if (error == ECONNREFUSED && joiner->knowsRoot) return failDead();
    if (error != ECONNREFUSED && error != EAGAIN && error != EINTR)
      return LRMOE_FAIL(lrmoeSystemError, "connect: %s", strerror(error));
    if (lrmoeNowNs() > joiner->deadlineNs) return failAbsent(joiner);
    rest(pauseNs);
    if (pauseNs < 20000000) pauseNs += pauseNs / 4;
  }
}

/* Waits for the note `kind`; a failure note becomes this rank's failure. */
static lrmoeResult_t expect(struct joiner *joiner, enum lrmoeNoteKind kind,
                            struct lrmoeNote *note, int *fd) {
  for (;;) {
    enum lrmoeNoteEnd end = lrmoeNoteTake(joiner->socket, note, fd);
    joiner->isClosed = end == lrmoeNoteClosed;
    if (joiner->isClosed) return failDead();
    if (end == lrmoeNoteCame) break;
    struct pollfd ready = {joiner->socket, POLLIN, 0};
    int leftMs = lrmoeNoteLeftMs(joiner->deadlineNs + graceNs);
    if (!leftMs) return failAbsent(joiner);
    poll(&ready, 1, leftMs);
  }
  if (note->kind == kind) return lrmoeSuccess;
  if (*fd >= 0) close(*fd);
  if (note->kind == lrmoeNoteFailure)
    return LRMOE_FAIL((lrmoeResult_t)note->result, "%s", note->text);
  return LRMOE_FAIL(lrmoeInternalError, "note %d from rank 0 instead of %d",
                    (int)note->kind, (int)kind);
}

static lrmoeResult_t tell(struct joiner *joiner, const struct lrmoeNote *note,
                          int fd) {
  lrmoeResult_t result =
      lrmoeNoteSend(joiner->socket, note, fd, joiner->deadlineNs, "rank 0");
  joiner->isClosed = result == lrmoeRemoteError;
  return result;
}

/* Hello to join: both sides prove that they know the id. */
static lrmoeResult_t introduce(struct joiner *joiner) {
  struct lrmoeNote hello = lrmoeNoteMake(lrmoeNoteHello), answer;
  int fd = -1;
  LRMOE_CHECK(lrmoeSecretRandom(hello.nonces[0], sizeof hello.nonces[0]));
  LRMOE_CHECK(tell(joiner, &hello, -1));
  LRMOE_CHECK(expect(joiner, lrmoeNoteChallenge, &answer, &fd));
  if (fd >= 0) close(fd);
  int isOurs =
      !memcmp(answer.nonces[0], hello.nonces[0], sizeof hello.nonces[0]) &&
      lrmoeNoteIsSigned(joiner->id, &answer) &&
      lrmoeNoteIsSameUser(joiner->socket);
  if (!isOurs)
    return LRMOE_FAIL(lrmoeRemoteError,
                      "who listens in the place of rank 0 does not know the "
                      "id");
  joiner->knowsRoot = 1;
  struct lrmoeNote join = lrmoeBootstrapJoinNote(joiner->comm);
  memcpy(join.nonces, answer.nonces, sizeof join.nonces);
  join.patienceMs = lrmoeNoteLeftMs(joiner->deadlineNs);
  lrmoeNoteSign(joiner->id, &join);
  return tell(joiner, &join, joiner->comm->heap->fd);
}

/* Comes in, and waits until all have: the segment's note.  Rank 0 hangs up on
 * the oldest of too many strangers, which this rank may have been: then it
 * comes again. */
static lrmoeResult_t comeIn(struct joiner *joiner, struct lrmoeNote *segment,
                            int *fd) {
  for (;;) {
    LRMOE_CHECK(reach(joiner));
    lrmoeResult_t result = introduce(joiner);
    if (result == lrmoeSuccess)
      result = expect(joiner, lrmoeNoteSegment, segment, fd);
    if (!joiner->isClosed || lrmoeNowNs() > joiner->deadlineNs) return result;
    rest(1000000);
  }
}

static lrmoeResult_t join(struct joiner *joiner) {
  struct ncclComm *comm = joiner->comm;
  struct lrmoeNote note;
  int fd = -1;
  LRMOE_CHECK(comeIn(joiner, &note, &fd));
  LRMOE_CHECK(lrmoeBootstrapMapSegment(comm, &note, fd));
  for (int rank = 0; rank < comm->numRanks; rank++) {
    LRMOE_CHECK(expect(joiner, lrmoeNoteHeap, &note, &fd));
    LRMOE_CHECK(lrmoeBootstrapMapHeap(comm, rank, &note, fd));
  }
  note = lrmoeNoteMake(lrmoeNoteReady);
  LRMOE_CHECK(tell(joiner, &note, -1));
  return expect(joiner, lrmoeNoteGo, &note, &fd);
}

lrmoeResult_t lrmoeBootstrapJoin(struct ncclComm *comm,
                                 const lrmoeUniqueId *id) {
  int64_t deadlineNs = lrmoeNowNs() + comm->timeoutMs * 1000000;
  struct joiner joiner = {comm, id, deadlineNs, -1, 0, 0};
  lrmoeResult_t result = join(&joiner);
  if (joiner.socket < 0) return result;
  if (result != lrmoeSuccess) {
    /* Best effort: rank 0 also sees the socket close. */
    struct lrmoeNote note = lrmoeNoteFail(result);
    lrmoeNoteTrySend(joiner.socket, &note, -1);
  }
  close(joiner.socket);
  return result;
}
