/* The board in memory: see board.h.
 *
 *   head | matrix [n][n] | splits [2][n] | records of even exchanges [n] | of
 *   odd ones [n]
 *
 * Two sets of records are enough: a rank that publishes exchange k + 2 has seen
 * all records of k + 1, and a rank publishes k + 1 when it is done with k. */
#include "plugin/preload/board.h"

#include "base/alloc.h"
#include "plugin/preload/board_map.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* `state` counts the records of all exchanges; its top bit: withdrawn. */
struct head {
  uint64_t magic;
  _Atomic uint64_t state;
  _Atomic uint32_t bell; /* changes with state */
  _Atomic int32_t numLeft;
  char pad[40];
};

struct split {
  _Atomic uint64_t number; /* one more than the split's; last */
  int32_t color;
  int32_t key;
};

struct lrmoeBoard {
  struct head *head;
  int64_t bytes;
  int64_t recordBytes;
  int numRanks;
  int rank;
};

static const uint64_t boardMagic = 0x6c726d6f65627264;
static const uint64_t withdrawn = UINT64_C(1) << 63;

enum {
  pageBytes = 4096,
  mostBits = 8 << 20 /* bytes of bits a rank, fewer with many ranks */
};

static int64_t roundUp(int64_t bytes) {
  return (bytes + pageBytes - 1) / pageBytes * pageBytes;
}

static int64_t peersBytes(int numRanks) {
  return (int64_t)sizeof(struct lrmoeBoardRecord) +
         numRanks * (int64_t)sizeof(struct lrmoeBoardPeer);
}

static int64_t recordBytesOf(int numRanks) {
  int64_t bits = mostBits;
  while (bits * numRanks > 64 * (int64_t)mostBits)
    bits /= 2;
  return roundUp(peersBytes(numRanks)) + bits;
}

static int64_t matrixBytesOf(int numRanks) {
  return roundUp((int64_t)sizeof(struct head) +
                 (int64_t)numRanks * numRanks * 8 +
                 2 * (int64_t)numRanks * (int64_t)sizeof(struct split));
}

static int64_t boardBytesOf(int numRanks) {
  return matrixBytesOf(numRanks) +
         2 * (int64_t)numRanks * recordBytesOf(numRanks);
}

int lrmoeBoardFile(int numRanks) {
  int file = memfd_create("lrmoe-preload", MFD_CLOEXEC);
  if (file < 0) return -1;
  struct head head = {.magic = boardMagic};
  if (ftruncate(file, boardBytesOf(numRanks)) ||
      pwrite(file, &head, sizeof head, 0) != (ssize_t)sizeof head) {
    close(file);
    return -1;
  }
  return file;
}

struct lrmoeBoard *lrmoeBoardMap(int file, int numRanks, int rank) {
  struct stat about;
  struct lrmoeBoard *board = NULL;
  int64_t bytes = boardBytesOf(numRanks);
  if (fstat(file, &about) || about.st_size != bytes) return NULL;
  void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) return NULL;
  struct head *head = memory;
  if (head->magic != boardMagic || LRMOE_ALLOCATE(1, &board) != lrmoeSuccess) {
    munmap(memory, (size_t)bytes);
    return NULL;
  }
  *board =
      (struct lrmoeBoard){head, bytes, recordBytesOf(numRanks), numRanks, rank};
  return board;
}

void lrmoeBoardRefuse(int file) {
  static const uint64_t bits = UINT64_C(1) << 63;
  const uint8_t *bytes = (const uint8_t *)&bits;
  size_t top = bytes[0] ? 0 : sizeof bits - 1;
  ssize_t written =
      pwrite(file, bytes + top, 1, (off_t)(offsetof(struct head, state) + top));
  (void)written; /* then the others wait for their time-out, once */
}

void lrmoeBoardClose(struct lrmoeBoard *board) {
  if (!board) return;
  munmap(board->head, (size_t)board->bytes);
  lrmoeFree(board);
}

/* ---- Records ---- */

static char *recordAt(struct lrmoeBoard *board, uint64_t k, int rank) {
  int64_t index = (int64_t)(k % 2) * board->numRanks + rank;
  return (char *)board->head + matrixBytesOf(board->numRanks) +
         index * board->recordBytes;
}

