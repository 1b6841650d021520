/* What one rank's staged backward costs at the paper's shape, counted.
 *
 * Each stage's kernels run on the emulator, on few rows of full width, and what
 * they load and store is counted there; a routing of the paper's size says how
 * many rows, pairs and tokens there are.  Every byte is charged to the memory,
 * also where a cache would have it.  FLOPs of GEMMs and bytes of links are
 * counted from the same routing, the read-modify-write of main gradients from
 * the weights, and rows that a rank sends to itself as a copy; GEMMs' operands are taken to hide behind their FLOPs.
 *
 *   H 2048, F 768, 128 experts, top-8, 8 ranks of 32768 tokens, retention 0.7,
 *   bf16; 370 GB/s links, 4.3 TB/s memory, 680 TFLOP/s GEMMs.
 *
 * The table is printed; perf/README.md shows it. */
#include "mirror.h"
#include "routes.h"

#include <stdio.h>
#include <stdlib.h>

enum {
  hidden = 2048,
  ffn = 768,
  numExperts = 128,
  topk = 8,
  numRanks = 8,
  expertsPerRank = numExperts / numRanks,
  numTokens = 32768,
  keptOfTen = 7,
  rowBytes = 2 * hidden,
  sample = 64, /* rows of a stage on the emulator */
  maxStages = 16
};

static const double linkBytes = 370e9;
static const double memoryBytes = 4.3e12;
static const double gemmFlops = 680e12;
static const double limitMs = 9.8;

/* Of one rank, which all are alike. */
struct routing {
  int64_t pairs;
  int64_t kept;
  int64_t rows; /* distinct (token, rank) of kept pairs */
};

struct stage {
  const char *name;
  int64_t bytes; /* of memory, or of links */
  int64_t flops;
  double ms;
};

struct account {
  struct stage stages[maxStages];
  int numStages;
  double ms;
};

/* ---- Routing ---- */

static int takeExpert(struct naiveRandom *random, uint8_t *isTaken) {
  for (;;) {
    int64_t e = naiveRandomBelow(random, numExperts);
    if (isTaken[e]) continue;
    isTaken[e] = 1;
    return (int)e;
  }
}

static struct routing routeTokens(void) {
  struct naiveRandom random = {1};
  struct routing routing = {0, 0, 0};
  for (int t = 0; t < numTokens; t++) {
    uint8_t isTaken[numExperts] = {0};
    uint8_t isSent[numRanks] = {0};
    for (int slot = 0; slot < topk; slot++) {
      int rank = takeExpert(&random, isTaken) / expertsPerRank;
      routing.pairs++;
      if (naiveRandomBelow(&random, 10) >= keptOfTen) continue;
      routing.kept++;
      routing.rows += !isSent[rank];
      isSent[rank] = 1;
    }
  }
  return routing;
}

/* ---- Counting ---- */

static void add(struct account *account, const char *name, double bytes,
                double bytesPerSecond) {
  struct stage *stage = &account->stages[account->numStages++];
  ck_assert_int_le(account->numStages, maxStages);
  *stage =
      (struct stage){name, (int64_t)bytes, 0, bytes / bytesPerSecond * 1e3};
  account->ms += stage->ms;
}

static void addFlops(struct account *account, const char *name, double flops) {
  struct stage *stage = &account->stages[account->numStages++];
  ck_assert_int_le(account->numStages, maxStages);
  *stage = (struct stage){name, 0, (int64_t)flops, flops / gemmFlops * 1e3};
  account->ms += stage->ms;
}

static void addUp(const char *kernel, const struct simtCounters *what,
                  void *user) {
  (void)kernel;
  *(int64_t *)user += what->bytesLoaded + what->bytesStored;
}

/* Bytes of all kernels since the last call. */
static double countBytes(void) {
  int64_t bytes = 0;
  ASSERT_SYNCHRONIZED();
  simtVisitCounters(addUp, &bytes);
  simtResetCounters();
  ck_assert_int_gt(bytes, 0);
  return (double)bytes;
}

static struct mirror *randomRows(struct naiveRandom *random, int64_t numRows,
                                 int64_t width) {
  return mirrorRows(random, lrmoeBfloat16, numRows * width, 0);
}

/* ---- Stages ---- */

static double normsOfToken(struct naiveRandom *random) {
  const struct mirror *g = randomRows(random, sample, hidden);
  const struct mirror *out = mirrorRoom(sample * sizeof(float));
  const struct lrmoeNorms args = {
      {g->at[onDevice], NULL, lrmoeBfloat16, hidden},
      sample,
      0,
      out->at[onDevice]};
  ASSERT_RUN(onDevice, norms, &args, NULL);
  return countBytes() / sample;
}

