/* Layers that the library runs by itself, for what a program that hints has to
 * receive. */
#ifndef LRMOE_TESTS_PLUGIN_HINT_CASE_H
#define LRMOE_TESTS_PLUGIN_HINT_CASE_H

#include "collectives/oracle.h"
#include "hint_data.h"

enum {
  hintCaseRanks = 4,
  hintCaseExperts = 8,
  hintCaseMaxRows = 512,
  hintCaseMaxRowBytes = 512
};

/* Filled in by forked ranks. */
struct hintCase {
  struct oracleCase spec;
  int isUniform; /* messages of one size */
  struct hintDataHead head;
  int64_t demand[hintCaseRanks * hintCaseExperts];
  int64_t quotas[hintCaseExperts];
  int64_t numDropped; /* that are not finite */
  int64_t rowsAcross; /* between ranks, and of them kept */
  int64_t keptAcross;
  struct {
    int64_t numRows;
    float phi[hintCaseMaxRows];
    uint8_t kept[hintCaseMaxRows];
    unsigned char rows[hintCaseMaxRows * hintCaseMaxRowBytes];
  } ranks[hintCaseRanks];
};

/* A case for hintCaseRun: contiguous homes, convention `pre`. */
struct oracleCase hintCaseOf(uint64_t seed);

/* Runs the case in the library, up to lrmoeAllToAllCompact, and writes what it
 * did to the file "data" of the test's folder. */
struct hintCase *hintCaseRun(const struct oracleCase *spec, int isUniform);

#endif
