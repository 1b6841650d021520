/* What the parts of gin_test.c share. */
#ifndef LRMOE_TESTS_GIN_STUCK_H
#define LRMOE_TESTS_GIN_STUCK_H

#include "driver.h"
#include "support/suite.h"

/* So many ranks and nodes, one rank without tokens; asks for GIN. */
struct oracleCase ginCase(int numRanks, int ranksPerNode);

/* Adds the tests of ranks that fail. */
void ginStuckAdd(Suite *suite);

#endif
