/* Lines of JSON that several processes append to one file. */
#ifndef LRMOE_PLUGIN_LINE_H
#define LRMOE_PLUGIN_LINE_H

#include <jansson.h>
#include <stdint.h>

json_t *lrmoeLineNumbers(const int64_t *values, int count);
void lrmoeLinePut(json_t *line, const char *name, int64_t value);

/* The fields that every line begins with. */
json_t *lrmoeLineBegin(const char *kind, uint64_t comm, int numRanks);

/* Appends the line to the file that `parameter` has named, and frees it. */
void lrmoeLineAppend(json_t *line, const char *parameter, const char *path);

#endif
