/* Puts against the CPU's bits, and each end that a meeting can have.  One
 * device plays all ranks: their windows are arrays of its own. */
#include "mirror.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  numRanks = 3,
  rank = 1,
  width = 136, /* more than a warp takes at once */
  numRows = 37,
  room = 64 /* rows of a window */
};

/* ---- Puts ---- */

/* Windows of both sides and the table of their addresses, on its side. */
struct windows {
  struct mirror *rows[numRanks];
  struct mirror *table[numSides];
};

static struct windows makeWindows(lrmoeDataType_t type) {
  struct windows made;
  for (int side = 0; side < numSides; side++) {
    int64_t addresses[numRanks];
    for (int r = 0; r < numRanks; r++) {
      if (side == 0)
        made.rows[r] = mirrorRoom(room * width * naiveTypeBytes(type));
      addresses[r] = (int64_t)(intptr_t)made.rows[r]->at[side];
    }
    made.table[side] = mirrorIndices(addresses, numRanks);
  }
  return made;
}

static char *const *tableOf(const struct windows *windows, int side) {
  return windows->table[side]->at[side];
}

static void assertSameWindows(const struct windows *windows) {
  for (int r = 0; r < numRanks; r++)
    assertSameBytes(windows->rows[r], "window");
}

/* Each row to some ranks, at the next place there. */
static struct mirror *placeRows(struct naiveRandom *random,
                                struct mirror **offsets) {
  int64_t firsts[numRows + 1] = {0};
  int64_t places[numRows * numRanks];
  int64_t used[numRanks] = {0};
  int64_t count = 0;
  for (int t = 0; t < numRows; t++) {
    for (int r = 0; r < numRanks; r++)
      if (naiveRandomBelow(random, 2))
        places[count++] = lrmoePlaceOf(r, used[r]++);
    firsts[t + 1] = count;
  }
  *offsets = mirrorIndices(firsts, numRows + 1);
  return mirrorIndices(places, count);
}

/* Rows of the rank itself that are copied meanwhile, some of them. */
struct own {
  struct mirror *rows;
  struct mirror *index;
  struct mirror *isOwn;
  struct mirror *out;
};

static struct own makeOwn(struct naiveRandom *random, lrmoeDataType_t type,
                          int64_t count) {
  return (struct own){
      mirrorRows(random, type, numRows * width, 1),
      mirrorRandomIndices(random, count, numRows, 0),
      mirrorRandomIndices(random, count, count, 1),
      mirrorRoom((size_t)(count * width) * naiveTypeBytes(type))};
}

static struct lrmoeOwnRows ownOf(const struct own *own, lrmoeDataType_t type,
                                 int64_t count, int side) {
  return (struct lrmoeOwnRows){
      {own->rows->at[side], own->index->at[side], type, width},
      count,
      own->isOwn->at[side],
      own->out->at[side]};
}

static void runPut(lrmoeDataType_t type, int64_t isOpen, int64_t numPut,
                   int64_t numOwn) {
  struct naiveRandom random = {(uint64_t)type + 3};
  struct mirror *rows = mirrorRows(&random, type, numRows * width, 1);
  struct windows windows = makeWindows(type);
  struct mirror *offsets = NULL;
  struct mirror *list = placeRows(&random, &offsets);
  struct mirror *gate = mirrorIndices(&isOpen, 1);
  struct own own = makeOwn(&random, type, numOwn);
  for (int side = 0; side < numSides; side++) {
    const struct lrmoePut put = {{rows->at[side], NULL, type, width},
                                 numPut,
                                 offsets->at[side],
                                 list->at[side],
                                 tableOf(&windows, side),
                                 gate->at[side],
                                 ownOf(&own, type, numOwn, side)};
    ASSERT_RUN(side, putRows, &put, NULL);
  }
  ASSERT_SYNCHRONIZED();
  assertSameWindows(&windows);
  assertSameBytes(own.out, "own rows");
  mirrorFreeAll();
}

