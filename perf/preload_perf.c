/* preload_perf: liblrmoe_preload.so under a program that knows NCCL only.
 *
 * An all-to-all of host memory over the stand-in for NCCL, with 0 to 60 % of
 * the rows zero, without the library and in each of its modes; in "calibrate"
 * none is zero and hints let so many stay behind, by the library's own choice,
 * which is what identical compares with there.  A set of ranks
 * is started for each measurement, modes by turns; a time is that of the
 * slowest rank, and a ratio is of the modes of one round.  Bytes are of one
 * more run, whose report has them. */
#include "perf/preload_perf.h"

#include "lrmoe.h"
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const modes[] = {"none",     "off",   "observe",
                                    "schedule", "elide", "calibrate"};
static const double fractions[] = {0.0, 0.15, 0.30, 0.60};

enum {
  numModes = sizeof modes / sizeof *modes,
  numFractions = sizeof fractions / sizeof *fractions,
  maxRounds = 101
};

static struct {
  int64_t numRanks, numRows, rowBytes, numIterations, numRounds;
  const char *library;
} options = {4, 512, 2048, 10, 9, PRELOAD_FILE};

static char **programArguments;

/* Order and results, as the ranks see them; mapped from one file. */
struct shared {
  struct preloadOrder order;
  struct preloadResult results[preloadMaxRanks];
  uint8_t kept[]; /* [G, G * rows] by hints */
};

static size_t sharedBytes(void) {
  return sizeof(struct shared) +
         (size_t)(options.numRanks * options.numRanks * options.numRows);
}

/* ---- Ranks ---- */

static struct shared *mapShared(int file) {
  void *memory =
      mmap(NULL, sharedBytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static int runAsRank(const char *text) {
  int rank = 0, file = 0;
  if (sscanf(text, "%d,%d", &rank, &file) != 2) return 2;
  struct shared *shared = mapShared(file);
  return !shared || preloadRankMain(&shared->order, rank, shared->kept,
                                    &shared->results[rank]);
}

/* report: a file, or NULL. */
static void becomeRank(int rank, int file, const char *mode,
                       const char *report) {
  char text[32], rowBytes[24];
  snprintf(text, sizeof text, "%d,%d", rank, file);
  snprintf(rowBytes, sizeof rowBytes, "%lld", (long long)options.rowBytes);
  setenv("LRMOE_PRELOAD_PERF_RANK", text, 1);
  setenv("LRMOE_ROW_BYTES", rowBytes, 1);
  setenv("LRMOE_PRELOAD", mode, 1);
  if (report)
    setenv("LRMOE_PRELOAD_REPORT", report, 1);
  else
    unsetenv("LRMOE_PRELOAD_REPORT");
  if (strcmp(mode, "none") != 0) setenv("LD_PRELOAD", options.library, 1);
  execv("/proc/self/exe", programArguments);
  _exit(127);
}

static enum toolExit runSet(struct shared *shared, int file, const char *mode,
                            const char *report, struct toolError *error) {
  pid_t pids[preloadMaxRanks];
  int numWrong = 0;
  memset(shared->results, 0, sizeof shared->results);
  if (preloadMakeId(shared->order.id))
    return toolFail(error, toolRunFailed, "ncclGetUniqueId failed");
  fflush(NULL);
  for (int rank = 0; rank < options.numRanks; rank++) {
    pids[rank] = fork();
    if (!pids[rank]) becomeRank(rank, file, mode, report);
  }
  for (int rank = 0; rank < options.numRanks; rank++) {
    int status = 1;
    if (pids[rank] > 0) waitpid(pids[rank], &status, 0);
    numWrong += status || !shared->results[rank].isDone;
  }
  if (!numWrong) return toolGood;
  return toolFail(error, toolRunFailed, "mode %s: %d of %lld ranks failed",
                  mode, numWrong, (long long)options.numRanks);
}

static int isCalibrate(const char *mode) {
  return !strcmp(mode, "calibrate");
}

static void setRows(struct shared *shared, const char *mode, double fraction) {
  int isHinted = isCalibrate(mode);
  shared->order.hasHints = isHinted;
  shared->order.zeroFraction = isHinted ? 0 : fraction;
  shared->order.dropFraction = isHinted ? fraction : 0;
}

/* ---- Bytes ---- */

static double sumOf(const json_t *line, const char *key) {
  const json_t *value = json_object_get(line, key), *element;
  json_int_t own = json_integer_value(json_object_get(line, "rank"));
  size_t index;
  double sum = (double)json_integer_value(value);
  json_array_foreach(value, index, element) {
    if ((json_int_t)index != own) sum += (double)json_integer_value(element);
  }
  return sum;
}

/* What crossed, records beside NCCL too, over what the program asked for. */
static double readRatio(const char *path) {
  double asked = 0, crossed = 0;
  FILE *file = fopen(path, "r");
  for (json_t *line;
       file && (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL));
       json_decref(line)) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    if (!kind || strcmp(kind, "rank") != 0) continue;
    asked += sumOf(line, "sentBytes");
    crossed += sumOf(line, "wireBytes") + sumOf(line, "boardBytes");
  }
  if (file) fclose(file);
  return asked > 0 ? crossed / asked : NAN;
}

