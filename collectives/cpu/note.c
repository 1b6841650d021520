/* Notes over a SOCK_SEQPACKET unix socket: see note.h. */
#include "collectives/cpu/note.h"

#include "collectives/cpu/fault.h"
#include "collectives/cpu/secret.h"
#include "collectives/cpu/wait.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a hash is for: a name and a proof must not be mistaken. */
enum purpose {
  purposeName = 1,
  purposeNote
};

struct lrmoeNote lrmoeNoteMake(enum lrmoeNoteKind kind) {
  struct lrmoeNote note;
  memset(&note, 0, sizeof note);
  note.magic = LRMOE_MAGIC;
  note.kind = kind;
  note.version = LRMOE_VERSION;
  return note;
}

struct lrmoeNote lrmoeNoteFail(lrmoeResult_t result) {
  struct lrmoeNote note = lrmoeNoteMake(lrmoeNoteFailure);
  note.result = result;
  snprintf(note.text, sizeof note.text, "%s", lrmoeGetLastError());
  return note;
}

void lrmoeNoteSign(const lrmoeUniqueId *id, struct lrmoeNote *note) {
  uint64_t proof[2];
  memset(note->proof, 0, sizeof note->proof);
  lrmoeSecretProof(id, purposeNote, note, sizeof *note, proof);
  memcpy(note->proof, proof, sizeof proof);
}

int lrmoeNoteIsSigned(const lrmoeUniqueId *id, const struct lrmoeNote *note) {
  struct lrmoeNote copy = *note;
  lrmoeNoteSign(id, &copy);
  return copy.proof[0] == note->proof[0] && copy.proof[1] == note->proof[1];
}

socklen_t lrmoeNoteAddress(const lrmoeUniqueId *id,
                           struct sockaddr_un *address) {
  uint64_t name[2];
  lrmoeSecretProof(id, purposeName, "", 0, name);
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                        "lrmoe-%016llx%016llx", (unsigned long long)name[0],
                        (unsigned long long)name[1]);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                     (size_t)length);
}

int lrmoeNoteLeftMs(int64_t deadlineNs) {
  int64_t left = (deadlineNs - lrmoeNowNs()) / 1000000;
  if (left < 0) return 0;
  return left < INT32_MAX ? (int)left : INT32_MAX;
}

int lrmoeNoteIsSameUser(int socket) {
  struct ucred peer;
  socklen_t bytes = sizeof peer;
  return !getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) &&
         peer.uid == geteuid();
}

/* Room for one descriptor beside a note, aligned for its header. */
union control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

int lrmoeNoteTrySend(int socket, const struct lrmoeNote *note, int fd) {
  union control control;
  memset(&control, 0, sizeof control);
  struct iovec data = {(void *)(uintptr_t)note, sizeof *note};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

lrmoeResult_t lrmoeNoteSend(int socket, const struct lrmoeNote *note, int fd,
                            int64_t deadlineNs, const char *who) {
  LRMOE_FAULT_POINT("send a note");
  for (;;) {
    int error = lrmoeNoteTrySend(socket, note, fd);
    if (!error) return lrmoeSuccess;
    if (error == EPIPE || error == ECONNRESET)
      return LRMOE_FAIL(lrmoeRemoteError, "%s has died while joining", who);
    if (error != EAGAIN && error != EINTR)
      return LRMOE_FAIL(lrmoeSystemError, "cannot tell %s: %s", who,
                        strerror(error));
    struct pollfd room = {socket, POLLOUT, 0};
    int leftMs = lrmoeNoteLeftMs(deadlineNs);
    if (!leftMs)
      return LRMOE_FAIL(lrmoeRemoteError, "%s does not answer while joining",
                        who);
    poll(&room, 1, leftMs);
  }
}

enum lrmoeNoteEnd lrmoeNoteTake(int socket, struct lrmoeNote *note, int *fd) {
  union control control;
  struct iovec data = {note, sizeof *note};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof control};
  *fd = -1;
  ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return lrmoeNoteNone;
  if (got <= 0) return lrmoeNoteClosed;
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS)
    memcpy(fd, CMSG_DATA(header), sizeof *fd);
  int isNote = got == (ssize_t)sizeof *note && note->magic == LRMOE_MAGIC &&
               !(message.msg_flags & MSG_TRUNC);
  note->text[lrmoeNoteTextBytes - 1] = 0;
  if (isNote) return lrmoeNoteCame;
  if (*fd >= 0) close(*fd);
  *fd = -1;
  return lrmoeNoteClosed;
}
