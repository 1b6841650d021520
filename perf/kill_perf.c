/* kill_perf: what the ranks that are left say when one is killed.
 *
 * Again and again, ranks run all-to-alls and one of them gets SIGKILL at a
 * moment of chance.  Every survivor has to leave its call with
 * lrmoeRemoteError, naming the rank that died, within 2 s; nothing may stay
 * behind.  The time is that from the kill to the return of the last survivor.
 */
#include "tools/common/args.h"
#include "tools/common/json.h"
#include "tools/common/ranks.h"
#include "tools/common/stats.h"
#include "tools/common/table.h"
#include "tools/common/workload.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  maxRanks = 64,
  limitMs = 2000,
  hungMs = 10000, /* after which a survivor is given up */
  joinMs = 60000
};

static struct settings {
  int64_t numRanks;
  int64_t numKills;
  int64_t bytes;
  int64_t seed;
} settings = {4, 200, 4 << 20, 1};

/* What a rank tells the parent, in shared memory. */
struct testimony {
  _Atomic int64_t numTurns;
  _Atomic int64_t errorNs; /* when its call returned an error; 0: not yet */
  int32_t result;
  int32_t namesVictim;
  char text[200];
};

/* One kill. */
struct trial {
  struct testimony *testimonies; /* [numRanks], shared */
  lrmoeUniqueId id;
  int victim;
  pid_t pids[maxRanks];
  int64_t killNs;
};

struct verdict {
  int64_t numRight;
  int64_t numMisnamed; /* another result, or another name */
  int64_t numHung;
  int64_t numLate; /* right, but after the limit */
  double longestMs;
};

/* ---- A rank ------------------------------------------------------------ */

/* All-to-alls of several sizes out of the shared heap and ordinary memory. */
static lrmoeResult_t work(lrmoeComm_t comm, struct testimony *testimony) {
  size_t room = (size_t)(settings.bytes * settings.numRanks);
  char *sends[2] = {NULL, malloc(room)}, *recv = malloc(room);
  lrmoeResult_t result = lrmoeMemAlloc(room, (void **)&sends[0]);
  if (!sends[1] || !recv) result = lrmoeOutOfMemory;
  for (int64_t turn = 0; result == lrmoeSuccess; turn++) {
    size_t count = (size_t)settings.bytes >> turn % 4 * 5;
    result = lrmoeAllToAll(sends[turn % 2], recv, count, lrmoeInt8, comm, NULL);
    atomic_fetch_add(&testimony->numTurns, 1);
  }
  free(sends[1]);
  free(recv);
  return result;
}

static int runRank(struct trial *trial, int rank) {
  struct testimony *testimony = &trial->testimonies[rank];
  lrmoeComm_t comm = NULL;
  char name[32];
  if (lrmoeCommInitRank((int)settings.numRanks, &trial->id, rank, NULL,
                        &comm) != lrmoeSuccess)
    return 1;
  lrmoeResult_t result = work(comm, testimony);
  int64_t now = toolWallNs();
  snprintf(name, sizeof name, "rank %d has died", trial->victim);
  testimony->result = (int32_t)result;
  testimony->namesVictim = strstr(lrmoeGetLastError(), name) != NULL;
  snprintf(testimony->text, sizeof testimony->text, "%s", lrmoeGetLastError());
  atomic_store(&testimony->errorNs, now);
  lrmoeCommDestroy(comm);
  return 0;
}

/* ---- One kill ---------------------------------------------------------- */

static void sleepUs(int64_t us) {
  struct timespec pause = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&pause, NULL);
}

static enum toolExit startRanks(struct trial *trial, struct toolError *error) {
  if (lrmoeGetUniqueId(&trial->id) != lrmoeSuccess)
    return toolFail(error, toolRunFailed, "%s", lrmoeGetLastError());
  memset(trial->testimonies, 0,
         (size_t)settings.numRanks * sizeof *trial->testimonies);
  fflush(NULL);
  for (int rank = 0; rank < settings.numRanks; rank++) {
    trial->pids[rank] = fork();
    if (trial->pids[rank] == 0) exit(runRank(trial, rank));
    if (trial->pids[rank] < 0)
      return toolFail(error, toolRunFailed, "cannot fork rank %d", rank);
  }
  return toolGood;
}

