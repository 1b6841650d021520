/* Programs under test: run with arguments, what they print, their JSON. */
#ifndef LRMOE_TESTS_SUPPORT_PROGRAM_H
#define LRMOE_TESTS_SUPPORT_PROGRAM_H

enum {
  programMaxText = 1 << 16
};

/* What the last run printed, cut at programMaxText - 1 bytes. */
extern char programOut[programMaxText];
extern char programErr[programMaxText];

/* A folder of this test's own, made on the first call and emptied and removed
 * when the process ends; the path is static. */
const char *programFolder(void);

/* "FOLDER/name", in one of four static buffers that take turns. */
const char *programPath(const char *name);

/* Writes FOLDER/name. */
void programWrite(const char *name, const char *text);

/* Text of FOLDER/name, in a static buffer. */
const char *programRead(const char *name);

/* Runs `program arguments` through a shell, in the folder; its exit code. */
int programRun(const char *program, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Asserts that the run ends with 1, prints no result, and complains with a
 * text that contains `why`. */
void programRefuses(const char *program, const char *arguments,
                    const char *why);

#endif
