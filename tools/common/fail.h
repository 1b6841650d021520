/* Exit codes and error texts of all programs. */
#ifndef LRMOE_TOOLS_FAIL_H
#define LRMOE_TOOLS_FAIL_H

/* What a program ends with, and what functions that can fail return. */
enum toolExit {
  toolGood = 0,
  toolBadInput = 1,     /* options or input files; what, where, why */
  toolRunFailed = 2,    /* a rank died or a call did not succeed */
  toolNotInstalled = 3, /* something must be installed */
  toolWrongData = 7     /* results differ from what they should be */
};

/* Why, in one line without its end. */
struct toolError {
  char text[512];
};

/* Writes the text and returns `code`. */
enum toolExit toolFail(struct toolError *error, enum toolExit code,
                       const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Prints "program: text" on stderr and returns `code`.  Prints nothing without
 * a text: somebody else says it. */
enum toolExit toolComplain(const char *program, enum toolExit code,
                           const struct toolError *error);

#endif
