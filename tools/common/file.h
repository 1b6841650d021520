/* Files that programs write.
 *
 * A file is written beside its place and renamed, so that it is never half
 * there; devices and pipes are written directly. */
#ifndef LRMOE_TOOLS_FILE_H
#define LRMOE_TOOLS_FILE_H

#include "tools/common/fail.h"

#include <stddef.h>

/* Whether PATH can be written, to be asked before the run; `option` ("json")
 * is what messages name. */
enum toolExit toolFileProbe(const char *option, const char *path,
                            struct toolError *error);

enum toolExit toolFileWrite(const char *option, const char *path,
                            const char *data, size_t bytes,
                            struct toolError *error);

#endif