/* Waits until the victim has made `numTurns` calls. */
static enum toolExit waitForTurns(const struct trial *trial, int64_t numTurns,
                                  struct toolError *error) {
  int64_t deadline = toolWallNs() + (int64_t)joinMs * 1000000;
  const struct testimony *victim = &trial->testimonies[trial->victim];
  while (atomic_load(&victim->numTurns) < numTurns) {
    if (toolWallNs() > deadline || atomic_load(&victim->errorNs))
      return toolFail(error, toolRunFailed,
                      "the ranks do not run: rank %d made %lld calls: %s",
                      trial->victim, (long long)victim->numTurns, victim->text);
    sleepUs(200);
  }
  return toolGood;
}

static int allHaveErrors(const struct trial *trial) {
  for (int rank = 0; rank < settings.numRanks; rank++)
    if (rank != trial->victim &&
        !atomic_load(&trial->testimonies[rank].errorNs))
      return 0;
  return 1;
}

static struct verdict judge(const struct trial *trial) {
  struct verdict verdict = {0};
  for (int rank = 0; rank < settings.numRanks; rank++) {
    const struct testimony *testimony = &trial->testimonies[rank];
    int64_t errorNs = atomic_load(&testimony->errorNs);
    double ms = (double)(errorNs - trial->killNs) * 1e-6;
    if (rank == trial->victim) continue;
    if (!errorNs) {
      verdict.numHung++;
      continue;
    }
    if (ms > verdict.longestMs) verdict.longestMs = ms;
    if (testimony->result != lrmoeRemoteError || !testimony->namesVictim) {
      verdict.numMisnamed++;
      fprintf(stderr, "rank %d, when rank %d was killed: %s: %s\n", rank,
              trial->victim,
              lrmoeGetErrorString((lrmoeResult_t)testimony->result),
              testimony->text);
    } else if (ms > limitMs) {
      verdict.numLate++;
    } else {
      verdict.numRight++;
    }
  }
  return verdict;
}

static void endRanks(const struct trial *trial) {
  for (int rank = 0; rank < settings.numRanks; rank++)
    if (trial->pids[rank] > 0 &&
        (rank == trial->victim ||
         !atomic_load(&trial->testimonies[rank].errorNs)))
      kill(trial->pids[rank], SIGKILL);
  for (int rank = 0; rank < settings.numRanks; rank++)
    if (trial->pids[rank] > 0) waitpid(trial->pids[rank], NULL, 0);
}

static enum toolExit killOne(struct trial *trial, struct toolRandom *random,
                             struct verdict *verdict, struct toolError *error) {
  int64_t numTurns = 1 + (int64_t)toolRandomBelow(random, 12);
  int64_t delayUs = (int64_t)toolRandomBelow(random, 8000);
  trial->victim = (int)toolRandomBelow(random, (uint64_t)settings.numRanks);
  memset(trial->pids, 0, sizeof trial->pids);
  enum toolExit code = startRanks(trial, error);
  if (code == toolGood) code = waitForTurns(trial, numTurns, error);
  if (code == toolGood) {
    sleepUs(delayUs);
    trial->killNs = toolWallNs();
    kill(trial->pids[trial->victim], SIGKILL);
    int64_t deadline = trial->killNs + (int64_t)hungMs * 1000000;
    while (!allHaveErrors(trial) && toolWallNs() < deadline)
      sleepUs(500);
    *verdict = judge(trial);
  }
  endRanks(trial);
  return code;
}

/* ---- Leftovers --------------------------------------------------------- */

/* Sockets of LRMoE's name, and files of it in /dev/shm.  Other programs that
 * are joining just now have sockets too: those do not last a second. */
static int64_t countOnce(void) {
  int64_t count = 0;
  char line[512];
  FILE *sockets = fopen("/proc/net/unix", "r");
  while (sockets && fgets(line, sizeof line, sockets))
    count += strstr(line, "@lrmoe-") != NULL;
  if (sockets) fclose(sockets);
  DIR *folder = opendir("/dev/shm");
  for (struct dirent *entry; folder && (entry = readdir(folder));)
    count += strstr(entry->d_name, "lrmoe") != NULL;
  if (folder) closedir(folder);
  return count;
}

static int64_t countLeftovers(void) {
  int64_t least = countOnce();
  for (int i = 0; i < 10 && least; i++) {
    sleepUs(200000);
    int64_t count = countOnce();
    if (count < least) least = count;
  }
  return least;
}

/* ---- The program ------------------------------------------------------- */

#define INTEGER(field, low, high)                                 \
  .kind = toolArgInt, .value = &settings.field, .minimum = (low), \
  .maximum = (high)