struct lrmoeBoardRecord *lrmoeBoardMine(struct lrmoeBoard *board, uint64_t k) {
  return (struct lrmoeBoardRecord *)(void *)recordAt(board, k, board->rank);
}

const struct lrmoeBoardRecord *lrmoeBoardOf(struct lrmoeBoard *board,
                                            uint64_t k, int rank) {
  return (const struct lrmoeBoardRecord *)(void *)recordAt(board, k, rank);
}

uint8_t *lrmoeBoardBits(const struct lrmoeBoard *board,
                        const struct lrmoeBoardRecord *record) {
  return (uint8_t *)record + roundUp(peersBytes(board->numRanks));
}

int64_t lrmoeBoardRoom(const struct lrmoeBoard *board) {
  return board->recordBytes - roundUp(peersBytes(board->numRanks));
}

/* ---- State ---- */

static void ring(struct lrmoeBoard *board) {
  atomic_fetch_add(&board->head->bell, 1);
  syscall(SYS_futex, &board->head->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static uint64_t numFor(const struct lrmoeBoard *board, uint64_t k) {
  return (k + 1) * (uint64_t)board->numRanks;
}

int lrmoeBoardPublish(struct lrmoeBoard *board) {
  uint64_t state = atomic_load(&board->head->state);
  do {
    if (state & withdrawn) return 0;
  } while (
      !atomic_compare_exchange_weak(&board->head->state, &state, state + 1));
  ring(board);
  return 1;
}

int lrmoeBoardIsComplete(struct lrmoeBoard *board, uint64_t k) {
  static const struct timespec moment = {0, 2000000};
  uint32_t bell = atomic_load(&board->head->bell);
  for (int look = 0; look < 2; look++) {
    uint64_t state = atomic_load(&board->head->state);
    if ((state & ~withdrawn) >= numFor(board, k)) return 1;
    if (state & withdrawn) return 0;
    if (!look)
      syscall(SYS_futex, &board->head->bell, FUTEX_WAIT, bell, &moment, NULL,
              0);
  }
  return 0;
}

int lrmoeBoardIsWithdrawn(struct lrmoeBoard *board) {
  return (atomic_load(&board->head->state) & withdrawn) != 0;
}

int lrmoeBoardWithdraw(struct lrmoeBoard *board, uint64_t k) {
  uint64_t state = atomic_load(&board->head->state);
  do {
    if ((state & ~withdrawn) >= numFor(board, k)) return 0;
    if (state & withdrawn) return 1;
  } while (!atomic_compare_exchange_weak(&board->head->state, &state,
                                         state | withdrawn));
  ring(board);
  return 1;
}

/* ---- Splits ---- */

static struct split *splitAt(struct lrmoeBoard *board, uint64_t number,
                             int rank) {
  int64_t numRanks = board->numRanks;
  int64_t *matrix = (int64_t *)(void *)(board->head + 1);
  struct split *splits = (struct split *)(void *)(matrix + numRanks * numRanks);
  return splits + (int64_t)(number % 2) * numRanks + rank;
}

void lrmoeBoardPutSplit(struct lrmoeBoard *board, uint64_t number,
                        int32_t color, int32_t key) {
  struct split *split = splitAt(board, number, board->rank);
  split->color = color;
  split->key = key;
  atomic_store(&split->number, number + 1);
}

int lrmoeBoardGetSplit(struct lrmoeBoard *board, uint64_t number, int rank,
                       int32_t *color, int32_t *key) {
  struct split *split = splitAt(board, number, rank);
  if (atomic_load(&split->number) != number + 1) return 0;
  *color = split->color;
  *key = split->key;
  return 1;
}

/* ---- Report ---- */

static int64_t *rowAt(struct lrmoeBoard *board, int rank) {
  return (int64_t *)(void *)(board->head + 1) + (int64_t)rank * board->numRanks;
}

const int64_t *lrmoeBoardRow(struct lrmoeBoard *board, int rank) {
  return rowAt(board, rank);
}

int lrmoeBoardLeave(struct lrmoeBoard *board, const int64_t *sent) {
  memcpy(rowAt(board, board->rank), sent,
         (size_t)board->numRanks * sizeof *sent);
  return atomic_fetch_add(&board->head->numLeft, 1) + 1 == board->numRanks;
}
