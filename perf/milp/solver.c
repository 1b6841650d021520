/* CBC, run as a program: see milp.h.  What it found is read from its log. */
#include "perf/milp/milp.h"
#include "tools/common/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const char *const program = "cbc";

static void pathOf(const struct milpSolver *solver, const char *name,
                   char path[96]) {
  snprintf(path, 96, "%s/%s", solver->folder, name);
}

/* Runs the solver with its output in the log; its exit status, or -1 with
 * errno. */
static int runLogged(const struct milpSolver *solver, const char **arguments) {
  char log[96];
  pathOf(solver, "log", log);
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status = -1;
  if ((errno = posix_spawn_file_actions_init(&actions))) return -1;
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log,
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  errno = posix_spawnp(&child, program, &actions, NULL,
                       (char *const *)(void *)arguments, environ);
  int isRunning = errno == 0;
  posix_spawn_file_actions_destroy(&actions);
  if (isRunning && waitpid(child, &status, 0) != child) status = -1;
  return status;
}

enum toolExit milpSolverOpen(int64_t maxSeconds, struct milpSolver *solver,
                             struct toolError *error) {
  const char *parent = getenv("TMPDIR");
  struct milpSolver made = {.maxSeconds = maxSeconds};
  int length = snprintf(made.folder, sizeof made.folder, "%s/milp.XXXXXX",
                        parent ? parent : "/tmp");
  if (length >= (int)sizeof made.folder || !mkdtemp(made.folder))
    return toolFail(error, toolRunFailed, "cannot make a folder in %.40s: %s",
                    parent ? parent : "/tmp", strerror(errno));
  const char *arguments[] = {program, "quit", NULL};
  if (runLogged(&made, arguments) == 0) {
    *solver = made;
    return toolGood;
  }
  milpSolverClose(&made);
  return toolFail(error, toolNotInstalled,
                  "%s does not run: install coinor-cbc (tools/setup.sh milp)",
                  program);
}

void milpSolverClose(struct milpSolver *solver) {
  static const char *const names[] = {"model.lp", "log"};
  char path[96];
  if (!solver->folder[0]) return;
  if (solver->model) fclose(solver->model);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    pathOf(solver, names[i], path);
    unlink(path);
  }
  rmdir(solver->folder);
  *solver = (struct milpSolver){0};
}

enum toolExit milpModelBegin(struct milpSolver *solver,
                             struct toolError *error) {
  char path[96];
  pathOf(solver, "model.lp", path);
  solver->model = fopen(path, "w");
  if (solver->model) return toolGood;
  return toolFail(error, toolRunFailed, "%s: %s", path, strerror(errno));
}

/* Fills the answer from one line of the log. */
static void readLine(const char *line, struct milpAnswer *answer) {
  static const char value[] = "Objective value:", bound[] = "Lower bound:";
  if (!strncmp(line, "Result - Optimal solution found", 31))
    answer->isProven = 1;
  if (!strncmp(line, "Problem is infeasible", 21) ||
      !strncmp(line, "Result - Problem proven infeasible", 34))
    answer->isInfeasible = 1;
  if (!strncmp(line, value, sizeof value - 1))
    answer->value = strtod(line + sizeof value - 1, NULL);
  if (!strncmp(line, bound, sizeof bound - 1))
    answer->bound = strtod(line + sizeof bound - 1, NULL);
}

static enum toolExit readLog(const struct milpSolver *solver,
                             struct milpAnswer *answer,
                             struct toolError *error) {
  char path[96], line[256];
  pathOf(solver, "log", path);
  FILE *log = fopen(path, "r");
  if (!log) return toolFail(error, toolRunFailed, "the solver has no log");
  *answer = (struct milpAnswer){.value = HUGE_VAL, .bound = -HUGE_VAL};
  while (fgets(line, sizeof line, log))
    readLine(line, answer);
  fclose(log);
  if (answer->isProven) answer->bound = answer->value;
  if (answer->isInfeasible || isfinite(answer->bound)) return toolGood;
  return toolFail(error, toolRunFailed, "%s found no bound in %lld s", program,
                  (long long)solver->maxSeconds);
}

enum toolExit milpModelSolve(struct milpSolver *solver,
                             struct milpAnswer *answer,
                             struct toolError *error) {
  char path[96], seconds[24];
  int isBroken = ferror(solver->model);
  isBroken |= fclose(solver->model);
  solver->model = NULL;
  if (isBroken) return toolFail(error, toolRunFailed, "the model has no room");
  pathOf(solver, "model.lp", path);
  snprintf(seconds, sizeof seconds, "%lld", (long long)solver->maxSeconds);
  const char *arguments[] = {program, path,   "sec", seconds,
                             "solve", "quit", NULL};
  int64_t start = toolWallNs();
  int status = runLogged(solver, arguments);
  if (status)
    return toolFail(error, toolRunFailed, "%s ended with %d", program, status);
  enum toolExit code = readLog(solver, answer, error);
  answer->seconds = (double)(toolWallNs() - start) / 1e9;
  return code;
}
