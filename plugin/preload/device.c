/* Rows in a device's memory: see device.h.
 *
 * The module is loaded when the first device pointer comes; whose memory a
 * pointer is, the process's own CUDA says.  Marks or keys come to the host,
 * which waits for them once: how many rows cross is a count of NCCL's.  Rows
 * are then gathered into staging, cross, land in staging, and are gathered into
 * their places with zeros between them, all on the program's stream. */
#include "plugin/preload/device.h"

#include "base/log.h"

#include <dlfcn.h>
#include <string.h>

struct block {
  void *data;
  size_t bytes;
};

struct lrmoePreloadDevice {
  const struct lrmoeBackend *backend;
  struct block sendRows;
  struct block recvRows;
  struct block words; /* marks, or norms, keys and tokens; then indices */
  struct block host;  /* page-locked; the same */
  void *event;        /* behind the last exchange */
};

/* ---- Whose memory ---- */

static struct {
  int (*getAttribute)(void *data, int attribute, uint64_t pointer);
  int (*getAttributes)(void *attributes, const void *pointer);
  int (*isCapturing)(lrmoeStream_t stream, int *status);
} cuda;

/* POSIX gives functions as data pointers; ISO C has no cast for it. */
static void lookUp(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  *(void **)&cuda.getAttributes =
      dlsym(RTLD_DEFAULT, "cudaPointerGetAttributes");
  *(void **)&cuda.isCapturing = dlsym(RTLD_DEFAULT, "cudaStreamIsCapturing");
  if (!driver) return;
  *(void **)&cuda.getAttribute = dlsym(driver, "cuPointerGetAttribute");
  *(void **)&cuda.isCapturing = dlsym(driver, "cuStreamIsCapturing");
}

static enum lrmoeMemoryKind kindOf(const void *pointer) {
  enum {
    memoryType = 2, /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
    typeDevice = 2, /* and cudaMemoryTypeDevice; 3: managed */
    roomBytes = 256 /* of cudaPointerAttributes, which grows */
  };
  unsigned type = 0;
  if (cuda.getAttribute) {
    int failed =
        cuda.getAttribute(&type, memoryType, (uint64_t)(uintptr_t)pointer);
    return !failed && type == typeDevice ? lrmoeMemoryDevice : lrmoeMemoryHost;
  }
  unsigned char attributes[roomBytes] = {0};
  if (!cuda.getAttributes) return lrmoeMemoryUnknown;
  if (cuda.getAttributes(attributes, pointer)) return lrmoeMemoryHost;
  memcpy(&type, attributes, sizeof type);
  return type >= typeDevice ? lrmoeMemoryDevice : lrmoeMemoryHost;
}

static enum lrmoeMemoryKind warn(const char *why) {
  static atomic_flag hasWarned = ATOMIC_FLAG_INIT;
  if (!atomic_flag_test_and_set(&hasWarned))
    lrmoeLog(lrmoeLogWarn,
             "preload: messages of device memory cross as they are: %s", why);
  return lrmoeMemoryUnknown;
}

static int isCaptured(lrmoeStream_t stream) {
  int status = 0;
  return cuda.isCapturing && stream && !cuda.isCapturing(stream, &status) &&
         status;
}

static enum lrmoeMemoryKind useDevice(struct lrmoePreloadComm *comm) {
  struct lrmoePreloadDevice *made = comm->device;
  if (made) return lrmoeMemoryDevice;
  if (LRMOE_ALLOCATE(1, &made) != lrmoeSuccess) return lrmoeMemoryMixed;
  if (lrmoeBackendLoad("cuda", &made->backend) != lrmoeSuccess ||
      made->backend->eventCreate(&made->event) != lrmoeSuccess) {
    lrmoeFree(made);
    return warn(lrmoeGetLastError());
  }
  comm->device = made;
  return lrmoeMemoryDevice;
}

