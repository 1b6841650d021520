/* Copies of messages. */
#ifndef LRMOE_COLLECTIVES_CPU_COPY_H
#define LRMOE_COLLECTIVES_CPU_COPY_H

#include <stddef.h>

/* memcpy, by the fastest way this CPU has for the size. */
void lrmoeCopy(void *to, const void *from, size_t bytes);

#endif
