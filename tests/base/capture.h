/* Standard error of a test, as text. */
#ifndef LRMOE_TESTS_BASE_CAPTURE_H
#define LRMOE_TESTS_BASE_CAPTURE_H

#include <check.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct capture {
  FILE *file;
  int saved;
};

static inline struct capture captureBegin(void) {
  fflush(stderr);
  struct capture capture = {tmpfile(), dup(STDERR_FILENO)};
  ck_assert_ptr_nonnull(capture.file);
  dup2(fileno(capture.file), STDERR_FILENO);
  return capture;
}

static inline void captureEnd(struct capture *capture, char *text,
                              size_t room) {
  fflush(stderr);
  dup2(capture->saved, STDERR_FILENO);
  close(capture->saved);
  rewind(capture->file);
  text[fread(text, 1, room - 1, capture->file)] = 0;
  fclose(capture->file);
}

static inline int countLines(const char *text) {
  int numLines = 0;
  for (; *text; text++)
    numLines += *text == '\n';
  return numLines;
}

#endif
