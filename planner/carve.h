/* Arrays carved out of one block of memory, the wider elements first. */
#ifndef LRMOE_PLANNER_CARVE_H
#define LRMOE_PLANNER_CARVE_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t *lrmoeCarve64(char **next, size_t count) {
  int64_t *array = (int64_t *)(void *)*next;
  *next += count * sizeof *array;
  return array;
}

static inline int32_t *lrmoeCarve32(char **next, size_t count) {
  int32_t *array = (int32_t *)(void *)*next;
  *next += count * sizeof *array;
  return array;
}

#endif