static void runPutSums(lrmoeDataType_t type) {
  struct naiveRandom random = {(uint64_t)type + 9};
  const int64_t bounds[numRanks + 1] = {0, 20, 20, 33};
  int64_t firsts[34] = {0};
  for (int i = 0; i < 33; i++)
    firsts[i + 1] = firsts[i] + 1 + naiveRandomBelow(&random, i == 7 ? 70 : 3);
  struct mirror *rows = mirrorRows(&random, type, numRows * width, 1);
  struct windows windows = makeWindows(type);
  struct mirror *offsets = mirrorIndices(firsts, 34);
  struct mirror *list = mirrorRandomIndices(&random, firsts[33], numRows, 0);
  struct mirror *limits = mirrorIndices(bounds, numRanks + 1);
  const int64_t isOpen = 1;
  struct mirror *gate = mirrorIndices(&isOpen, 1);
  for (int side = 0; side < numSides; side++) {
    const struct lrmoePutSums put = {
        .rows = {rows->at[side], NULL, type, width},
        .offsets = offsets->at[side],
        .list = list->at[side],
        .numRanks = numRanks,
        .first = rank,
        .maxOut = 20,
        .bounds = limits->at[side],
        .targets = tableOf(&windows, side),
        .gate = gate->at[side],
    };
    ASSERT_RUN(side, putSums, &put, NULL);
  }
  ASSERT_SYNCHRONIZED();
  for (int r = 0; r < numRanks; r++)
    assertSameElements(windows.rows[r], type, "window");
  mirrorFreeAll();
}

static const lrmoeDataType_t types[] = {lrmoeBfloat16, lrmoeFloat16,
                                        lrmoeFloat32};

START_TEST(putsAreTheCpus) {
  chooseOrder(_i);
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    runPut(types[i], 1, numRows, 0);
    runPut(types[i], 0, numRows, 9);
    runPut(types[i], 1, numRows, 9);
    runPut(types[i], 1, numRows, 60);
    runPut(types[i], 1, 0, 50);
    runPutSums(types[i]);
  }
}
END_TEST

/* ---- Meetings ---- */

/* Rank 1's meeting; the others' signals are what a test puts there. */
struct meeting {
  struct lrmoeMeet args;
  struct mirror *words[numRanks];
  struct mirror *gate;
  struct mirror *tags;
  enum side side;
};

static struct meeting openMeeting(enum side side, int64_t epoch) {
  struct meeting made = {.side = side};
  const int64_t zeros[2 * numRanks] = {0};
  const int64_t offsets[2 * numRanks + 2] = {3, 8, 14, 21, 0, 2, 8, 12};
  const int64_t tags[numRanks] = {INT64_MIN, INT64_MIN, INT64_MIN};
  int64_t addresses[numRanks];
  void *watch = NULL;
  for (int r = 0; r < numRanks; r++) {
    made.words[r] = mirrorIndices(zeros, 2 * numRanks);
    addresses[r] = (int64_t)(intptr_t)made.words[r]->at[side];
  }
  struct mirror *table = mirrorIndices(addresses, numRanks);
  struct mirror *counts = mirrorIndices(offsets, 2 * numRanks + 2);
  made.tags = mirrorIndices(tags, numRanks);
  made.gate = mirrorIndices(zeros, 1);
  ASSERT_RUN(side, hostAlloc, sizeof(struct lrmoeWatch), &watch);
  memset(watch, 0, sizeof(struct lrmoeWatch));
  made.args = (struct lrmoeMeet){
      .rank = rank,
      .numRanks = numRanks,
      .epoch = epoch,
      .words = table->at[side],
      .sent = counts->at[side],
      .expected = (int64_t *)counts->at[side] + numRanks + 1,
      .tags = made.tags->at[side],
      .watch = watch,
      .gate = made.gate->at[side],
      .timeoutMs = 60000,
  };
  return made;
}

static void copyWords(const struct meeting *meeting, int of, int64_t *words,
                      int isToDevice) {
  void *there = meeting->words[of]->at[meeting->side];
  size_t bytes = 2 * numRanks * sizeof *words;
  ASSERT_RUN(meeting->side, copy, isToDevice ? there : (void *)words,
             isToDevice ? (void *)words : there, bytes,
             isToDevice ? lrmoeCopyToDevice : lrmoeCopyToHost, NULL);
  ASSERT_RUN(meeting->side, synchronize, NULL);
}

/* What rank `from` has signalled to this one. */
static void signalFrom(const struct meeting *meeting, int from, int64_t word) {
  int64_t words[2 * numRanks];
  copyWords(meeting, rank, words, 0);
  words[meeting->args.epoch % 2 * numRanks + from] = word;
  copyWords(meeting, rank, words, 1);
}

static void run(struct meeting *meeting) {
  ASSERT_RUN(meeting->side, enter, &meeting->args, NULL);
  ASSERT_RUN(meeting->side, meet, &meeting->args, NULL);
  ASSERT_RUN(meeting->side, synchronize, NULL);
  ck_assert_int_eq(meeting->args.watch->numEntered, meeting->args.epoch);
  ck_assert_int_eq(meeting->args.watch->numLeft, meeting->args.epoch);
}

/* The words that this rank has left at rank 2. */
static int64_t leftAt(const struct meeting *meeting, int half) {
  int64_t words[2 * numRanks];
  copyWords(meeting, 2, words, 0);
  return words[half * numRanks + rank];
}