static double scoresOfPair(struct naiveRandom *random) {
  const int64_t count = 4096;
  const struct mirror *floats = mirrorRows(random, lrmoeFloat32, count, 0);
  const struct mirror *tokens = mirrorRandomIndices(random, count, count, 0);
  const struct mirror *keys = mirrorRoom((size_t)count * sizeof(uint32_t));
  const struct lrmoeScores args = {
      .metric = lrmoeMetricLrm,
      .numPairs = count,
      .weights = floats->at[onDevice],
      .phiNorms = floats->at[onDevice],
      .tokens = tokens->at[onDevice],
      .gNorms = floats->at[onDevice],
      .keys = keys->at[onDevice],
  };
  ASSERT_RUN(onDevice, scores, &args, NULL);
  return countBytes() / (double)count;
}

/* Keys of all ranks into expert order, and the selection, per key. */
static double selectionOfKey(struct naiveRandom *random) {
  const int64_t count = 16384;
  const int64_t none[] = {0};
  const int64_t whole[] = {0, 16384};
  const int64_t quota[] = {16384 * keptOfTen / 10};
  const struct mirror *keys = mirrorRows(random, lrmoeFloat32, count, 0);
  const struct mirror *moved = mirrorRoom((size_t)count * sizeof(uint32_t));
  const struct mirror *flags = mirrorRoom((size_t)count);
  const struct mirror *start = mirrorIndices(none, 1);
  const struct mirror *offsets = mirrorIndices(whole, 2);
  const struct mirror *quotas = mirrorIndices(quota, 1);
  const struct lrmoePieces pieces = {1,
                                     count,
                                     start->at[onDevice],
                                     start->at[onDevice],
                                     (const int64_t *)offsets->at[onDevice] + 1,
                                     keys->at[onDevice],
                                     moved->at[onDevice]};
  const struct lrmoeSelection selection = {1,
                                           count,
                                           offsets->at[onDevice],
                                           quotas->at[onDevice],
                                           moved->at[onDevice],
                                           flags->at[onDevice]};
  ASSERT_RUN(onDevice, copyPieces, &pieces, NULL);
  ASSERT_RUN(onDevice, selectTop, &selection, NULL);
  return countBytes() / (double)count;
}

/* Tokens that are spread to numRows rows. */
static double packOf(struct naiveRandom *random, int64_t tokens,
                     int64_t numRows) {
  int64_t *lists = malloc((size_t)(tokens + 1 + numRows) * sizeof *lists);
  ck_assert_ptr_nonnull(lists);
  for (int64_t t = 0; t <= tokens; t++)
    lists[t] = numRows * t / tokens;
  for (int64_t i = 0; i < numRows; i++)
    lists[tokens + 1 + i] = numRows - 1 - i;
  const struct mirror *g = randomRows(random, tokens, hidden);
  const struct mirror *device = mirrorIndices(lists, tokens + 1 + numRows);
  const struct mirror *out = mirrorRoom((size_t)numRows * rowBytes);
  const int64_t *offsets = device->at[onDevice];
  const struct lrmoeSpread args = {
      {g->at[onDevice], NULL, lrmoeBfloat16, hidden},
      tokens,
      offsets,
      offsets + tokens + 1,
      out->at[onDevice]};
  free(lists);
  ASSERT_RUN(onDevice, spread, &args, NULL);
  return countBytes();
}

/* numRows rows that are added into numOut. */
static double sumOf(struct naiveRandom *random, int64_t numRows,
                    int64_t numOut) {
  int64_t *offsets = malloc((size_t)(numOut + 1) * sizeof *offsets);
  ck_assert_ptr_nonnull(offsets);
  for (int64_t t = 0; t <= numOut; t++)
    offsets[t] = numRows * t / numOut;
  const struct mirror *rows = randomRows(random, numRows, hidden);
  const struct mirror *firsts = mirrorIndices(offsets, numOut + 1);
  const struct mirror *list = mirrorRandomIndices(random, numRows, numRows, 0);
  const struct mirror *out = mirrorRoom((size_t)numOut * rowBytes);
  const struct lrmoeGatherSum args = {
      {rows->at[onDevice], NULL, lrmoeBfloat16, hidden},
      numOut,
      firsts->at[onDevice],
      list->at[onDevice],
      NULL,
      out->at[onDevice]};
  free(offsets);
  ASSERT_RUN(onDevice, gatherSum, &args, NULL);
  return countBytes();
}

