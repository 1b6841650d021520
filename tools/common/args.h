/* Options of programs, from a table.
 *
 * The table is the only place that names an option: parsing, --help and the
 * "options" of the JSON output come from it.  Where an option also exists in
 * nccl-tests it has the same letter.  Every program has --help, --version and
 * -J/--json FILE besides.
 *
 *   int64_t ranks = 4;
 *   const struct toolArg args[] = {
 *       {.name = "ranks", .letter = 'g', .kind = toolArgInt, .value = &ranks,
 *        .minimum = 1, .maximum = 64, .help = "Ranks (processes)."},
 *       {0}};
 *   struct toolProgram program = {"lrmoe-x", "Does x.", args, NULL};
 *   toolArgsStart(&program, argc, argv);
 */
#ifndef LRMOE_TOOLS_ARGS_H
#define LRMOE_TOOLS_ARGS_H

#include "tools/common/fail.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
  toolMaxList = 64
};

struct toolIntList {
  int64_t values[toolMaxList];
  int count;
};

struct toolRealList {
  double values[toolMaxList];
  int count;
};

/* Kind, and what `value` points to. */
enum toolArgKind {
  toolArgFlag,    /* int, set to 1 */
  toolArgInt,     /* int64_t; suffixes K, M, G are powers of 1024 */
  toolArgReal,    /* double */
  toolArgText,    /* const char *; not copied */
  toolArgEnum,    /* int, index in `names` */
  toolArgIntList, /* struct toolIntList, separated by commas */
  toolArgRealList /* struct toolRealList, separated by commas */
};

struct toolArg {
  const char *name; /* long name without "--"; NULL ends the table */
  char letter;      /* short name, 0: none */
  enum toolArgKind kind;
  void *value;              /* holds the default before parsing */
  double minimum;           /* of numbers, inclusive; */
  double maximum;           /*   both 0: no limits but not negative */
  const char *const *names; /* of toolArgEnum, ended by NULL */
  const char *meta;         /* stands for the value in --help; NULL: by kind */
  const char *help;         /* one sentence */
};

/* Entries of the table, after .name and .letter. */
#define TOOL_INTEGER(target, low, high) \
  .kind = toolArgInt, .value = &(target), .minimum = (low), .maximum = (high)
#define TOOL_REAL(target, low, high) \
  .kind = toolArgReal, .value = &(target), .minimum = (low), .maximum = (high)
#define TOOL_TEXT(target) .kind = toolArgText, .value = &(target)
#define TOOL_ENUM(target, list) \
  .kind = toolArgEnum, .value = &(target), .names = (list)

struct toolProgram {
  const char *name;
  const char *summary; /* what it does, one sentence */
  const struct toolArg *args;
  const char *json;        /* set by -J */
  const char *operandMeta; /* "FILE": takes one word that is no option; NULL:
                              takes none */
  const char *operand;     /* set by it */
};

enum toolArgsOutcome {
  toolArgsRun,
  toolArgsHelp,
  toolArgsVersion,
  toolArgsBad
};

/* Reads argv into the values.  On toolArgsBad error says which option, which
 * value and why; values read before it are already stored. */
enum toolArgsOutcome toolArgsRead(struct toolProgram *program, int argc,
                                  char **argv, struct toolError *error);

/* Prints the usage; call it before values are changed by toolArgsRead where
 * the defaults shall be shown. */
void toolArgsUsage(const struct toolProgram *program, FILE *out);

/* What main() begins with: reads argv; prints help or version and exits with
 * 0; complains and exits with 1. */
void toolArgsStart(struct toolProgram *program, int argc, char **argv);

/* All that main() does where one function does the work: its exit code is the
 * program's, and what it complains about is printed. */
int toolMain(struct toolProgram *program, int argc, char **argv,
             enum toolExit (*run)(const struct toolProgram *program,
                                  struct toolError *error));

/* The value as --help shows it; text "" for an unset one. */
void toolArgShow(const struct toolArg *arg, char *text, size_t room);

#endif