static enum toolExit measureBytes(struct shared *shared, int file,
                                  const char *mode, double *ratio,
                                  struct toolError *error) {
  char path[] = "/tmp/lrmoe_preload_perf_XXXXXX";
  *ratio = 1;
  if (!strcmp(mode, "none") || !strcmp(mode, "off")) return toolGood;
  int report = mkstemp(path);
  if (report < 0) return toolFail(error, toolRunFailed, "no file %s", path);
  close(report);
  enum toolExit code = runSet(shared, file, mode, path, error);
  if (code == toolGood) *ratio = readRatio(path);
  remove(path);
  return code;
}

/* ---- Rounds ---- */

struct series {
  double us[numModes][maxRounds];
  double callNs[numModes][maxRounds];
  double bytesRatio[numModes];
  uint64_t hash[numModes];
  int isIdentical[numModes];
};

static void note(const struct shared *shared, struct series *series, int mode,
                 int64_t round) {
  double slowest = 0, call = 0;
  uint64_t hash = 0;
  for (int rank = 0; rank < options.numRanks; rank++) {
    const struct preloadResult *result = &shared->results[rank];
    slowest = fmax(slowest, result->exchangeUs);
    call += result->callNs / (double)options.numRanks;
    hash = hash * 31 + result->hash;
  }
  series->us[mode][round] = slowest;
  series->callNs[mode][round] = call;
  if (!mode && !round) series->hash[0] = hash;
  for (int rank = 0; rank < options.numRanks && shared->order.hasHints; rank++)
    if (!shared->results[rank].isRight) series->isIdentical[mode] = 0;
  if (!shared->order.hasHints)
    series->isIdentical[mode] &= hash == series->hash[0];
}

static enum toolExit measure(struct shared *shared, int file, double fraction,
                             struct series *series, struct toolError *error) {
  setRows(shared, "calibrate", fraction);
  enum toolExit code = preloadChoose(&shared->order, shared->kept, error);
  for (int mode = 0; mode < numModes; mode++)
    series->isIdentical[mode] = 1;
  for (int64_t i = 0; i < options.numRounds * numModes && code == toolGood;
       i++) {
    int mode = (int)(i % numModes);
    setRows(shared, modes[mode], fraction);
    code = runSet(shared, file, modes[mode], NULL, error);
    if (code == toolGood) note(shared, series, mode, i / numModes);
  }
  for (int mode = 0; mode < numModes && code == toolGood; mode++) {
    setRows(shared, modes[mode], fraction);
    code = measureBytes(shared, file, modes[mode], &series->bytesRatio[mode],
                        error);
  }
  return code;
}

/* Medians over rounds of what each round gives; all rows identical? */
static int report(const struct series *series, double fraction,
                  struct toolTable *table) {
  int isIdentical = 1;
  for (int mode = 0; mode < numModes; mode++) {
    double us[maxRounds], ratios[maxRounds], overheads[maxRounds];
    for (int64_t i = 0; i < options.numRounds; i++) {
      us[i] = series->us[mode][i];
      ratios[i] = series->us[mode][i] / series->us[0][i];
      overheads[i] = series->callNs[mode][i] - series->callNs[0][i];
    }
    struct toolStats ratio = toolStatsMake(ratios, options.numRounds);
    toolTableText(table, modes[mode]);
    toolTableReal(table, fraction, 2);
    toolTableReal(table, series->bytesRatio[mode], 3);
    toolTableReal(table, toolStatsMake(us, options.numRounds).median, 1);
    toolTableReal(table, ratio.median, 2);
    toolTableReal(table, 100 * toolStatsSpread(&ratio), 1);
    toolTableReal(table, toolStatsMake(overheads, options.numRounds).median, 1);
    toolTableInt(table, series->isIdentical[mode]);
    isIdentical &= series->isIdentical[mode];
  }
  fflush(stdout);
  return isIdentical;
}

