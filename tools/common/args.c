/* Options of programs: see args.h. */
#include "tools/common/args.h"

#include "lrmoe.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What every program has.  `value` is filled in where they are looked up. */
enum {
  helpIndex,
  versionIndex,
  jsonIndex,
  numCommon
};
static const struct toolArg commonArgs[numCommon + 1] = {
    [helpIndex] = {.name = "help",
                   .letter = 'h',
                   .kind = toolArgFlag,
                   .help = "Print this and exit."},
    [versionIndex] = {.name = "version",
                      .letter = 'V',
                      .kind = toolArgFlag,
                      .help = "Print the version and exit."},
    [jsonIndex] = {.name = "json",
                   .letter = 'J',
                   .kind = toolArgText,
                   .meta = "FILE",
                   .help = "Also write options and results as JSON."},
};

/* ---- Values ------------------------------------------------------------ */

/* Why a value was refused; NULL: it was not. */
typedef const char *reason;

static int64_t suffixScale(char suffix) {
  switch (suffix) {
  case 'k':
  case 'K':
    return INT64_C(1) << 10;
  case 'm':
  case 'M':
    return INT64_C(1) << 20;
  case 'g':
  case 'G':
    return INT64_C(1) << 30;
  default:
    return 0;
  }
}

static reason checkLimits(const struct toolArg *arg, double value) {
  if (arg->minimum == 0 && arg->maximum == 0)
    return value < 0 ? "is negative" : NULL;
  if (value < arg->minimum) return "is too small";
  return value > arg->maximum ? "is too large" : NULL;
}

static reason readInt(const struct toolArg *arg, const char *text,
                      int64_t *value) {
  char *end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || text[0] == ' ') return "is not a whole number";
  int64_t scale = *end ? suffixScale(*end) : 1;
  if (!scale || (*end && end[1])) return "is not a whole number";
  if (errno || number > INT64_MAX / scale || number < INT64_MIN / scale)
    return "is out of range";
  reason why = checkLimits(arg, (double)(number * scale));
  if (!why) *value = number * scale;
  return why;
}

static reason readReal(const struct toolArg *arg, const char *text,
                       double *value) {
  char *end = NULL;
  double number = strtod(text, &end);
  if (end == text || text[0] == ' ' || *end || !isfinite(number))
    return "is not a number";
  reason why = checkLimits(arg, number);
  if (!why) *value = number;
  return why;
}

static reason readName(const struct toolArg *arg, const char *text,
                       int *value) {
  for (int i = 0; arg->names[i]; i++)
    if (strcmp(arg->names[i], text) == 0) {
      *value = i;
      return NULL;
    }
  return "is none of the choices";
}

/* Calls one of the two readers on each part between commas. */
static reason readList(const struct toolArg *arg, const char *text) {
  struct toolIntList ints = {.count = 0};
  struct toolRealList reals = {.count = 0};
  int isReal = arg->kind == toolArgRealList;
  for (const char *part = text;; part = strchr(part, ',') + 1) {
    char item[64];
    size_t length = strcspn(part, ",");
    if (length >= sizeof item) return "has an item that is too long";
    memcpy(item, part, length);
    item[length] = 0;
    if (ints.count == toolMaxList) return "has more than 64 items";
    reason why = isReal ? readReal(arg, item, &reals.values[reals.count++])
                        : readInt(arg, item, &ints.values[ints.count]);
    if (why) return why;
    ints.count++;
    if (!part[length]) break;
  }
  if (isReal)
    *(struct toolRealList *)arg->value = reals;
  else
    *(struct toolIntList *)arg->value = ints;
  return NULL;
}

static reason readValue(const struct toolArg *arg, const char *text) {
  switch (arg->kind) {
  case toolArgFlag:
    break;
  case toolArgInt:
    return readInt(arg, text, arg->value);
  case toolArgReal:
    return readReal(arg, text, arg->value);
  case toolArgText:
    *(const char **)arg->value = text;
    return NULL;
  case toolArgEnum:
    return readName(arg, text, arg->value);
  case toolArgIntList:
  case toolArgRealList:
    return readList(arg, text);
  }
  return "has an unknown kind";
}

/* ---- Usage -------------------------------------------------------------- */

