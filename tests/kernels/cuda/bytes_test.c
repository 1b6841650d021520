/* What one rank's backward costs at the paper's shape, counted: staged, and
 * fused, where puts into peers' windows take the place of packing, messages and
 * copies.
 *
 * Each stage's kernels run on the emulator, on few rows of full width, and what
 * they load and store is counted there; a routing of the paper's size says how
 * many rows, pairs and tokens there are.  Every byte is charged to the memory,
 * also where a cache would have it.  FLOPs of GEMMs and bytes of links are
 * counted from the same routing, the read-modify-write of main gradients from
 * the weights, and rows that a rank sends to itself as a copy; GEMMs' operands
 * are taken to hide behind their FLOPs.
 *
 *   H 2048, F 768, 128 experts, top-8, 8 ranks of 32768 tokens, retention 0.7,
 *   bf16; 370 GB/s links, 4.3 TB/s memory, 680 TFLOP/s GEMMs.
 *
 * A put is one kernel that the memory and the links work for at the same time:
 * it takes as long as the slower of the two.  What it stores is charged to the
 * memory in full, since peers store as much here meanwhile.  Rows of x that are
 * packed are copied by the same kernel: each copy is counted in full.
 *
 * With overlap, which is a table of its own: the experts' slots
 * (kernels/cuda/engine.h) let one batch's gathers and SwiGLU run beside
 * another's GEMMs, so that a phase of the experts takes as long as the slower
 * of the two, and the second phase, the weight gradients, runs beside the
 * return.  What runs side by side takes as long as the slowest of: the GEMMs,
 * with the main gradients behind them; the sums on their way and then those at
 * the source; and all of its bytes of memory.
 *
 * The tables are printed; perf/README.md shows them. */
#include "bytes_stages.h"
#include "routes.h"

#include <math.h>
#include <stdio.h>

enum {
  maxStages = 16
};

static const double linkBytes = 370e9;
static const double memoryBytes = 4.3e12;
static const double gemmFlops = 680e12;
static const double stagedLimitMs = 9.8;
static const double fusedLimitsMs[] = {9.3, 8.9}; /* x gathered, packed */
static const double overlapLimitMs = 7.5;

/* Read, and written, in a backward. */
static const double mainGradients =
    3.0 * ffn * hidden * expertsPerRank * 2 * sizeof(float);

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

static double gemmMs(double flops) {
  return flops / gemmFlops * 1e3;
}

static double memoryMs(double bytes) {
  return bytes / memoryBytes * 1e3;
}

/* Memory and GEMMs at once, in a time of its own. */
static void addBoth(struct account *account, const char *name, double bytes,
                    double flops, double ms) {
  struct stage *stage = &account->stages[account->numStages++];
  ck_assert_int_le(account->numStages, maxStages);
  *stage = (struct stage){name, (int64_t)bytes, (int64_t)flops, ms};
  account->ms += ms;
}

static void addFlops(struct account *account, const char *name, double flops) {
  struct stage *stage = &account->stages[account->numStages++];
  ck_assert_int_le(account->numStages, maxStages);
  *stage = (struct stage){name, 0, (int64_t)flops, gemmMs(flops)};
  account->ms += stage->ms;
}

/* The memory and the links at once. */
static void addPut(struct account *account, const char *name, double bytes,
                   double wireBytes) {
  double slower = fmax(bytes / memoryBytes, wireBytes / linkBytes);
  add(account, name, bytes, bytes / slower);
}

/* ---- The account ---- */

/* What the stages are counted from. */
struct load {
  struct naiveRandom random;
  struct routing routing;
  double remote;      /* share of rows that cross */
  int64_t someRows;   /* sums keep the ratio of rows to pairs ... */
  int64_t someTokens; /* ... and of rows to tokens */
};

static struct load makeLoad(void) {
  struct load load = {.random = {2}, .routing = routeTokens()};
  double rows = (double)load.routing.rows;
  load.remote = (double)(numRanks - 1) / numRanks;
  load.someRows = (int64_t)(sample * rows / (double)load.routing.kept);
  load.someTokens = (int64_t)(sample * numTokens / rows);
  simtResetCounters();
  return load;
}

/* Up to the lists of the rows that cross. */
static void countSelection(struct load *load, struct account *account) {
  struct naiveRandom *random = &load->random;
  const double pairs = (double)load->routing.pairs;
  add(account, "norms of g", numTokens * normsOfToken(random), memoryBytes);
  add(account, "scores", pairs * scoresOfPair(random), memoryBytes);
  add(account, "wire: keys", pairs * numRanks * load->remote * 4, linkBytes);
  add(account, "select", pairs * numRanks * selectionOfKey(random),
      memoryBytes);
  /* Tokens, more of them because ranges cost something, too. */
  const int64_t routed = 16 * (int64_t)sample;
  const struct routeShape shape = {numExperts, numRanks, topk, keptOfTen,
                                   routed};
  routeRun(random, &shape);
  add(account, "route", numTokens / (double)routed * countBytes(), memoryBytes);
}

