/* One object per process, made when it is first asked for and never destroyed,
 * since threads may outlive main. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_SINGLE_H
#define LRMOE_TESTS_SUPPORT_SIMT_SINGLE_H

#include <pthread.h>

namespace simt {

/* pthread_once, because TSan sees it in code that it does not instrument. */
template <class T>
T &single() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  static T *made;
  pthread_once(&once, [] { made = new T(); });
  return *made;
}

} // namespace simt

#endif