static const struct toolColumn columns[] = {{"mode", "", 10},
                                            {"zero_fraction", "of rows", 14},
                                            {"bytes_ratio", "x none", 12},
                                            {"time", "us", 10},
                                            {"time_ratio", "x none", 11},
                                            {"spread", "+-%", 7},
                                            {"overhead_ns", "a call", 12},
                                            {"identical", "", 10}};

static enum toolExit runAll(const struct toolProgram *program,
                            struct toolError *error) {
  struct toolTable table = {.out = stdout,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  struct series series;
  int isIdentical = 1, file = memfd_create("preload_perf", 0);
  struct shared *shared = NULL;
  if (file >= 0 && !ftruncate(file, (off_t)sharedBytes()))
    shared = mapShared(file);
  if (!shared) return toolFail(error, toolRunFailed, "no shared memory");
  enum toolExit code = toolJsonBegin(program, &table.json, error);
  if (code != toolGood) return code;
  toolTableNote(stdout, "%s %d.%d.%d: %lld ranks, %lld rows of %lld B a peer",
                program->name, LRMOE_MAJOR, LRMOE_MINOR, LRMOE_PATCH,
                (long long)options.numRanks, (long long)options.numRows,
                (long long)options.rowBytes);
  toolTableBegin(&table);
  for (int i = 0; i < numFractions && code == toolGood; i++) {
    memset(&series, 0, sizeof series);
    shared->order =
        (struct preloadOrder){.numRanks = options.numRanks,
                              .numRows = options.numRows,
                              .rowBytes = options.rowBytes,
                              .numIterations = options.numIterations};
    code = measure(shared, file, fractions[i], &series, error);
    if (code == toolGood) isIdentical &= report(&series, fractions[i], &table);
  }
  munmap(shared, sharedBytes());
  if (code != toolGood) {
    toolJsonDrop(table.json);
    return code;
  }
  code = toolJsonEnd(table.json, error);
  if (code != toolGood || isIdentical) return code;
  return toolFail(error, toolWrongData, "a mode changed what was received");
}

static const struct toolArg args[] = {
    {"ranks", 'g', TOOL_INTEGER(options.numRanks, 2, preloadMaxRanks),
     .help = "Ranks: processes of this machine."},
    {"rows", 'b', TOOL_INTEGER(options.numRows, 0, 1 << 20),
     .help = "Rows to each rank."},
    {"row-bytes", 0, TOOL_INTEGER(options.rowBytes, 16, 1 << 20),
     .help = "Bytes of a row, a multiple of 16."},
    {"iters", 'n', TOOL_INTEGER(options.numIterations, 1, 100000),
     .help = "Exchanges of a measurement, of which the median counts."},
    {"rounds", 'r', TOOL_INTEGER(options.numRounds, 1, maxRounds),
     .help = "Measurements of a mode."},
    {"library", 0, TOOL_TEXT(options.library),
     .help = "The library to preload."},
    {0}};

int main(int argc, char **argv) {
  struct toolProgram program = {
      .name = "preload_perf",
      .summary = "Bytes and time of all-to-alls under liblrmoe_preload.so.",
      .args = args};
  const char *rank = getenv("LRMOE_PRELOAD_PERF_RANK");
  programArguments = argv;
  toolArgsStart(&program, argc, argv);
  if (rank) return runAsRank(rank);
  struct toolError error = {{0}};
  enum toolExit code = toolGood;
  if (options.rowBytes % 16)
    code = toolFail(&error, toolBadInput,
                    "--row-bytes %lld is no multiple of "
                    "16, which rows of bf16 are",
                    (long long)options.rowBytes);
  else if (access(options.library, R_OK))
    code =
        toolFail(&error, toolNotInstalled, "there is no %s", options.library);
  else
    code = runAll(&program, &error);
  return code == toolGood ? 0 : (int)toolComplain(program.name, code, &error);
}
