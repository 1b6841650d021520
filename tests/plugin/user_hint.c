/* The programs under test as a framework that hints: backwards of a layer whose
 * data a file has (hint_data.h), each followed by an exchange that nobody is
 * told of.
 *
 *   USER_HINT_FILE  the file
 *   USER_MASK       rounds, as bits, in which rows that the file says are not
 *                   kept are sent as zeros, and no hint is given in any: what a
 *                   framework does that masks by itself
 *   USER_HINT       what is wrong with this rank's hint in the first round
 *   USER_ALLTOALL   1: ncclAlltoAll, for messages of one size
 *   USER_DEVICE     1: rows and norms are in the memory of the process's
 * CUDA */
#include "hint_data.h"
#include "lrmoe_hint.h"
#include "user.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  numRounds = 3
};

struct backward {
  struct hintDataHead head;
  int64_t *demand; /* [G, E] */
  int64_t *quotas; /* [E] */
  float *phi;      /* of this rank, as all below */
  uint8_t *kept;
  unsigned char *rows;
  unsigned char *sent; /* the same, masked or not */
  unsigned char *received;
  int64_t numRows;
  int64_t numReceived;
  ncclComm_t comm;
  lrmoeHintBackwardFunction hint;
  struct { /* NULL: all is the host's */
    unsigned char *sent;
    unsigned char *received;
    float *phi;
    cudaStream_t stream;
  } device;
};

/* ---- CUDA, as far as it is used ---- */

enum {
  toDevice = 1,
  toHost = 2
};

static struct {
  int (*alloc)(void **pointer, size_t bytes);
  int (*free)(void *pointer);
  int (*copy)(void *to, const void *from, size_t bytes, int kind);
  int (*streamCreate)(cudaStream_t *stream);
  int (*streamDestroy)(cudaStream_t stream);
  int (*synchronize)(cudaStream_t stream);
} cuda;

static int openDevice(struct user *user, struct backward *b) {
  size_t sent = (size_t)(b->numRows * b->head.rowBytes) + 1;
  size_t received = (size_t)(b->numReceived * b->head.rowBytes) + 1;
  size_t phi = (size_t)b->numRows * sizeof(float) + 1;
  *(void **)&cuda.alloc = dlsym(RTLD_DEFAULT, "cudaMalloc");
  *(void **)&cuda.free = dlsym(RTLD_DEFAULT, "cudaFree");
  *(void **)&cuda.copy = dlsym(RTLD_DEFAULT, "cudaMemcpy");
  *(void **)&cuda.streamCreate = dlsym(RTLD_DEFAULT, "cudaStreamCreate");
  *(void **)&cuda.streamDestroy = dlsym(RTLD_DEFAULT, "cudaStreamDestroy");
  *(void **)&cuda.synchronize = dlsym(RTLD_DEFAULT, "cudaStreamSynchronize");
  if (!cuda.alloc)
    return userComplain(user, __FILE__, __LINE__, "cudaMalloc", 0);
  USER_OK(user, cuda.streamCreate(&b->device.stream));
  USER_OK(user, cuda.alloc((void **)&b->device.sent, sent));
  USER_OK(user, cuda.alloc((void **)&b->device.received, received));
  USER_OK(user, cuda.alloc((void **)&b->device.phi, phi));
  USER_OK(user, cuda.copy(b->device.phi, b->phi, phi - 1, toDevice));
  return 0;
}

static void closeDevice(struct backward *b) {
  if (!b->device.sent) return;
  cuda.free(b->device.sent);
  cuda.free(b->device.received);
  cuda.free(b->device.phi);
  cuda.streamDestroy(b->device.stream);
}

static int push(struct user *user, const struct backward *b) {
  size_t rowBytes = (size_t)b->head.rowBytes;
  if (!b->device.sent) return 0;
  USER_OK(user, cuda.copy(b->device.sent, b->sent,
                          (size_t)b->numRows * rowBytes, toDevice));
  USER_OK(user, cuda.copy(b->device.received, b->received,
                          (size_t)b->numReceived * rowBytes + 1, toDevice));
  return 0;
}

static int pull(struct user *user, const struct backward *b) {
  if (!b->device.sent) return 0;
  USER_OK(user, cuda.synchronize(b->device.stream));
  USER_OK(user,
          cuda.copy(b->received, b->device.received,
                    (size_t)(b->numReceived * b->head.rowBytes) + 1, toHost));
  return 0;
}

