/* What the parts of fused_test.c share. */
#ifndef LRMOE_TESTS_FUSED_STUCK_H
#define LRMOE_TESTS_FUSED_STUCK_H

#include "driver.h"
#include "support/suite.h"

enum {
  fusedNumRanks = 8
};

/* So many ranks, one of them without tokens, each with two experts. */
struct oracleCase fusedCase(void);

/* Adds the tests of ranks that fail. */
void fusedStuckAdd(Suite *suite);

#endif