static void showList(const struct toolArg *arg, char *text, size_t room) {
  const struct toolIntList *ints = arg->value;
  const struct toolRealList *reals = arg->value;
  int isReal = arg->kind == toolArgRealList;
  int count = isReal ? reals->count : ints->count;
  size_t used = 0;
  for (int i = 0; i < count && used < room; i++) {
    const char *comma = i ? "," : "";
    int added = isReal ? snprintf(text + used, room - used, "%s%g", comma,
                                  reals->values[i])
                       : snprintf(text + used, room - used, "%s%lld", comma,
                                  (long long)ints->values[i]);
    used += (size_t)added;
  }
}

void toolArgShow(const struct toolArg *arg, char *text, size_t room) {
  text[0] = 0;
  if (!arg->value) return;
  switch (arg->kind) {
  case toolArgFlag:
    break;
  case toolArgInt:
    snprintf(text, room, "%lld", (long long)*(int64_t *)arg->value);
    break;
  case toolArgReal:
    snprintf(text, room, "%g", *(double *)arg->value);
    break;
  case toolArgText:
    if (*(const char **)arg->value)
      snprintf(text, room, "%s", *(const char **)arg->value);
    break;
  case toolArgEnum:
    snprintf(text, room, "%s", arg->names[*(int *)arg->value]);
    break;
  case toolArgIntList:
  case toolArgRealList:
    showList(arg, text, room);
    break;
  }
}

static void showMeta(const struct toolArg *arg, char *text, size_t room) {
  static const char *const byKind[] = {
      [toolArgFlag] = "",           [toolArgInt] = "N",
      [toolArgReal] = "X",          [toolArgText] = "TEXT",
      [toolArgEnum] = "",           [toolArgIntList] = "N,N...",
      [toolArgRealList] = "X,X...",
  };
  snprintf(text, room, "%s", arg->meta ? arg->meta : byKind[arg->kind]);
  if (arg->meta || arg->kind != toolArgEnum) return;
  size_t used = 0;
  for (int i = 0; arg->names[i] && used < room; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%s", i ? "|" : "",
                             arg->names[i]);
}

static void printArg(const struct toolArg *arg, FILE *out) {
  char meta[160], value[160], option[240];
  showMeta(arg, meta, sizeof meta);
  toolArgShow(arg, value, sizeof value);
  char letter[4] = "   ";
  if (arg->letter) snprintf(letter, sizeof letter, "-%c,", arg->letter);
  snprintf(option, sizeof option, "%s --%s %s", letter, arg->name, meta);
  fprintf(out, strlen(option) > 26 ? "  %s\n%30s" : "  %-28s%s", option, "");
  fprintf(out, "%s%s%s%s\n", arg->help, *value ? " [" : "", value,
          *value ? "]" : "");
}

void toolArgsUsage(const struct toolProgram *program, FILE *out) {
  fprintf(out, "Usage: %s [options]%s%s%s\n\n%s\n\nOptions [default]:\n",
          program->name, program->operandMeta ? " [" : "",
          program->operandMeta ? program->operandMeta : "",
          program->operandMeta ? "]" : "", program->summary);
  for (const struct toolArg *arg = program->args; arg->name; arg++)
    printArg(arg, out);
  for (const struct toolArg *arg = commonArgs; arg->name; arg++)
    printArg(arg, out);
  fputs("\nWhole numbers take the suffixes K, M and G (powers of 1024).\n"
        "Exit status: 0 good, 1 bad options or input, 2 the run failed,\n"
        "3 something must be installed, 7 wrong data.\n",
        out);
}

/* ---- Parsing ------------------------------------------------------------ */

/* Options as they are looked up: the program's, then the common ones. */
static const struct toolArg *findIn(const struct toolArg *args,
                                    const char *name, size_t length,
                                    char letter) {
  for (const struct toolArg *arg = args; arg->name; arg++) {
    int same = letter ? arg->letter == letter
                      : strlen(arg->name) == length &&
                            memcmp(arg->name, name, length) == 0;
    if (same) return arg;
  }
  return NULL;
}

/* One option as it stands in argv. */
struct found {
  const struct toolArg *arg;
  const char *joined; /* value in the same word, NULL: none */
};

