/* Ranks that torchrun's environment describes: see launch.h.
 *
 * Rank 0 listens and the others connect, each saying which rank of how many it
 * is.  Messages carry their size, so that programs that were started with
 * different options find that out. */
#include "tools/common/launch.h"
#include "tools/common/stats.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  meetMs = 60000, /* how long ranks wait for each other at the start */
  retryMs = 50,
  maxRanks = 65536
};

static const uint64_t magic = 0x4c524d6f45726b31; /* "LRMoErk1" */

struct hello {
  uint64_t magic;
  int32_t rank;
  int32_t numRanks;
};

static struct {
  struct toolLaunch launch;
  int *peers; /* rank 0: a socket per rank; others: one, to rank 0 */
} star;

static int64_t nowMs(void) {
  return toolWallNs() / 1000000;
}

/* ---- The environment ----------------------------------------------------- */

static int isHere(void) {
  return getenv("RANK") && getenv("WORLD_SIZE");
}

static enum toolExit readNumber(const char *name, long low, long high,
                                int *number, struct toolError *error) {
  const char *text = getenv(name);
  char *end = NULL;
  if (!text)
    return toolFail(error, toolBadInput,
                    "RANK and WORLD_SIZE are set, and %s is not", name);
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < low || value > high)
    return toolFail(error, toolBadInput, "%s=%.40s is not in %ld..%ld", name,
                    text, low, high);
  *number = (int)value;
  return toolGood;
}

struct place {
  char host[256];
  char port[16];
};

/* HOST:PORT, and [HOST]:PORT for addresses with colons. */
static enum toolExit splitPlace(const char *text, struct place *place,
                                struct toolError *error) {
  const char *colon = strrchr(text, ':');
  size_t length = colon ? (size_t)(colon - text) : 0;
  int isBracketed = length > 2 && text[0] == '[' && colon[-1] == ']';
  if (!length || !colon[1] || length >= sizeof place->host)
    return toolFail(error, toolBadInput,
                    "LRMOE_RENDEZVOUS=%.100s is not HOST:PORT", text);
  snprintf(place->host, sizeof place->host, "%.*s",
           (int)length - 2 * isBracketed, text + isBracketed);
  snprintf(place->port, sizeof place->port, "%.15s", colon + 1);
  return toolGood;
}

static enum toolExit readPlace(struct place *place, struct toolError *error) {
  const char *own = getenv("LRMOE_RENDEZVOUS");
  if (own && *own) return splitPlace(own, place, error);
  const char *host = getenv("MASTER_ADDR");
  int port = 0;
  enum toolExit code = readNumber("MASTER_PORT", 1, 65534, &port, error);
  if (code != toolGood) return code;
  if (!host || !*host || strlen(host) >= sizeof place->host)
    return toolFail(error, toolBadInput,
                    "RANK and WORLD_SIZE are set, and MASTER_ADDR is not");
  snprintf(place->host, sizeof place->host, "%s", host);
  snprintf(place->port, sizeof place->port, "%d", port + 1);
  return toolGood;
}

/* ---- Bytes --------------------------------------------------------------- */

static int sendAll(int fd, const void *data, size_t bytes) {
  for (const char *at = data; bytes;) {
    ssize_t got = send(fd, at, bytes, MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    at += got;
    bytes -= (size_t)got;
  }
  return 1;
}

static int receiveAll(int fd, void *data, size_t bytes) {
  for (char *at = data; bytes;) {
    ssize_t got = recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    at += got;
    bytes -= (size_t)got;
  }
  return 1;
}

static enum toolExit sendTo(int peer, int fd, const void *data, size_t bytes,
                            struct toolError *error) {
  uint64_t size = bytes;
  if (sendAll(fd, &size, sizeof size) && sendAll(fd, data, bytes))
    return toolGood;
  return toolFail(error, toolRunFailed, "rank %d of %d is gone", peer,
                  star.launch.numRanks);
}

static enum toolExit receiveFrom(int peer, int fd, void *data, size_t bytes,
                                 struct toolError *error) {
  uint64_t size;
  if (!receiveAll(fd, &size, sizeof size))
    return toolFail(error, toolRunFailed, "rank %d of %d is gone", peer,
                    star.launch.numRanks);
  if (size != bytes)
    return toolFail(error, toolBadInput,
                    "rank %d was started with other options than rank %d", peer,
                    star.launch.rank);
  if (receiveAll(fd, data, bytes)) return toolGood;
  return toolFail(error, toolRunFailed, "rank %d of %d is gone", peer,
                  star.launch.numRanks);
}

/* ---- Meeting ------------------------------------------------------------- */

static enum toolExit resolve(const struct place *place, int flags,
                             struct addrinfo **list, struct toolError *error) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
  int code = getaddrinfo(place->host, place->port, &hints, list);
  if (code == 0) return toolGood;
  return toolFail(error, toolBadInput, "%s:%s, where ranks meet: %s",
                  place->host, place->port, gai_strerror(code));
}

static void noDelay(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static enum toolExit listenAt(const struct place *place, int *listener,
                              struct toolError *error) {
  struct addrinfo *list;
  enum toolExit code = resolve(place, AI_PASSIVE, &list, error);
  if (code != toolGood) return code;
  int one = 1;
  int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) ||
      listen(fd, SOMAXCONN)) {
    toolFail(error, toolRunFailed,
             "cannot listen on %s:%s: %s (LRMOE_RENDEZVOUS=HOST:PORT names "
             "another place)",
             place->host, place->port, strerror(errno));
    if (fd >= 0) close(fd);
    fd = -1;
  }
  freeaddrinfo(list);
  *listener = fd;
  return fd < 0 ? toolRunFailed : toolGood;
}

