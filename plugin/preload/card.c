/* Agreement at creation: see board.h.  Cards are abstract datagram sockets, so
 * that nothing is left behind; the board is a file without a name whose
 * descriptor rank 0 hands on.  Only ranks of one user are heard. */
#include "base/hash.h"
#include "base/log.h"
#include "plugin/preload/board.h"
#include "plugin/preload/board_map.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct address {
  struct sockaddr_un name;
  socklen_t bytes;
};

static struct address addressOf(const struct lrmoeCard *card, int rank) {
  int name = card->names ? card->names[rank] : rank;
  struct address address = {.name.sun_family = AF_UNIX};
  int used =
      snprintf(address.name.sun_path + 1, sizeof address.name.sun_path - 1,
               "lrmoe-preload-%u-%016llx-%d", (unsigned)geteuid(),
               (unsigned long long)card->key, name);
  address.bytes =
      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
  return address;
}

static uint64_t keyOf(const lrmoeUniqueId *id, int numRanks,
                      uint64_t settings) {
  uint64_t key = lrmoeHash(settings, id, sizeof *id);
  return lrmoeHash(key, &numRanks, sizeof numRanks);
}

void lrmoeCardTakeDown(struct lrmoeCard *card) {
  if (card->socket >= 0) close(card->socket);
  card->socket = -1;
}

static void putUp(struct lrmoeCard *card) {
  const int isOn = 1;
  struct address own = addressOf(card, card->rank);
  card->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (card->socket < 0) return;
  if (setsockopt(card->socket, SOL_SOCKET, SO_PASSCRED, &isOn, sizeof isOn) ||
      bind(card->socket, (struct sockaddr *)&own.name, own.bytes))
    lrmoeCardTakeDown(card);
}

void lrmoeCardShow(struct lrmoeCard *card, const lrmoeUniqueId *id,
                   int numRanks, int rank, uint64_t settings) {
  *card = (struct lrmoeCard){.socket = -1,
                             .rank = rank,
                             .numRanks = numRanks,
                             .key = keyOf(id, numRanks, settings)};
  if (numRanks >= 2 && numRanks <= lrmoeBoardMaxRanks) putUp(card);
}

void lrmoeCardShowAs(struct lrmoeCard *card, uint64_t key, int32_t name) {
  *card = (struct lrmoeCard){.socket = -1, .rank = name, .key = key};
  putUp(card);
}

static int isUp(const struct lrmoeCard *card, int rank) {
  struct address other = addressOf(card, rank);
  int probe = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return 0;
  int isThere = !connect(probe, (struct sockaddr *)&other.name, other.bytes);
  close(probe);
  return isThere;
}

/* ---- Rank 0 ---- */

/* One byte; with a descriptor it is the board, without a refusal. */
static void tell(const struct lrmoeCard *card, int rank, int file) {
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.room = {0}};
  struct address other = addressOf(card, rank);
  char byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_name = &other.name,
                           .msg_namelen = other.bytes,
                           .msg_iov = &part,
                           .msg_iovlen = 1};
  if (file >= 0) {
    message.msg_control = control.room;
    message.msg_controllen = sizeof control.room;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
  }
  while (sendmsg(card->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
         errno == EINTR)
    continue;
}

static struct lrmoeBoard *host(const struct lrmoeCard *card, int isWilling) {
  int file = -1;
  struct lrmoeBoard *board = NULL;
  for (int rank = 1; rank < card->numRanks && isWilling; rank++)
    isWilling = isUp(card, rank);
  if (isWilling) file = lrmoeBoardFile(card->numRanks);
  if (file >= 0) board = lrmoeBoardMap(file, card->numRanks, 0);
  for (int rank = 1; rank < card->numRanks; rank++)
    tell(card, rank, board ? file : -1);
  if (file >= 0) close(file);
  return board;
}

/* ---- The others ---- */

static int takeFile(struct msghdr *message) {
  int file = -1, isOurs = 0;
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
       part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_RIGHTS)
      memcpy(&file, CMSG_DATA(part), sizeof file);
    if (part->cmsg_type == SCM_CREDENTIALS) {
      struct ucred sender;
      memcpy(&sender, CMSG_DATA(part), sizeof sender);
      isOurs = sender.uid == geteuid();
    }
  }
  if (file >= 0 && !isOurs) {
    close(file);
    return -1;
  }
  return file;
}

/* 1: *file is the board's, or -1 after a refusal; 0: nothing has come. */
static int hear(const struct lrmoeCard *card, int *file) {
  char byte, room[256];
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = sizeof room};
  if (recvmsg(card->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
    return 0;
  *file = takeFile(&message);
  return 1;
}

/* Rank 0 sends before it takes its card down, so after that a look at what has
 * come is the last one.  A rank that cannot have the board withdraws in it. */
static struct lrmoeBoard *attend(const struct lrmoeCard *card,
                                 int64_t timeoutMs) {
  enum {
    lookMs = 20
  };
  int file = -1;
  for (int64_t look = 0, isLast = 0; !hear(card, &file); look++) {
    if (isLast) return NULL;
    isLast = !isUp(card, 0) || look * lookMs > timeoutMs;
    struct pollfd waiting = {card->socket, POLLIN, 0};
    if (!isLast) poll(&waiting, 1, lookMs);
  }
  if (file < 0) return NULL;
  struct lrmoeBoard *board = lrmoeBoardMap(file, card->numRanks, card->rank);
  if (!board) lrmoeBoardRefuse(file);
  close(file);
  return board;
}

struct lrmoeBoard *lrmoeCardSettle(struct lrmoeCard *card, int isWilling,
                                   int64_t timeoutMs) {
  struct lrmoeBoard *board = NULL;
  if (card->socket < 0 || card->numRanks < 2) return NULL;
  if (!card->rank)
    board = host(card, isWilling);
  else if (isWilling)
    board = attend(card, timeoutMs);
  lrmoeCardTakeDown(card);
  return board;
}