static void countExperts(struct load *load, struct account *account,
                         int isXPacked) {
  const double kept = (double)load->routing.kept;
  add(account, "experts: gather, SwiGLU",
      kept * expertOfPair(&load->random, isXPacked), memoryBytes);
  addFlops(account, "experts: GEMMs", kept * 12 * hidden * ffn);
  add(account, "main gradients", mainGradients, memoryBytes);
}

static void countStaged(struct load *load, struct account *account) {
  struct naiveRandom *random = &load->random;
  const double kept = (double)load->routing.kept;
  const double rows = (double)load->routing.rows;
  const double crossing = rows * load->remote * rowBytes;
  countSelection(load, account);
  add(account, "pack", rows / sample * packOf(random, load->someTokens, sample),
      memoryBytes);
  add(account, "wire: rows out", crossing, linkBytes);
  countExperts(load, account, 0);
  add(account, "sum per (token, rank)",
      kept / sample * sumOf(random, sample, load->someRows), memoryBytes);
  add(account, "wire: rows home", crossing, linkBytes);
  add(account, "own rows, out and home",
      (1 - load->remote) * rows * 4 * rowBytes, memoryBytes);
  add(account, "sum per token",
      rows / sample * sumOf(random, sample, load->someTokens), memoryBytes);
}

/* Bytes that a put sends over links, each way. */
static double crossingOf(const struct load *load) {
  return (double)load->routing.rows * load->remote * rowBytes;
}

static void countRowsOut(struct load *load, struct account *account,
                         int isXPacked) {
  countSelection(load, account);
  double put = (double)load->routing.rows / sample *
               putOf(&load->random, load->someTokens, sample);
  if (isXPacked)
    addPut(account, "put rows out, pack x",
           put + (double)load->routing.kept * copyOfOwn(&load->random),
           crossingOf(load));
  else
    addPut(account, "put rows out", put, crossingOf(load));
}

static void countFused(struct load *load, struct account *account,
                       int isXPacked) {
  struct naiveRandom *random = &load->random;
  const double kept = (double)load->routing.kept;
  const double rows = (double)load->routing.rows;
  const double crossing = crossingOf(load);
  countRowsOut(load, account, isXPacked);
  countExperts(load, account, isXPacked);
  addPut(account, "put sums per (token, rank)",
         kept / sample * putSumOf(random, sample, load->someRows), crossing);
  add(account, "sum per token",
      rows / sample * sumOf(random, sample, load->someTokens), memoryBytes);
}

static void countOverlapped(struct load *load, struct account *account) {
  struct naiveRandom *random = &load->random;
  const double kept = (double)load->routing.kept;
  const double rows = (double)load->routing.rows;
  const double half = kept * 6 * hidden * ffn;
  countRowsOut(load, account, 0);
  const struct expertPhases phases = expertPhasesOfPair(random);
  addBoth(account, "experts up to dX", kept * phases.first, half,
          fmax(memoryMs(kept * phases.first), gemmMs(half)));
  const double put = kept / sample * putSumOf(random, sample, load->someRows);
  const double sum = rows / sample * sumOf(random, sample, load->someTokens);
  const double all = kept * phases.later + mainGradients + put + sum;
  double homeMs =
      fmax(memoryMs(put), crossingOf(load) / linkBytes * 1e3) + memoryMs(sum);
  double gradientsMs = gemmMs(half) + memoryMs(mainGradients);
  addBoth(account, "weight gradients, beside rows home", all, half,
          fmax(fmax(homeMs, gradientsMs), memoryMs(all)));
}

static void print(const struct account *account) {
  printf("| stage | MB | GFLOP | ms |\n|---|---|---|---|\n");
  for (int i = 0; i < account->numStages; i++) {
    const struct stage *stage = &account->stages[i];
    printf("| %s | %.0f | %.0f | %.3f |\n", stage->name,
           (double)stage->bytes / 1e6, (double)stage->flops / 1e9, stage->ms);
  }
  printf("| all | | | %.2f |\n", account->ms);
}

START_TEST(stagedBackward) {
  struct account account = {.numStages = 0};
  struct load load = makeLoad();
  countStaged(&load, &account);
  print(&account);
  ck_assert_double_le(account.ms, stagedLimitMs);
  mirrorFreeAll();
}
END_TEST

START_TEST(fusedBackward) {
  struct account account = {.numStages = 0};
  struct load load = makeLoad();
  countFused(&load, &account, _i);
  print(&account);
  ck_assert_double_le(account.ms, fusedLimitsMs[_i]);
  mirrorFreeAll();
}
END_TEST

START_TEST(overlappedBackward) {
  struct account account = {.numStages = 0};
  struct load load = makeLoad();
  countOverlapped(&load, &account);
  print(&account);
  ck_assert_double_le(account.ms, overlapLimitMs);
  mirrorFreeAll();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("bytes");
  suiteAddTest(suite, 300, stagedBackward, 1);
  suiteAddTest(suite, 300, fusedBackward, 2);
  suiteAddTest(suite, 300, overlappedBackward, 1);
  return suiteRun(suite);
}