static struct found findArg(const struct toolProgram *program,
                            const char *word) {
  int isLong = word[1] == '-';
  const char *name = isLong ? word + 2 : word + 1;
  size_t length = isLong ? strcspn(name, "=") : 1;
  char letter = 0;
  if (!isLong) letter = word[1];
  struct found found = {NULL, NULL};
  found.arg = findIn(program->args, name, length, letter);
  if (!found.arg) found.arg = findIn(commonArgs, name, length, letter);
  if (name[length]) found.joined = name + length + isLong;
  return found;
}

static enum toolArgsOutcome bad(struct toolError *error,
                                const struct toolArg *arg, const char *value,
                                const char *why) {
  char meta[200] = "";
  if (arg->kind == toolArgEnum) showMeta(arg, meta, sizeof meta);
  if (strcmp(why, "is too small") == 0 || strcmp(why, "is too large") == 0)
    snprintf(meta, sizeof meta, "%.15g to %.15g", arg->minimum, arg->maximum);
  toolFail(error, toolBadInput, "option --%s: \"%.100s\" %s%s%s", arg->name,
           value, why, *meta ? ": " : "", meta);
  return toolArgsBad;
}

/* Reads the option at argv[*at] and leaves *at on its last word. */
static enum toolArgsOutcome readOption(struct toolProgram *program, char **argv,
                                       int *at, struct toolError *error) {
  const char *word = argv[*at];
  int isOption = word[0] == '-' && word[1] && strcmp(word, "--") != 0;
  if (!isOption && *word && program->operandMeta && !program->operand) {
    program->operand = word;
    return toolArgsRun;
  }
  if (!isOption) {
    toolFail(error, toolBadInput, "\"%.100s\" is not an option (try --help)",
             word);
    return toolArgsBad;
  }
  struct found found = findArg(program, word);
  if (!found.arg) {
    toolFail(error, toolBadInput, "option %.100s is unknown (try --help)",
             word);
    return toolArgsBad;
  }
  if (found.arg == &commonArgs[helpIndex]) return toolArgsHelp;
  if (found.arg == &commonArgs[versionIndex]) return toolArgsVersion;

  struct toolArg arg = *found.arg;
  if (found.arg == &commonArgs[jsonIndex]) arg.value = &program->json;
  if (arg.kind == toolArgFlag) {
    if (found.joined)
      return bad(error, &arg, found.joined, "is a value, and it takes none");
    *(int *)arg.value = 1;
    return toolArgsRun;
  }
  const char *value = found.joined ? found.joined : argv[++*at];
  if (!value) {
    toolFail(error, toolBadInput, "option --%s needs a value", arg.name);
    return toolArgsBad;
  }
  const char *why = readValue(&arg, value);
  return why ? bad(error, &arg, value, why) : toolArgsRun;
}

enum toolArgsOutcome toolArgsRead(struct toolProgram *program, int argc,
                                  char **argv, struct toolError *error) {
  for (int at = 1; at < argc; at++) {
    enum toolArgsOutcome outcome = readOption(program, argv, &at, error);
    if (outcome != toolArgsRun) return outcome;
  }
  return toolArgsRun;
}

void toolArgsStart(struct toolProgram *program, int argc, char **argv) {
  /* The usage is made first, while the values are still the defaults. */
  char *usage = NULL;
  size_t bytes = 0;
  FILE *memory = open_memstream(&usage, &bytes);
  if (memory) {
    toolArgsUsage(program, memory);
    fclose(memory);
  }
  struct toolError error;
  switch (toolArgsRead(program, argc, argv, &error)) {
  case toolArgsRun:
    free(usage);
    return;
  case toolArgsHelp:
    fputs(usage ? usage : "", stdout);
    exit(toolGood);
  case toolArgsVersion:
    printf("%s %d.%d.%d\n", program->name, LRMOE_MAJOR, LRMOE_MINOR,
           LRMOE_PATCH);
    exit(toolGood);
  case toolArgsBad:
    exit(toolComplain(program->name, toolBadInput, &error));
  }
}

int toolMain(struct toolProgram *program, int argc, char **argv,
             enum toolExit (*run)(const struct toolProgram *program,
                                  struct toolError *error)) {
  struct toolError error = {{0}};
  toolArgsStart(program, argc, argv);
  enum toolExit code = run(program, &error);
  if (code != toolGood) return toolComplain(program->name, code, &error);
  return toolGood;
}
