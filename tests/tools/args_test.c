/* Options: parsing, refusals, usage. */
#include "support/suite.h"
#include "tools/common/args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int64_t ranks, bytes;
static double retain;
static const char *routing;
static int isCheck, metric;
static struct toolIntList sizes;
static struct toolRealList ratios;
static const char *const metrics[] = {"lrm", "grad2", "random", NULL};
static struct toolError error;

static const struct toolArg args[] = {{.name = "ranks",
                                       .letter = 'g',
                                       .kind = toolArgInt,
                                       .value = &ranks,
                                       .minimum = 1,
                                       .maximum = 64,
                                       .help = "Ranks."},
                                      {.name = "bytes",
                                       .letter = 'b',
                                       .kind = toolArgInt,
                                       .value = &bytes,
                                       .help = "Least size."},
                                      {.name = "retain",
                                       .letter = 'r',
                                       .kind = toolArgReal,
                                       .value = &retain,
                                       .minimum = 0,
                                       .maximum = 1,
                                       .help = "Retention."},
                                      {.name = "routing",
                                       .kind = toolArgText,
                                       .value = &routing,
                                       .meta = "KIND",
                                       .help = "Popularity of experts."},
                                      {.name = "check",
                                       .letter = 'c',
                                       .kind = toolArgFlag,
                                       .value = &isCheck,
                                       .help = "Check results."},
                                      {.name = "metric",
                                       .letter = 'm',
                                       .kind = toolArgEnum,
                                       .value = &metric,
                                       .names = metrics,
                                       .help = "What ranks pairs."},
                                      {.name = "sizes",
                                       .kind = toolArgIntList,
                                       .value = &sizes,
                                       .minimum = 1,
                                       .maximum = 1e9,
                                       .help = "Sizes."},
                                      {.name = "ratios",
                                       .kind = toolArgRealList,
                                       .value = &ratios,
                                       .minimum = 0,
                                       .maximum = 1,
                                       .help = "Ratios."},
                                      {0}};
static struct toolProgram program = {
    .name = "lrmoe-x", .summary = "Does x.", .args = args};

static void setDefaults(void) {
  ranks = 4;
  bytes = 0;
  retain = 0.7;
  routing = "lognormal:1";
  isCheck = 0;
  metric = 0;
  sizes = (struct toolIntList){{1, 2}, 2};
  ratios = (struct toolRealList){{0.5}, 1};
  program.json = NULL;
  error.text[0] = 0;
}

/* Words are separated by one blank each; "_" stands for an empty word. */
static enum toolArgsOutcome parse(const char *line) {
  static char words[1000];
  char *argv[64] = {(char *)"lrmoe-x"};
  int argc = 1;
  setDefaults();
  snprintf(words, sizeof words, "%s", line);
  for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
    argv[argc++] = strcmp(word, "_") ? word : (char *)"";
  return toolArgsRead(&program, argc, argv, &error);
}

static void accept(const char *line) {
  enum toolArgsOutcome outcome = parse(line);
  ck_assert_msg(outcome == toolArgsRun, "%s: %s", line, error.text);
}

static void refuse(const char *line, const char *message) {
  ck_assert_int_eq(parse(line), toolArgsBad);
  ck_assert_str_eq(error.text, message);
}

START_TEST(defaults) {
  accept("");
  ck_assert_int_eq(ranks, 4);
  ck_assert_str_eq(routing, "lognormal:1");
}
END_TEST

START_TEST(shortAndLong) {
  accept("-g 8 -b 3 -c -m random -r 0.25 -J out.json");
  ck_assert_int_eq(ranks, 8);
  ck_assert_int_eq(bytes, 3);
  ck_assert_int_eq(isCheck, 1);
  ck_assert_int_eq(metric, 2);
  ck_assert(retain == 0.25);
  ck_assert_str_eq(program.json, "out.json");
  accept("--ranks 8 --metric=grad2 --check --json=o --routing=zipf:1=2");
  ck_assert_int_eq(ranks, 8);
  ck_assert_int_eq(metric, 1);
  ck_assert_str_eq(program.json, "o");
  ck_assert_str_eq(routing, "zipf:1=2");
  accept("-g16 -mgrad2");
  ck_assert_int_eq(ranks, 16);
  ck_assert_int_eq(metric, 1);
  accept("-g 2 -g 3");
  ck_assert_int_eq(ranks, 3);
  accept("--routing _");
  ck_assert_str_eq(routing, "");
}
END_TEST