/* A connection that says what a rank says; others are closed. */
static enum toolExit admit(int fd, int *numHere, struct toolError *error) {
  struct hello hello;
  struct timeval limit = {5, 0}; /* a stranger may say nothing */
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (!receiveAll(fd, &hello, sizeof hello) || hello.magic != magic) {
    close(fd);
    return toolGood;
  }
  limit.tv_sec = 0;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  int isRank = hello.rank > 0 && hello.rank < star.launch.numRanks;
  if (hello.numRanks != star.launch.numRanks || !isRank ||
      star.peers[hello.rank] >= 0) {
    close(fd);
    return toolFail(error, toolBadInput,
                    "a process came as rank %d of %d to rank 0 of %d%s",
                    hello.rank, hello.numRanks, star.launch.numRanks,
                    isRank && star.peers[hello.rank] >= 0 ? ", a second time"
                                                          : "");
  }
  noDelay(fd);
  star.peers[hello.rank] = fd;
  ++*numHere;
  return toolGood;
}

static enum toolExit meetAll(const struct place *place,
                             struct toolError *error) {
  int listener, numHere = 1;
  enum toolExit code = listenAt(place, &listener, error);
  if (code != toolGood) return code;
  int64_t end = nowMs() + meetMs;
  while (code == toolGood && numHere < star.launch.numRanks) {
    struct pollfd wait = {.fd = listener, .events = POLLIN};
    int64_t left = end - nowMs();
    if (left <= 0 || poll(&wait, 1, (int)left) == 0) {
      code = toolFail(error, toolRunFailed, "%d of %d ranks came to %s:%s",
                      numHere, star.launch.numRanks, place->host, place->port);
      break;
    }
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) code = admit(fd, &numHere, error);
  }
  close(listener);
  return code;
}

static int connectTo(const struct addrinfo *list) {
  for (const struct addrinfo *a = list; a; a = a->ai_next) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) return fd;
    close(fd);
  }
  return -1;
}

static enum toolExit meetRoot(const struct place *place,
                              struct toolError *error) {
  struct addrinfo *list;
  enum toolExit code = resolve(place, 0, &list, error);
  if (code != toolGood) return code;
  int64_t end = nowMs() + meetMs;
  int fd = connectTo(list);
  while (fd < 0 && nowMs() < end) {
    struct timespec pause = {0, retryMs * 1000000L};
    nanosleep(&pause, NULL);
    fd = connectTo(list);
  }
  freeaddrinfo(list);
  if (fd < 0)
    return toolFail(error, toolRunFailed, "rank 0 is not at %s:%s", place->host,
                    place->port);
  noDelay(fd);
  star.peers[0] = fd;
  struct hello hello = {magic, star.launch.rank, star.launch.numRanks};
  if (!sendAll(fd, &hello, sizeof hello))
    return toolFail(error, toolRunFailed, "rank 0 of %d is gone",
                    star.launch.numRanks);
  return toolGood;
}

/* ---- The wire ------------------------------------------------------------ */

static void stop(int code) {
  (void)code; /* a closed connection says it */
  for (int r = 0; star.peers && r < star.launch.numRanks; r++)
    if (star.peers[r] >= 0) close(star.peers[r]);
  free(star.peers);
  star.peers = NULL;
}

static enum toolExit start(struct toolLaunch *launch, struct toolError *error) {
  struct place place;
  struct toolLaunch *made = &star.launch;
  enum toolExit code =
      readNumber("WORLD_SIZE", 1, maxRanks, &made->numRanks, error);
  if (code == toolGood)
    code = readNumber("RANK", 0, made->numRanks - 1, &made->rank, error);
  made->localRank = made->rank;
  if (code == toolGood && getenv("LOCAL_RANK"))
    code = readNumber("LOCAL_RANK", 0, maxRanks, &made->localRank, error);
  if (code == toolGood) code = readPlace(&place, error);
  if (code != toolGood) return code;
  star.peers = malloc((size_t)made->numRanks * sizeof *star.peers);
  if (!star.peers) return toolFail(error, toolRunFailed, "out of memory");
  for (int r = 0; r < made->numRanks; r++)
    star.peers[r] = -1;
  if (made->numRanks > 1)
    code = made->rank ? meetRoot(&place, error) : meetAll(&place, error);
  if (code != toolGood) stop(code);
  *launch = *made;
  return code;
}

/* To all that are left, whoever is gone: it may be the news of that. */
static enum toolExit spread(void *data, size_t bytes, struct toolError *error) {
  enum toolExit worst = toolGood;
  if (star.launch.rank)
    return receiveFrom(0, star.peers[0], data, bytes, error);
  for (int r = 1; r < star.launch.numRanks; r++) {
    enum toolExit code = sendTo(r, star.peers[r], data, bytes, error);
    if (code != toolGood) worst = code;
  }
  return worst;
}

static enum toolExit gather(const void *mine, size_t bytes, void *all,
                            struct toolError *error) {
  if (star.launch.rank) return sendTo(0, star.peers[0], mine, bytes, error);
  memmove(all, mine, bytes);
  for (int r = 1; r < star.launch.numRanks; r++) {
    enum toolExit code = receiveFrom(
        r, star.peers[r], (char *)all + (size_t)r * bytes, bytes, error);
    if (code != toolGood) return code;
  }
  return toolGood;
}

const struct toolWire *toolWireStar(void) {
  static const struct toolWire wire = {isHere, start, spread, gather, stop};
  return &wire;
}
