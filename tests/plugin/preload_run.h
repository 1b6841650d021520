/* Programs under test with liblrmoe_preload.so in front, and its report. */
#ifndef LRMOE_TESTS_PLUGIN_PRELOAD_RUN_H
#define LRMOE_TESTS_PLUGIN_PRELOAD_RUN_H

#include <jansson.h>

/* Runs the program with variables in front, the ranks' own changes behind; its
 * exit code.  An earlier report is gone. */
int preloadRun(const char *program, const char *variables,
               const char *arguments);

/* Variables for a mode, with a report; static. */
const char *preloadMode(const char *mode, const char *more);

/* Sum of a field over the report's lines of one kind; of an array's elements,
 * without those of a rank to itself. */
json_int_t preloadSum(const char *kind, const char *field);

int preloadNumLines(const char *kind);

#endif
