/* See program.h. */
#include "support/program.h"

#include "support/suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

char programOut[programMaxText];
char programErr[programMaxText];

static char folder[64];
static pid_t owner;

static void removeFolder(void) {
  char command[128];
  if (owner != getpid()) return; /* a child that inherited the folder */
  snprintf(command, sizeof command, "rm -r '%s'", folder);
  if (system(command)) fprintf(stderr, "%s is left behind\n", folder);
}

const char *programFolder(void) {
  if (owner == getpid()) return folder;
  strcpy(folder, "/tmp/lrmoe_program_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  owner = getpid();
  atexit(removeFolder);
  return folder;
}

const char *programPath(const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", programFolder(), name);
  return path;
}

void programWrite(const char *name, const char *text) {
  FILE *file = fopen(programPath(name), "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs(text, file), 0);
  ck_assert_int_eq(fclose(file), 0);
}

static void readInto(const char *path, char *text) {
  FILE *file = fopen(path, "r");
  ck_assert_msg(file != NULL, "there is no %s", path);
  size_t bytes = fread(text, 1, programMaxText - 1, file);
  text[bytes] = 0;
  fclose(file);
}

const char *programRead(const char *name) {
  static char text[programMaxText];
  readInto(programPath(name), text);
  return text;
}

int programRun(const char *program, const char *format, ...) {
  char arguments[2048], command[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(arguments, sizeof arguments, format, list);
  va_end(list);
  snprintf(command, sizeof command, "cd '%s' && '%s' %s >stdout 2>stderr",
           programFolder(), program, arguments);
  int status = system(command);
  readInto(programPath("stdout"), programOut);
  readInto(programPath("stderr"), programErr);
  ck_assert_msg(WIFEXITED(status), "%s %s died: %s", program, arguments,
                programErr);
  return WEXITSTATUS(status);
}

void programRefuses(const char *program, const char *arguments,
                    const char *why) {
  int code = programRun(program, "%s", arguments);
  ck_assert_msg(code == 1, "%s: %d\n%s", arguments, code, programErr);
  ck_assert_msg(strstr(programErr, why) != NULL, "%s: \"%s\" is not in \"%s\"",
                arguments, why, programErr);
}
