/* Sizes of the element types. */
#include "collectives/transport.h"

size_t lrmoeTypeBytes(lrmoeDataType_t type) {
  switch (type) {
  case lrmoeInt8:
  case lrmoeUint8:
    return 1;
  case lrmoeFloat16:
  case lrmoeBfloat16:
    return 2;
  case lrmoeInt32:
  case lrmoeUint32:
  case lrmoeFloat32:
    return 4;
  case lrmoeInt64:
  case lrmoeUint64:
  case lrmoeFloat64:
    return 8;
  }
  return 0;
}
