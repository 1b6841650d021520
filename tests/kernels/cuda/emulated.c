/* The device is the emulator: see mirror.h. */
#include "mirror.h"

int isEmulated(void) {
  return 1;
}
