/* JSON output of programs: what was asked and what came out.
 *
 *   {"schema": 1, "program": ..., "version": ..., "options": {...},
 *    "results": [{...}, ...]}
 *
 * Never the environment, host names, users or paths other than the options
 * that were given. */
#ifndef LRMOE_TOOLS_JSON_H
#define LRMOE_TOOLS_JSON_H

#include "tools/common/args.h"

#include <stdint.h>

struct toolJson;

/* Begins a document with the program's options.  Without -J *json is NULL,
 * which all functions below take and ignore.  Fails now, not after the run,
 * when FILE cannot be written. */
enum toolExit toolJsonBegin(const struct toolProgram *program,
                            struct toolJson **json, struct toolError *error);

/* Begins the next result; what follows goes into it. */
void toolJsonRow(struct toolJson *json);
void toolJsonText(struct toolJson *json, const char *key, const char *value);
void toolJsonInt(struct toolJson *json, const char *key, int64_t value);
void toolJsonReal(struct toolJson *json, const char *key, double value);
void toolJsonInts(struct toolJson *json, const char *key, const int64_t *values,
                  int64_t count);

/* Writes the document beside FILE and renames it, so that FILE is never half
 * written (devices and pipes are written directly), and frees it. */
enum toolExit toolJsonEnd(struct toolJson *json, struct toolError *error);

/* Frees it unwritten. */
void toolJsonDrop(struct toolJson *json);

#endif
