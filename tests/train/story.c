/* See story.h. */
#include "story.h"

#include "tools/common/workload.h"

#include <stdio.h>
#include <string.h>

static const char *const whos[] = {"A sailor",   "The baker", "My neighbour",
                                   "An old owl", "The clerk", "Nobody"};
static const char *const dids[] = {"carried", "lost", "painted", "sold",
                                   "counted"};
static const char *const whats[] = {"seven lanterns", "the green door",
                                    "a wet umbrella", "both maps",
                                    "the last café chair"};
static const char *const whens[] = {"before dawn", "in the rain", "on Sunday",
                                    "without a word"};

#define PICK(list) list[toolRandomBelow(&random, sizeof(list) / sizeof *(list))]

size_t storyTell(char *text, size_t room) {
  struct toolRandom random = toolRandomMake(3, 1);
  char sentence[128];
  size_t used = 0;
  for (;;) {
    int length = snprintf(sentence, sizeof sentence, "%s %s %s %s.\n",
                          PICK(whos), PICK(dids), PICK(whats), PICK(whens));
    if (used + (size_t)length >= room) break;
    memcpy(text + used, sentence, (size_t)length);
    used += (size_t)length;
  }
  text[used] = 0;
  return used;
}