START_TEST(suffixes) {
  static const struct {
    const char *text;
    int64_t value;
  } cases[] = {{"-b 1", 1},
               {"-b 2k", 2048},
               {"-b 2K", 2048},
               {"-b 3M", 3 << 20},
               {"-b 4g", INT64_C(4) << 30},
               {"-b 8589934591G", INT64_C(8589934591) << 30},
               {"-b 9223372036854775807", INT64_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    accept(cases[i].text);
    ck_assert_int_eq(bytes, cases[i].value);
  }
}
END_TEST

START_TEST(badNumbers) {
  refuse("-b 8589934592G", "option --bytes: \"8589934592G\" is out of range");
  refuse("-b 9223372036854775808",
         "option --bytes: \"9223372036854775808\" is out of range");
  refuse("-b 1T", "option --bytes: \"1T\" is not a whole number");
  refuse("-b 1KK", "option --bytes: \"1KK\" is not a whole number");
  refuse("-b 1.5", "option --bytes: \"1.5\" is not a whole number");
  refuse("-b _", "option --bytes: \"\" is not a whole number");
  refuse("-b K", "option --bytes: \"K\" is not a whole number");
  refuse("-b -1", "option --bytes: \"-1\" is negative");
  refuse("-g 0", "option --ranks: \"0\" is too small: 1 to 64");
  refuse("-g 65", "option --ranks: \"65\" is too large: 1 to 64");
  refuse("-r 1.01", "option --retain: \"1.01\" is too large: 0 to 1");
  refuse("-r -0.1", "option --retain: \"-0.1\" is too small: 0 to 1");
  refuse("-r nan", "option --retain: \"nan\" is not a number");
  refuse("-r inf", "option --retain: \"inf\" is not a number");
  refuse("-r 0.5x", "option --retain: \"0.5x\" is not a number");
  ck_assert(retain == 0.7); /* written only on success */
}
END_TEST

START_TEST(lists) {
  accept("--sizes 1,2K,3 --ratios 0,0.5,1");
  ck_assert_int_eq(sizes.count, 3);
  ck_assert_int_eq(sizes.values[1], 2048);
  ck_assert_int_eq(sizes.values[2], 3);
  ck_assert_int_eq(ratios.count, 3);
  ck_assert(ratios.values[1] == 0.5);
  accept("--sizes 7");
  ck_assert_int_eq(sizes.count, 1);
  refuse("--sizes 1,,2", "option --sizes: \"1,,2\" is not a whole number");
  refuse("--sizes 1,", "option --sizes: \"1,\" is not a whole number");
  refuse("--sizes 1,0",
         "option --sizes: \"1,0\" is too small: 1 to 1000000000");
  refuse("--ratios 0.1,2", "option --ratios: \"0.1,2\" is too large: 0 to 1");
  ck_assert_int_eq(ratios.count, 1);
  char line[300] = "--sizes 1";
  for (int i = 1; i < 64; i++)
    strcat(line, ",1");
  accept(line);
  ck_assert_int_eq(sizes.count, 64);
  strcat(line, ",1");
  parse(line);
  ck_assert_ptr_nonnull(strstr(error.text, "has more than 64 items"));
}
END_TEST

START_TEST(refusals) {
  refuse("--rank 2", "option --rank is unknown (try --help)");
  refuse("--rankss 2", "option --rankss is unknown (try --help)");
  refuse("-x", "option -x is unknown (try --help)");
  refuse("file", "\"file\" is not an option (try --help)");
  refuse("-", "\"-\" is not an option (try --help)");
  refuse("--", "\"--\" is not an option (try --help)");
  refuse("_", "\"\" is not an option (try --help)");
  refuse("-g", "option --ranks needs a value");
  refuse("--ranks", "option --ranks needs a value");
  refuse("-c -J", "option --json needs a value");
  refuse("--check=1", "option --check: \"1\" is a value, and it takes none");
  refuse("-cv", "option --check: \"v\" is a value, and it takes none");
  refuse("-m fast",
         "option --metric: \"fast\" is none of the choices: lrm|grad2|random");
}
END_TEST

START_TEST(helpAndVersionComeFirst) {
  ck_assert_int_eq(parse("--help"), toolArgsHelp);
  ck_assert_int_eq(parse("-h"), toolArgsHelp);
  ck_assert_int_eq(parse("-g 2 --version --nonsense"), toolArgsVersion);
  ck_assert_int_eq(parse("-V"), toolArgsVersion);
}
END_TEST

START_TEST(usageNamesEveryOption) {
  setDefaults();
  char *text = NULL;
  size_t size = 0;
  FILE *memory = open_memstream(&text, &size);
  toolArgsUsage(&program, memory);
  fclose(memory);
  static const char *const parts[] = {
      "Usage: lrmoe-x [options]\n\nDoes x.\n",
      "  -g, --ranks N               Ranks. [4]\n",
      "  -r, --retain X              Retention. [0.7]\n",
      "      --routing KIND          Popularity of experts. [lognormal:1]\n",
      "  -c, --check                 Check results.\n",
      "What ranks pairs. [lrm]\n",
      "      --sizes N,N...          Sizes. [1,2]\n",
      "      --ratios X,X...         Ratios. [0.5]\n",
      "  -h, --help ",
      "  -V, --version ",
      "  -J, --json FILE "};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    ck_assert_msg(strstr(text, parts[i]) != NULL, "\"%s\" is not in\n%s",
                  parts[i], text);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
    ck_assert_uint_le(strlen(line), 80);
  free(text);
}
END_TEST

/* Runs toolArgsStart in a child: its exit status, and what it printed. */
static int startStatus(const char *option, char *out, size_t room) {
  int pipes[2];
  ck_assert_int_eq(pipe(pipes), 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(pipes[1], STDOUT_FILENO);
    dup2(pipes[1], STDERR_FILENO);
    close(pipes[0]);
    close(pipes[1]);
    char *argv[] = {(char *)"lrmoe-x", (char *)option, NULL};
    setDefaults();
    toolArgsStart(&program, 2, argv);
    exit(99);
  }
  close(pipes[1]);
  size_t used = 0;
  for (ssize_t got = 1; got > 0 && used < room - 1; used += (size_t)got) {
    got = read(pipes[0], out + used, room - 1 - used);
    if (got < 0) break;
  }
  out[used] = 0;
  close(pipes[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  return WEXITSTATUS(status);
}

START_TEST(start) {
  char out[8000];
  ck_assert_int_eq(startStatus("--help", out, sizeof out), 0);
  ck_assert_ptr_nonnull(strstr(out, "Usage: lrmoe-x"));
  ck_assert_int_eq(startStatus("--version", out, sizeof out), 0);
  char version[40];
  snprintf(version, sizeof version, "lrmoe-x %d.%d.%d\n", LRMOE_MAJOR,
           LRMOE_MINOR, LRMOE_PATCH);
  ck_assert_str_eq(out, version);
  ck_assert_int_eq(startStatus("--no", out, sizeof out), 1);
  ck_assert_str_eq(out, "lrmoe-x: option --no is unknown (try --help)\n");
  ck_assert_int_eq(startStatus("-c", out, sizeof out), 99);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("args");
  TCase *tcase = tcase_create("args");
  tcase_set_timeout(tcase, 60);
  tcase_add_test(tcase, defaults);
  tcase_add_test(tcase, shortAndLong);
  tcase_add_test(tcase, suffixes);
  tcase_add_test(tcase, badNumbers);
  tcase_add_test(tcase, lists);
  tcase_add_test(tcase, refusals);
  tcase_add_test(tcase, helpAndVersionComeFirst);
  tcase_add_test(tcase, usageNamesEveryOption);
  tcase_add_test(tcase, start);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