enum lrmoeMemoryKind lrmoeDeviceKind(struct lrmoePreloadComm *comm,
                                     const struct lrmoePreloadCall *calls,
                                     int64_t numCalls) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int numOf[4] = {0};
  if (!comm->hasCuda && !calls[0].stream) return lrmoeMemoryHost;
  pthread_once(&once, lookUp);
  for (int64_t i = 0; i < numCalls; i++)
    if (calls[i].bytes)
      numOf[kindOf(calls[i].isSend ? calls[i].send : calls[i].recv)]++;
  if (numOf[lrmoeMemoryUnknown])
    return warn("this process has a CUDA that cannot be asked whose memory a "
                "pointer is");
  if (!numOf[lrmoeMemoryDevice]) return lrmoeMemoryHost;
  if (numOf[lrmoeMemoryHost] || isCaptured(calls[0].stream))
    return lrmoeMemoryMixed;
  return useDevice(comm);
}

/* ---- Room ---- */

static int reserve(struct lrmoePreloadDevice *device, struct block *block,
                   int isHost, int64_t bytes) {
  const struct lrmoeBackend *backend = device->backend;
  if ((size_t)bytes <= block->bytes) return 1;
  if (block->data) (isHost ? backend->hostFree : backend->memFree)(block->data);
  *block = (struct block){0};
  size_t room = (size_t)bytes + (size_t)bytes / 8;
  if ((isHost ? backend->hostAlloc : backend->memAlloc)(room, &block->data) !=
      lrmoeSuccess)
    return 0;
  block->bytes = room;
  return 1;
}

void lrmoeDeviceFree(struct lrmoePreloadDevice *device) {
  if (!device) return;
  const struct lrmoeBackend *backend = device->backend;
  backend->eventWait(device->event);
  backend->eventDestroy(device->event);
  backend->memFree(device->sendRows.data);
  backend->memFree(device->recvRows.data);
  backend->memFree(device->words.data);
  backend->hostFree(device->host.data);
  lrmoeFree(device);
}

/* Rows of a message; all that has rows is whole rows here. */
static int64_t rowsIn(const struct lrmoeElision *elision,
                      const struct lrmoePreloadCall *call) {
  return call->bytes % elision->rowBytes ? 0 : call->bytes / elision->rowBytes;
}

static int64_t numRows(const struct lrmoeElision *elision, int isSend) {
  int64_t count = 0;
  for (int rank = 0; rank < elision->comm->numRanks; rank++)
    count += rowsIn(elision, isSend ? elision->peers[rank].send
                                    : elision->peers[rank].recv);
  return count;
}

static int areAligned(const struct lrmoeElision *elision) {
  uintptr_t bits = (uintptr_t)elision->rowBytes;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    const struct lrmoeElisionPeer *peer = &elision->peers[rank];
    if (peer->send->bytes) bits |= (uintptr_t)peer->send->send;
    if (peer->recv->bytes) bits |= (uintptr_t)peer->recv->recv;
  }
  return bits % 16 == 0;
}

/* Words: 16 bytes a row that is sent hold its mark, or norm, key and token; 8
 * bytes a row that is sent or received its index. */
int lrmoeDevicePrepare(struct lrmoeElision *elision) {
  struct lrmoePreloadDevice *device = elision->comm->device;
  if (!elision->rowBytes || !areAligned(elision)) return !elision->rowBytes;
  int64_t sent = numRows(elision, 1), received = numRows(elision, 0);
  int64_t words = 16 * sent + 8 * received + 64;
  return device->backend->eventWait(device->event) == lrmoeSuccess &&
         reserve(device, &device->sendRows, 0, sent * elision->rowBytes) &&
         reserve(device, &device->recvRows, 0, received * elision->rowBytes) &&
         reserve(device, &device->words, 0, words) &&
         reserve(device, &device->host, 1, words);
}

/* ---- Marks and keys ---- */

static lrmoeResult_t fetch(const struct lrmoeElision *elision,
                           const void *words, int64_t bytes) {
  struct lrmoePreloadDevice *device = elision->comm->device;
  lrmoeStream_t stream = elision->peers[0].send->stream;
  if (bytes)
    LRMOE_RUN(device->backend, copy, device->host.data, words, (size_t)bytes,
              lrmoeCopyToHost, stream);
  LRMOE_RUN(device->backend, synchronize, stream);
  return lrmoeSuccess;
}

static lrmoeResult_t mark(const struct lrmoeElision *elision) {
  struct lrmoePreloadDevice *device = elision->comm->device;
  int64_t at = 0;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    const struct lrmoePreloadCall *send = elision->peers[rank].send;
    int64_t count = rowsIn(elision, send);
    LRMOE_RUN(device->backend, markRows, count, elision->rowBytes, send->send,
              (uint8_t *)device->words.data + at, send->stream);
    at += count;
  }
  return fetch(elision, device->words.data, at);
}