static void closeMeeting(const struct meeting *meeting) {
  ASSERT_RUN(meeting->side, hostFree, meeting->args.watch);
  mirrorFreeAll();
}

static void goodMeeting(enum side side) {
  struct meeting m = openMeeting(side, 8);
  signalFrom(&m, 0, lrmoeSignalOf(8, 2));
  signalFrom(&m, 2, lrmoeSignalOf(8, 4));
  run(&m);
  ck_assert_int_eq(m.args.watch->status, lrmoeMeetingGood);
  ck_assert_int_eq(leftAt(&m, 0), lrmoeSignalOf(8, 7));
  ck_assert_int_eq(leftAt(&m, 1), 0);
  closeMeeting(&m);
}

/* Peers that must not wait find spoiled words. */
static void badMeeting(enum side side, int64_t word, enum lrmoeMeeting want) {
  struct meeting m = openMeeting(side, 7);
  signalFrom(&m, 0, lrmoeSignalOf(7, 2));
  if (word) signalFrom(&m, 2, word);
  if (want == lrmoeMeetingLate) m.args.timeoutMs = 30;
  run(&m);
  ck_assert_int_eq(m.args.watch->status, want);
  ck_assert_int_eq(m.args.watch->peer, 2);
  ck_assert_int_eq(m.args.watch->expected, 4);
  if (want == lrmoeMeetingCount) ck_assert_int_eq(m.args.watch->got, 3);
  ck_assert_int_eq(leftAt(&m, 0), lrmoeSignalSpoiled);
  ck_assert_int_eq(leftAt(&m, 1), lrmoeSignalSpoiled);
  m.args.epoch++; /* the next one does nothing */
  run(&m);
  closeMeeting(&m);
}

static void *raise(void *watch) {
  const struct timespec nap = {0, 20000000};
  nanosleep(&nap, NULL);
  __atomic_store_n(&((struct lrmoeWatch *)watch)->isStopped, 1,
                   __ATOMIC_SEQ_CST);
  return NULL;
}

static int64_t gateOf(const struct meeting *meeting) {
  int64_t gate = 1;
  ASSERT_RUN(meeting->side, copy, &gate, meeting->gate->at[meeting->side],
             sizeof gate, lrmoeCopyToHost, NULL);
  ASSERT_RUN(meeting->side, synchronize, NULL);
  return gate;
}

/* A peer that does something else is not waited for: it knows itself. */
static void otherMeeting(enum side side) {
  struct meeting m = openMeeting(side, 7);
  const int64_t tags[numRanks] = {5, 5, 6};
  struct mirror *other = mirrorIndices(tags, numRanks);
  m.args.tags = other->at[side];
  run(&m);
  ck_assert_int_eq(m.args.watch->status, lrmoeMeetingOther);
  ck_assert_int_eq(m.args.watch->peer, 2);
  ck_assert_int_eq(gateOf(&m), 0);
  ck_assert_int_eq(leftAt(&m, 0), 0);
  closeMeeting(&m);
}

/* The flag ends a wait that would be long, and closes the gate. */
static void stoppedMeeting(enum side side) {
  pthread_t thread;
  struct meeting m = openMeeting(side, 7);
  signalFrom(&m, 0, lrmoeSignalOf(7, 2));
  ck_assert_int_eq(pthread_create(&thread, NULL, raise, m.args.watch), 0);
  run(&m);
  pthread_join(thread, NULL);
  m.args.epoch++;
  run(&m);
  ck_assert_int_eq(gateOf(&m), 0);
  closeMeeting(&m);
}

START_TEST(meetingsEnd) {
  for (int side = 0; side < numSides; side++) {
    chooseOrder(_i);
    goodMeeting((enum side)side);
    badMeeting((enum side)side, lrmoeSignalOf(7, 3), lrmoeMeetingCount);
    badMeeting((enum side)side, lrmoeSignalSpoiled, lrmoeMeetingSpoiled);
    badMeeting((enum side)side, 0, lrmoeMeetingLate);
    badMeeting((enum side)side, lrmoeSignalOf(5, 4), lrmoeMeetingLate);
    stoppedMeeting((enum side)side);
    otherMeeting((enum side)side);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("fused");
  const TTest *const tests[] = {putsAreTheCpus, meetingsEnd};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
    TCase *group = tcase_create(tests[i]->name);
    tcase_set_timeout(group, 120);
    tcase_add_loop_test(group, tests[i], 0, i ? 3 : numOrders);
    suite_add_tcase(suite, group);
  }
  return suiteRun(suite);
}
