/* The rivals on random loads and in corners: the other half of rivals_test. */
#ifndef LRMOE_TESTS_PLANNER_RIVALS_RANDOM_H
#define LRMOE_TESTS_PLANNER_RIVALS_RANDOM_H

#include <check.h>

TCase *rivalsRandomCase(void);

#endif
