/* The process's configuration and reports: see simt.h. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_CONFIG_H
#define LRMOE_TESTS_SUPPORT_SIMT_CONFIG_H

#include "simt.h"

#include <string>

namespace simt {

simtConfig currentConfig();

/* Keeps the text as the last report and prints it unless quiet. */
void report(const std::string &text);

/* A non-negative number from the environment, or what is assumed. */
uint64_t environmentNumber(const char *name, uint64_t assumed);

} // namespace simt

#endif
