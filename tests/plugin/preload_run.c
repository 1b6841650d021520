/* Runs of programs under test: see preload_run.h. */
#include "preload_run.h"

#include "support/program.h"

#include <check.h>

#include <stdio.h>
#include <string.h>

int preloadRun(const char *program, const char *variables,
               const char *arguments) {
  char command[3072];
  snprintf(command, sizeof command, "-c \"%s exec '%s' %s\"", variables,
           program, arguments);
  remove(programPath("report"));
  return programRun("/bin/sh", "%s", command);
}

const char *preloadMode(const char *mode, const char *more) {
  static char variables[1024];
  snprintf(variables, sizeof variables,
           "LRMOE_DEBUG=1 LRMOE_PRELOAD=%s LRMOE_ROW_BYTES=256 "
           "LRMOE_PRELOAD_REPORT='%s' "
           "%s LD_PRELOAD='%s'",
           mode, programPath("report"), more, PRELOAD_FILE);
  return variables;
}

json_int_t preloadSum(const char *kind, const char *field) {
  char text[programMaxText];
  json_int_t sum = 0;
  strcpy(text, programRead("report"));
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    json_t *document = json_loads(line, 0, NULL), *value;
    ck_assert_msg(document != NULL, "no JSON: %s", line);
    size_t index;
    json_t *all = json_object_get(document, field);
    size_t own = (size_t)json_integer_value(json_object_get(document, "rank"));
    if (!strcmp(json_string_value(json_object_get(document, "kind")), kind)) {
      sum += json_is_true(all) ? 1 : json_integer_value(all);
      json_array_foreach(all, index, value) sum +=
          index == own ? 0 : json_integer_value(value);
    }
    json_decref(document);
  }
  return sum;
}

int preloadNumLines(const char *kind) {
  char key[40];
  int count = 0;
  snprintf(key, sizeof key, "\"kind\":\"%s\"", kind);
  for (const char *at = programRead("report"); (at = strstr(at, key)); at++)
    count++;
  return count;
}