/* Kernels of an expert's backward, between its GEMMs. */
static double expertOfPair(struct naiveRandom *random) {
  const struct lrmoeExpertShape shape = {hidden, ffn, lrmoeBfloat16,
                                         lrmoeSwiglu, lrmoeWeightPost};
  const int64_t w1Count = 2 * (int64_t)ffn * hidden;
  const int64_t w2Count = (int64_t)ffn * hidden;
  const struct mirror *g = randomRows(random, sample, hidden);
  const struct mirror *x = randomRows(random, sample, hidden);
  const struct mirror *saved = randomRows(random, sample, 2 * ffn);
  const struct mirror *index = mirrorRandomIndices(random, sample, sample, 0);
  const struct mirror *alpha = mirrorRows(random, lrmoeFloat32, sample, 0);
  const struct mirror *dAlpha = mirrorRoom(sample * sizeof(float));
  const struct mirror *dx = mirrorRoom((size_t)sample * rowBytes);
  const struct mirror *w1 = mirrorRows(random, lrmoeBfloat16, w1Count, 0);
  const struct mirror *w2 = mirrorRows(random, lrmoeBfloat16, w2Count, 0);
  const struct mirror *dw1 = mirrorRows(random, lrmoeFloat32, w1Count, 0);
  const struct mirror *dw2 = mirrorRows(random, lrmoeFloat32, w2Count, 0);
  const struct lrmoeExpertBackward args = {
      .weights = {w1->at[onDevice], w2->at[onDevice], dw1->at[onDevice],
                  dw2->at[onDevice]},
      .numRows = sample,
      .g = {g->at[onDevice], index->at[onDevice], lrmoeBfloat16, hidden},
      .x = {x->at[onDevice], index->at[onDevice], lrmoeBfloat16, hidden},
      .saved = {saved->at[onDevice], index->at[onDevice], lrmoeBfloat16,
                2 * ffn},
      .alpha = alpha->at[onDevice],
      .dx = dx->at[onDevice],
      .dAlpha = dAlpha->at[onDevice],
  };
  struct lrmoeExpertContext *context = NULL;
  ASSERT_RUN(onDevice, expertOpen, &shape, NULL, &context);
  simtResetCounters();
  ASSERT_RUN(onDevice, expertBackward, context, 1, &args, NULL);
  double bytes = countBytes();
  backendOf(onDevice)->expertClose(context);
  return bytes / sample;
}

/* ---- The account ---- */

static void countStages(struct account *account) {
  struct naiveRandom random = {2};
  const struct routing routing = routeTokens();
  const double pairs = (double)routing.pairs;
  const double kept = (double)routing.kept;
  const double rows = (double)routing.rows;
  const double remote = (double)(numRanks - 1) / numRanks;
  const double weights = 3.0 * ffn * hidden * expertsPerRank;
  /* Sums keep the ratio of rows to pairs, and of rows to tokens. */
  const int64_t someRows = (int64_t)(sample * rows / kept);
  const int64_t someTokens = (int64_t)(sample * numTokens / rows);
  simtResetCounters();
  add(account, "norms of g", numTokens * normsOfToken(&random), memoryBytes);
  add(account, "scores", pairs * scoresOfPair(&random), memoryBytes);
  add(account, "wire: keys", pairs * numRanks * remote * 4, linkBytes);
  add(account, "select", pairs * numRanks * selectionOfKey(&random),
      memoryBytes);
  /* Tokens, more of them because ranges cost something, too. */
  const int64_t routed = 16 * (int64_t)sample;
  const struct routeShape shape = {numExperts, numRanks, topk, keptOfTen,
                                   routed};
  routeRun(&random, &shape);
  add(account, "route", numTokens / (double)routed * countBytes(), memoryBytes);
  add(account, "pack", rows / sample * packOf(&random, someTokens, sample),
      memoryBytes);
  add(account, "wire: rows out", rows * remote * rowBytes, linkBytes);
  add(account, "experts: gather, SwiGLU", kept * expertOfPair(&random),
      memoryBytes);
  addFlops(account, "experts: GEMMs", kept * 12 * hidden * ffn);
  add(account, "main gradients", weights * 2 * sizeof(float), memoryBytes);
  add(account, "sum per (token, rank)",
      kept / sample * sumOf(&random, sample, someRows), memoryBytes);
  add(account, "wire: rows home", rows * remote * rowBytes, linkBytes);
  add(account, "own rows, out and home", (1 - remote) * rows * 4 * rowBytes,
      memoryBytes);
  add(account, "sum per token",
      rows / sample * sumOf(&random, sample, someTokens), memoryBytes);
}

static void print(const struct account *account) {
  printf("| stage | MB | GFLOP | ms |\n|---|---|---|---|\n");
  for (int i = 0; i < account->numStages; i++) {
    const struct stage *stage = &account->stages[i];
    printf("| %s | %.0f | %.0f | %.3f |\n", stage->name,
           (double)stage->bytes / 1e6, (double)stage->flops / 1e9, stage->ms);
  }
  printf("| all, one after the other | | | %.2f |\n", account->ms);
}

START_TEST(stagedBackward) {
  struct account account = {.numStages = 0};
  countStages(&account);
  print(&account);
  ck_assert_double_le(account.ms, limitMs);
  mirrorFreeAll();
}
END_TEST

int main(void) {
  const TTest *const tests[] = {stagedBackward};
  return suiteRunTests("bytes", tests, sizeof tests / sizeof *tests, 300);
}
