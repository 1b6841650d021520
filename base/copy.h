/* Copies of rows and messages. */
#ifndef LRMOE_BASE_COPY_H
#define LRMOE_BASE_COPY_H

#include <stddef.h>

/* memcpy, whatever the addresses: some CPUs have pairs of them at which a C
 * library's memcpy falls to a twentieth of its speed. */
void lrmoeCopyBytes(void *to, const void *from, size_t bytes);

#endif