static unsigned char *sentOf(const struct backward *b) {
  return b->device.sent ? b->device.sent : b->sent;
}

static unsigned char *receivedOf(const struct backward *b) {
  return b->device.sent ? b->device.received : b->received;
}

/* ---- Data ---- */

static int64_t rowsOf(const struct backward *b, int64_t source) {
  int64_t count = 0;
  for (int64_t e = 0; e < b->head.numExperts; e++)
    count += b->demand[source * b->head.numExperts + e];
  return count;
}

static int64_t rowsBetween(const struct backward *b, int64_t source,
                           int64_t home) {
  int64_t count = 0, each = b->head.numExperts / b->head.numRanks;
  for (int64_t e = home * each; e < (home + 1) * each; e++)
    count += b->demand[source * b->head.numExperts + e];
  return count;
}

static void *readPart(FILE *file, int64_t count, size_t bytes) {
  void *part = malloc((size_t)count * bytes + 1);
  if (fread(part, bytes, (size_t)count, file) != (size_t)count) abort();
  return part;
}

static void readRank(struct backward *b, FILE *file, int64_t rank) {
  b->numRows = rowsOf(b, rank);
  b->phi = readPart(file, b->numRows, sizeof *b->phi);
  b->kept = readPart(file, b->numRows, 1);
  b->rows = readPart(file, b->numRows, (size_t)b->head.rowBytes);
}

static void freeRank(struct backward *b) {
  free(b->phi);
  free(b->kept);
  free(b->rows);
}

static int openBackward(struct user *user, struct backward *b) {
  const char *path = getenv("USER_HINT_FILE");
  FILE *file = path ? fopen(path, "rb") : NULL;
  *b = (struct backward){0};
  if (!file || fread(&b->head, sizeof b->head, 1, file) != 1 ||
      b->head.numRanks != user->numRanks)
    return userComplain(user, __FILE__, __LINE__, "USER_HINT_FILE", 0);
  int64_t pairs = b->head.numRanks * b->head.numExperts;
  b->demand = readPart(file, pairs, sizeof *b->demand);
  b->quotas = readPart(file, b->head.numExperts, sizeof *b->quotas);
  for (int rank = 0; rank <= user->rank; rank++) {
    if (rank) freeRank(b);
    readRank(b, file, rank);
  }
  fclose(file);
  for (int rank = 0; rank < user->numRanks; rank++)
    b->numReceived += rowsBetween(b, rank, user->rank);
  b->sent = malloc((size_t)(b->numRows * b->head.rowBytes) + 1);
  b->received = malloc((size_t)(b->numReceived * b->head.rowBytes) + 1);
  *(void **)&b->hint = dlsym(RTLD_DEFAULT, "lrmoeHintBackward");
  return getenv("USER_DEVICE") ? openDevice(user, b) : 0;
}

static void closeBackward(struct backward *b) {
  closeDevice(b);
  freeRank(b);
  free(b->demand);
  free(b->quotas);
  free(b->sent);
  free(b->received);
}

/* ---- Exchanges ---- */

static int postAll(struct user *user, const struct backward *b) {
  size_t element = b->head.type == ncclFloat32 ? 4 : 2;
  size_t rowElements = (size_t)b->head.rowBytes / element;
  const unsigned char *from = sentOf(b);
  unsigned char *to = receivedOf(b);
  USER_OK(user, ncclGroupStart());
  for (int peer = 0; peer < user->numRanks; peer++) {
    size_t sent = (size_t)rowsBetween(b, user->rank, peer);
    size_t received = (size_t)rowsBetween(b, peer, user->rank);
    USER_OK(user, ncclSend(from, sent * rowElements, (int)b->head.type, peer,
                           b->comm, b->device.stream));
    USER_OK(user, ncclRecv(to, received * rowElements, (int)b->head.type, peer,
                           b->comm, b->device.stream));
    from += sent * (size_t)b->head.rowBytes;
    to += received * (size_t)b->head.rowBytes;
  }
  USER_OK(user, ncclGroupEnd());
  return 0;
}

