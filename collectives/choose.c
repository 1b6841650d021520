/* Which transport new communicators use: the parameter LRMOE_BACKEND. */
#include "base/param.h"
#include "base/result.h"
#include "collectives/transport.h"

#include <string.h>

lrmoeResult_t lrmoeTransportChoose(const struct lrmoeTransport **transport) {
  const char *name = lrmoeParamGetText(lrmoeParamBackend);
  if (!strcmp(name, "cuda")) return lrmoeNcclTransportGet(0, transport);
  LRMOE_REQUIRE(!strcmp(name, "cpu"), "LRMOE_BACKEND=%s is not cpu or cuda",
                name);
  *transport = &lrmoeCpuTransport;
  return lrmoeSuccess;
}
