/* A text for tests: sentences put together by chance, always the same. */
#ifndef LRMOE_TESTS_TRAIN_STORY_H
#define LRMOE_TESTS_TRAIN_STORY_H

#include <stddef.h>

/* Writes sentences until less than one has room; returns the length. */
size_t storyTell(char *text, size_t room);

#endif
