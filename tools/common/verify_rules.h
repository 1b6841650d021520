/* What the verifier's rules are written with; `error` is in scope. */
#ifndef LRMOE_TOOLS_VERIFY_RULES_H
#define LRMOE_TOOLS_VERIFY_RULES_H

#include "tools/common/verify.h"

__extension__ typedef __int128 wide;

#define WRONG(...) toolFail(error, toolWrongData, __VA_ARGS__)

#define HOLDS(call)                      \
  do {                                   \
    enum toolExit code_ = (call);        \
    if (code_ != toolGood) return code_; \
  } while (0)

#endif
