/* Faults: says which kernel, block and thread touched what, and dies of it. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_CRASH_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_CRASH_H

namespace simt {

/* Of this process, once. */
void crashReportsInstall();

/* Of this operating-system thread: a stack for the handler, without which a
 * full stack could not be reported. */
void crashReportsForThread();

} // namespace simt

#endif
