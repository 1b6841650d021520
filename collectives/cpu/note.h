/* Notes: what ranks tell each other over a socket while they join.
 *
 *   hello      joiner -> rank 0   nonce
 *   challenge  rank 0 -> joiner   its nonce, proof over both
 *   join       joiner -> rank 0   rank, numRanks, heap; proof; heap's fd
 *   segment    rank 0 -> joiner   the segment and its fd, once all have joined
 *   heap       rank 0 -> joiner   the heap of each rank and its fd, in order
 *   ready      joiner -> rank 0   everything is mapped
 *   go         rank 0 -> joiner   everybody is ready
 *   failure    either             result and text, instead of any of these
 */
#ifndef LRMOE_COLLECTIVES_CPU_NOTE_H
#define LRMOE_COLLECTIVES_CPU_NOTE_H

#include "base/result.h"

#include <sys/socket.h>
#include <sys/un.h>

enum lrmoeNoteKind {
  lrmoeNoteHello = 1,
  lrmoeNoteChallenge,
  lrmoeNoteJoin,
  lrmoeNoteSegment,
  lrmoeNoteHeap,
  lrmoeNoteReady,
  lrmoeNoteGo,
  lrmoeNoteFailure
};

enum {
  lrmoeNoteTextBytes = 400
};

struct lrmoeNote {
  uint32_t magic;
  uint32_t kind;
  uint32_t version; /* of the library: the segment's layout depends on it */
  int32_t rank;
  int32_t numRanks;
  int32_t result;
  uint64_t nonces[2][2]; /* the joiner's, rank 0's */
  uint64_t proof[2];
  uint64_t token[2]; /* of the heap or segment */
  int64_t bytes;     /* of the same */
  int64_t patienceMs;
  char text[lrmoeNoteTextBytes];
};

/* A note of `kind`, the rest zero. */
struct lrmoeNote lrmoeNoteMake(enum lrmoeNoteKind kind);

/* The note that says that this rank failed with `result` and why. */
struct lrmoeNote lrmoeNoteFail(lrmoeResult_t result);

/* Sets or checks a note's proof. */
void lrmoeNoteSign(const lrmoeUniqueId *id, struct lrmoeNote *note);
int lrmoeNoteIsSigned(const lrmoeUniqueId *id, const struct lrmoeNote *note);

/* Sends a note, with a descriptor unless it is -1.  `who` is for messages. */
lrmoeResult_t lrmoeNoteSend(int socket, const struct lrmoeNote *note, int fd,
                            int64_t deadlineNs, const char *who);

/* Sends without waiting or recording an error; 0 or errno. */
int lrmoeNoteTrySend(int socket, const struct lrmoeNote *note, int fd);

/* How a receive ended. */
enum lrmoeNoteEnd {
  lrmoeNoteCame,
  lrmoeNoteNone,
  lrmoeNoteClosed
};

/* Takes a note if one is there; *fd is its descriptor or -1.  What is not a
 * note counts as closed. */
enum lrmoeNoteEnd lrmoeNoteTake(int socket, struct lrmoeNote *note, int *fd);

/* The abstract address of the id's meeting place. */
socklen_t lrmoeNoteAddress(const lrmoeUniqueId *id,
                           struct sockaddr_un *address);

/* ms until the deadline, at least 0, for poll(). */
int lrmoeNoteLeftMs(int64_t deadlineNs);

/* Whether the process at the other end has this process's user. */
int lrmoeNoteIsSameUser(int socket);

#endif