static int exchange(struct user *user, struct backward *b, int isMasked) {
  const char *isAll = getenv("USER_ALLTOALL");
  size_t rowBytes = (size_t)b->head.rowBytes;
  size_t element = b->head.type == ncclFloat32 ? 4 : 2;
  memcpy(b->sent, b->rows, (size_t)b->numRows * rowBytes);
  for (int64_t i = 0; i < b->numRows && isMasked; i++)
    if (!b->kept[i]) memset(b->sent + (size_t)i * rowBytes, 0, rowBytes);
  memset(b->received, 0xa5, (size_t)b->numReceived * rowBytes + 1);
  if (push(user, b)) return 1;
  if (isAll)
    USER_OK(user,
            ncclAlltoAll(sentOf(b), receivedOf(b),
                         (size_t)rowsBetween(b, 0, 0) * rowBytes / element,
                         (int)b->head.type, b->comm, b->device.stream));
  else if (postAll(user, b))
    return 1;
  if (pull(user, b)) return 1;
  for (size_t i = 0; i <= (size_t)b->numReceived * rowBytes; i++)
    user->hash = (user->hash ^ b->received[i]) * 0x100000001b3;
  return 0;
}

/* ---- Hints ---- */

static int isWrong(const char *wrong, const char *kind) {
  return wrong && !strcmp(wrong, kind);
}

/* Arrays are changed and given back: the library has copied them. */
static int tell(struct user *user, struct backward *b, const char *wrong) {
  lrmoeHintLayer_t layer = LRMOE_HINT_LAYER_INITIALIZER;
  int64_t numExperts = b->head.numExperts;
  int64_t next = (user->rank + 1) % user->numRanks;
  int64_t *elsewhere =
      &b->demand[next * numExperts + next * numExperts / user->numRanks];
  int64_t rowBytes = b->head.rowBytes, *quota = b->quotas, change = 0;
  if (isWrong(wrong, "none")) return 0;
  layer.id = isWrong(wrong, "layer") ? 8 : 7;
  layer.numExperts = numExperts;
  if (isWrong(wrong, "experts")) layer.numExperts /= 2;
  if (isWrong(wrong, "rowBytes")) rowBytes *= 2;
  if (isWrong(wrong, "odd")) rowBytes = 4;
  while (!*quota && quota < b->quotas + numExperts - 1)
    quota++;
  if (isWrong(wrong, "quotas")) change = 1;
  if (isWrong(wrong, "many")) change = -(INT64_C(1) << 40);
  *quota -= change;
  if (isWrong(wrong, "demand")) ++*elsewhere;
  if (isWrong(wrong, "negative")) *elsewhere -= INT64_C(1) << 40;
  const float *phi = isWrong(wrong, "phi") ? NULL
                     : b->device.phi       ? b->device.phi
                                           : b->phi;
  int result = b->hint(b->comm, &layer, rowBytes, b->demand, b->quotas, phi);
  *quota += change;
  if (isWrong(wrong, "demand")) --*elsewhere;
  if (isWrong(wrong, "negative")) *elsewhere += INT64_C(1) << 40;
  int isRefused = isWrong(wrong, "many") || isWrong(wrong, "negative");
  if (isWrong(wrong, "experts")) return 0;
  if (result != (isRefused ? lrmoeInvalidArgument : lrmoeSuccess))
    return userComplain(user, __FILE__, __LINE__, "hint", result);
  return 0;
}

/* Two ranks meet, and the others do nothing: no exchange. */
static int meet(struct user *user, const struct backward *b) {
  char mine = (char)user->rank, its = 0;
  int other = 1 - user->rank;
  if (other < 0) return 0;
  USER_OK(user, ncclGroupStart());
  USER_OK(user, ncclSend(&mine, 1, ncclUint8, other, b->comm, NULL));
  USER_OK(user, ncclRecv(&its, 1, ncclUint8, other, b->comm, NULL));
  USER_OK(user, ncclGroupEnd());
  return its != other;
}

int userHinted(struct user *user) {
  struct backward b;
  const char *mask = getenv("USER_MASK"), *wrong = getenv("USER_HINT");
  int masked = mask ? atoi(mask) : 0;
  if (openBackward(user, &b)) return 1;
  USER_OK(user,
          ncclCommInitRank(&b.comm, user->numRanks, user->ids[0], user->rank));
  for (int round = 0; round < numRounds; round++) {
    const char *here = round ? NULL : wrong;
    if (b.hint && !mask && tell(user, &b, here)) return 1;
    if (isWrong(here, "twice") && tell(user, &b, here)) return 1;
    if (isWrong(here, "lost") && meet(user, &b)) return 1;
    if (exchange(user, &b, masked >> round & 1)) return 1;
    if (exchange(user, &b, 0)) return 1;
  }
  USER_OK(user, ncclCommDestroy(b.comm));
  closeBackward(&b);
  return 0;
}