const uint8_t *lrmoeDeviceMarks(struct lrmoeElision *elision) {
  return mark(elision) == lrmoeSuccess ? elision->comm->device->host.data
                                       : NULL;
}

static lrmoeResult_t normMessages(const struct lrmoeElision *elision,
                                  float *norms) {
  const struct lrmoeBackend *backend = elision->comm->device->backend;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    const struct lrmoePreloadCall *send = elision->peers[rank].send;
    int64_t count = rowsIn(elision, send);
    const struct lrmoeNorms args = {
        {send->send, NULL, send->type,
         elision->rowBytes / lrmoePreloadTypeBytes(send->type)},
        count,
        0,
        norms};
    if (count) LRMOE_RUN(backend, norms, &args, send->stream);
    norms += count;
  }
  return lrmoeSuccess;
}

static lrmoeResult_t score(const struct lrmoeElision *elision) {
  struct lrmoePreloadDevice *device = elision->comm->device;
  lrmoeStream_t stream = elision->peers[0].send->stream;
  int64_t count = numRows(elision, 1);
  int64_t *tokens = device->words.data, *identity = device->host.data;
  float *norms = (float *)(tokens + count);
  uint32_t *keys = (uint32_t *)(void *)(norms + count);
  for (int64_t i = 0; i < count; i++)
    identity[i] = i;
  const struct lrmoeScores args = {.metric = lrmoeMetricLrm,
                                   .numPairs = count,
                                   .phiNorms = elision->hint->phiNorms,
                                   .tokens = tokens,
                                   .gNorms = norms,
                                   .keys = keys};
  if (count)
    LRMOE_RUN(device->backend, copy, tokens, identity, (size_t)count * 8,
              lrmoeCopyToDevice, stream);
  LRMOE_CHECK(normMessages(elision, norms));
  if (count) LRMOE_RUN(device->backend, scores, &args, stream);
  return fetch(elision, keys, count * (int64_t)sizeof *keys);
}

const uint32_t *lrmoeDeviceKeys(struct lrmoeElision *elision) {
  return score(elision) == lrmoeSuccess ? elision->comm->device->host.data
                                        : NULL;
}

/* ---- Crossing ---- */

/* Rows that stay, one after the other. */
static int64_t *listRows(const uint8_t *bits, int64_t count, int64_t *list) {
  for (int64_t row = 0; row < count; row++)
    if (lrmoeBitOf(bits, row)) *list++ = row;
  return list;
}

/* Where each row is among those that came, -1: nowhere. */
static int64_t *placeRows(const struct lrmoeElisionPeer *peer, int64_t count,
                          int64_t *list) {
  int64_t packed = 0;
  for (int64_t row = 0; row < count; row++) {
    int isThere = lrmoeBitOf(peer->recvBits, row);
    int64_t place = peer->recvRows < 0 ? row : packed;
    *list++ = isThere ? place : -1;
    packed += isThere;
  }
  return list;
}

/* The lists of all messages with bits: those sent, then those received. */
static lrmoeResult_t pushLists(const struct lrmoeElision *elision) {
  struct lrmoePreloadDevice *device = elision->comm->device;
  int64_t *first = device->host.data, *end = first;
  int numRanks = elision->comm->numRanks;
  for (int rank = 0; rank < numRanks; rank++) {
    const struct lrmoeElisionPeer *peer = &elision->peers[rank];
    if (peer->sendBits)
      end = listRows(peer->sendBits, rowsIn(elision, peer->send), end);
  }
  for (int rank = 0; rank < numRanks; rank++) {
    const struct lrmoeElisionPeer *peer = &elision->peers[rank];
    if (peer->recvBits) end = placeRows(peer, rowsIn(elision, peer->recv), end);
  }
  if (end != first)
    LRMOE_RUN(device->backend, copy, device->words.data, first,
              (size_t)(end - first) * sizeof *first, lrmoeCopyToDevice,
              elision->peers[0].send->stream);
  return lrmoeSuccess;
}

