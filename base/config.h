/* Versioned structs of the public header: read and written by prefix. */
#ifndef LRMOE_BASE_CONFIG_H
#define LRMOE_BASE_CONFIG_H

#include "base/result.h"

/* Copies a caller's struct over `copy`, which holds the defaults and is
 * knownBytes long.  A longer struct of a newer caller is taken only if what
 * this library does not know is zero. */
lrmoeResult_t lrmoeConfigRead(const char *name, const void *given,
                              size_t knownBytes, void *copy);

/* Writes the prefix of `full` that the caller's struct has room for, keeping
 * the caller's size, magic and version. */
lrmoeResult_t lrmoeViewWrite(const char *name, const void *full,
                             size_t knownBytes, void *given);

#endif
