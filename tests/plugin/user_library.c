/* What a program looks for in the ranks' part when that is a library. */
#include "user.h"

ncclResult_t userUniqueId(ncclUniqueId *id);

ncclResult_t userUniqueId(ncclUniqueId *id) {
  return ncclGetUniqueId(id);
}