/* Rows as bf16, whatever they are: bits are copied. */
static lrmoeResult_t gatherRows(const struct lrmoeElision *elision,
                                const void *from, const int64_t *index,
                                int64_t count, void *to) {
  const struct lrmoeGather args = {
      {from, index, lrmoeBfloat16, elision->rowBytes / 2},
      count,
      lrmoeBfloat16,
      to};
  if (count)
    LRMOE_RUN(elision->comm->device->backend, gather, &args,
              elision->peers[0].send->stream);
  return lrmoeSuccess;
}

static lrmoeResult_t packAll(const struct lrmoeElision *elision) {
  const struct lrmoePreloadDevice *device = elision->comm->device;
  const int64_t *index = device->words.data;
  char *packed = device->sendRows.data;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    const struct lrmoeElisionPeer *peer = &elision->peers[rank];
    if (!peer->sendBits) continue;
    LRMOE_CHECK(
        gatherRows(elision, peer->send->send, index, peer->sendRows, packed));
    index += peer->sendRows;
    packed += peer->sendRows * elision->rowBytes;
  }
  return lrmoeSuccess;
}

/* Bytes that land in staging in place of a message. */
static int64_t landedBytes(const struct lrmoeElision *elision,
                           const struct lrmoeElisionPeer *peer) {
  return peer->recvRows < 0 ? peer->recv->bytes
                            : peer->recvRows * elision->rowBytes;
}

static lrmoeResult_t sendTo(const struct lrmoePreloadReal *real,
                            const struct lrmoeElision *elision, int rank,
                            char **packed) {
  const struct lrmoeElisionPeer *peer = &elision->peers[rank];
  int64_t bytes = peer->sendRows * elision->rowBytes;
  if (!peer->sendBits) return lrmoePreloadForward(real, peer->send);
  char *rows = *packed;
  *packed += bytes;
  elision->comm->traffic.wireBytes[rank] += bytes;
  return bytes ? real->send(rows, (size_t)bytes, lrmoeUint8, rank,
                            elision->comm->handle, peer->send->stream)
               : lrmoeSuccess;
}

static lrmoeResult_t recvFrom(const struct lrmoePreloadReal *real,
                              const struct lrmoeElision *elision, int rank,
                              char **landed) {
  const struct lrmoeElisionPeer *peer = &elision->peers[rank];
  if (!peer->recvBits) return lrmoePreloadForward(real, peer->recv);
  int64_t bytes = landedBytes(elision, peer);
  char *rows = *landed;
  *landed += bytes;
  return bytes ? real->recv(rows, (size_t)bytes, lrmoeUint8, rank,
                            elision->comm->handle, peer->recv->stream)
               : lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceIssue(const struct lrmoePreloadReal *real,
                               const struct lrmoeElision *elision) {
  char *packed = elision->comm->device->sendRows.data;
  char *landed = elision->comm->device->recvRows.data;
  LRMOE_CHECK(pushLists(elision));
  LRMOE_CHECK(packAll(elision));
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    LRMOE_CHECK(sendTo(real, elision, rank, &packed));
    LRMOE_CHECK(recvFrom(real, elision, rank, &landed));
  }
  return lrmoeSuccess;
}

static lrmoeResult_t placeAll(const struct lrmoeElision *elision) {
  const struct lrmoePreloadDevice *device = elision->comm->device;
  const int64_t *index = device->words.data;
  const char *landed = device->recvRows.data;
  for (int rank = 0; rank < elision->comm->numRanks; rank++)
    if (elision->peers[rank].sendBits) index += elision->peers[rank].sendRows;
  for (int rank = 0; rank < elision->comm->numRanks; rank++) {
    const struct lrmoeElisionPeer *peer = &elision->peers[rank];
    if (!peer->recvBits) continue;
    int64_t count = rowsIn(elision, peer->recv);
    LRMOE_CHECK(gatherRows(elision, landed, index, count, peer->recv->recv));
    index += count;
    landed += landedBytes(elision, peer);
  }
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeDeviceFinish(const struct lrmoeElision *elision) {
  const struct lrmoePreloadDevice *device = elision->comm->device;
  LRMOE_CHECK(placeAll(elision));
  LRMOE_RUN(device->backend, eventRecord, device->event,
            elision->peers[0].send->stream);
  return lrmoeSuccess;
}
