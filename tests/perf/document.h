/* Runs of benchmarks with their JSON. */
#ifndef LRMOE_TESTS_PERF_DOCUMENT_H
#define LRMOE_TESTS_PERF_DOCUMENT_H

#include <jansson.h>

/* Runs `program arguments`, which say -J `name`, asserts that it ends well, and
 * gives the file; json_decref it. */
json_t *documentRun(const char *program, const char *name,
                    const char *arguments);

/* A row's number or text; asserts that it is one. */
double numberOf(const json_t *row, const char *key);
const char *textOf(const json_t *row, const char *key);

/* Writes host.xml: a host of two GPUs and a NIC. */
void documentWriteHost(void);

#endif