static const struct toolArg args[] = {
    {.name = "ranks",
     .letter = 'g',
     INTEGER(numRanks, 2, maxRanks),
     .help = "Ranks: processes of this machine."},
    {.name = "kills",
     .letter = 'n',
     INTEGER(numKills, 1, 1000000),
     .help = "How many times a rank is killed."},
    {.name = "bytes",
     .letter = 'b',
     INTEGER(bytes, 1, 1 << 30),
     .help = "Bytes per pair of ranks of the largest all-to-all."},
    {.name = "seed",
     .letter = 's',
     INTEGER(seed, 0, 1000000000),
     .help = "Seed of victims and moments."},
    {0}};

static const struct toolColumn columns[] = {
    {"kill", "", 6},       {"victim", "rank", 7}, {"right", "ranks", 6},
    {"wrong", "ranks", 6}, {"hung", "ranks", 6},  {"late", "ranks", 6},
    {"longest", "ms", 9}};

static enum toolExit runAll(struct toolTable *table, struct verdict *sum,
                            double *longest, struct toolError *error) {
  struct toolRandom random = toolRandomMake((uint64_t)settings.seed, 0);
  struct trial trial = {0};
  size_t bytes = (size_t)settings.numRanks * sizeof *trial.testimonies;
  trial.testimonies = toolSharedAlloc(bytes);
  if (!trial.testimonies)
    return toolFail(error, toolRunFailed, "no shared memory");
  toolTableNote(stdout, "%lld ranks, seed %lld", (long long)settings.numRanks,
                (long long)settings.seed);
  toolTableBegin(table);
  enum toolExit code = toolGood;
  for (int64_t i = 0; i < settings.numKills && code == toolGood; i++) {
    struct verdict verdict = {0};
    code = killOne(&trial, &random, &verdict, error);
    if (code != toolGood) break;
    toolTableInt(table, i);
    toolTableInt(table, trial.victim);
    toolTableInt(table, verdict.numRight);
    toolTableInt(table, verdict.numMisnamed);
    toolTableInt(table, verdict.numHung);
    toolTableInt(table, verdict.numLate);
    toolTableReal(table, verdict.longestMs, 1);
    fflush(stdout);
    sum->numRight += verdict.numRight;
    sum->numMisnamed += verdict.numMisnamed;
    sum->numHung += verdict.numHung;
    sum->numLate += verdict.numLate;
    longest[i] = verdict.longestMs;
  }
  toolSharedFree(trial.testimonies, bytes);
  return code;
}

static enum toolExit conclude(const struct verdict *sum, double *longest,
                              struct toolError *error) {
  struct toolStats stats = toolStatsMake(longest, settings.numKills);
  int64_t numLeft = countLeftovers();
  toolTableNote(stdout,
                "%lld kills: %lld survivors right, %lld wrong, %lld hung, "
                "%lld late; %lld leftovers",
                (long long)settings.numKills, (long long)sum->numRight,
                (long long)sum->numMisnamed, (long long)sum->numHung,
                (long long)sum->numLate, (long long)numLeft);
  toolTableNote(stdout,
                "ms from the kill to the last survivor's error: median %.1f, "
                "longest %.1f (limit %d)",
                stats.median, stats.maximum, limitMs);
  if (!sum->numMisnamed && !sum->numHung && !sum->numLate && !numLeft)
    return toolGood;
  return toolFail(error, toolWrongData, "not every survivor was right");
}

int main(int argc, char **argv) {
  struct toolProgram program = {
      "kill_perf", "Kills ranks and reports what the others say.", args, NULL};
  struct toolTable table = {.out = stdout,
                            .columns = columns,
                            .numColumns = sizeof columns / sizeof *columns};
  struct toolError error = {""};
  struct verdict sum = {0};
  toolArgsStart(&program, argc, argv);
  double *longest = calloc((size_t)settings.numKills, sizeof *longest);
  enum toolExit code = toolJsonBegin(&program, &table.json, &error);
  if (code == toolGood && !longest)
    code = toolFail(&error, toolRunFailed, "no memory");
  if (code == toolGood) code = runAll(&table, &sum, longest, &error);
  if (code == toolGood) code = conclude(&sum, longest, &error);
  if (code == toolGood || code == toolWrongData) {
    enum toolExit written = toolJsonEnd(table.json, &error);
    if (written != toolGood) code = written;
  } else {
    toolJsonDrop(table.json);
  }
  free(longest);
  if (code == toolGood) return 0;
  return (int)toolComplain(program.name, code, &error);
}
