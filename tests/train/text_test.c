/* The text and the n-gram model: known answers. */
#include "perf/train/ngram.h"
#include "perf/train/text.h"
#include "story.h"
#include "support/program.h"
#include "support/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int isUtf8(const char *text) {
  return trainTextIsUtf8((const uint8_t *)text, (int64_t)strlen(text));
}

START_TEST(utf8) {
  const char *const good[] = {"",
                              "abc\n",
                              "caf\xc3\xa9",
                              "\xe2\x82\xac",
                              "\xf0\x9f\x99\x82",
                              "\xed\x9f\xbf"};
  const char *const bad[] = {"\xc3",
                             "\x80",
                             "\xc0\xaf",
                             "\xe0\x80\xaf",
                             "\xed\xa0\x80",
                             "\xf0\x80\x80\xaf",
                             "\xf4\x90\x80\x80",
                             "\xff",
                             "a\xe2\x82"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++)
    ck_assert_msg(isUtf8(good[i]), "good %zu", i);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    ck_assert_msg(!isUtf8(bad[i]), "bad %zu", i);
  ck_assert(!trainTextIsUtf8((const uint8_t *)"a\0b", 3));
}
END_TEST

/* Forty blocks, the tenth of each ten held out, and nothing lost. */
START_TEST(parts) {
  uint8_t bytes[400];
  struct trainText text;
  struct toolError error;
  for (int i = 0; i < 400; i++)
    bytes[i] = (uint8_t)(i / 10); /* block number */
  ck_assert_int_eq(trainTextSplit("x", bytes, 400, 40, &text, &error), 0);
  ck_assert_int_eq(text.numTrain, 360);
  ck_assert_int_eq(text.numHeldOut, 40);
  for (int i = 0; i < 40; i++)
    ck_assert_int_eq(text.heldOut[i], i / 10 * 10 + 9);
  for (int i = 0; i < 360; i++)
    ck_assert_int_eq(text.train[i], i / 90 * 10 + i / 10 % 9);
  trainTextFree(&text);
  ck_assert_int_eq(trainTextSplit("x", bytes, 400, 41, &text, &error),
                   toolBadInput);
  ck_assert_ptr_nonnull(strstr(error.text, "too few"));
}
END_TEST

START_TEST(files) {
  struct trainText text;
  struct toolError error;
  char story[8192], folder[128];
  storyTell(story, sizeof story);
  programWrite("b", story);
  programWrite("a", "first\n");
  programWrite(".hidden", "no");
  programWrite("c.bad", "\xff\xfe");
  snprintf(folder, sizeof folder, "%s", programPath("a"));
  ck_assert_int_eq(symlink("a", programPath("link")), 0);
  ck_assert_int_eq(trainTextRead(programFolder(), 100, &text, &error),
                   toolGood);
  ck_assert_int_eq(text.numTrain + text.numHeldOut, (int64_t)strlen(story) + 6);
  ck_assert_mem_eq(text.train, "first\n", 6);
  trainTextFree(&text);
  ck_assert_int_eq(trainTextRead(programPath("c.bad"), 1, &text, &error),
                   toolBadInput);
  ck_assert_ptr_nonnull(strstr(error.text, "not UTF-8"));
  ck_assert_int_eq(trainTextRead(programPath("none"), 1, &text, &error),
                   toolBadInput);
}
END_TEST

/* Windows are inside, differ, and the held-out ones do not overlap. */
START_TEST(windows) {
  struct trainText text = {.numTrain = 101, .numHeldOut = 101};
  int64_t seen[100] = {0}, numSeen = 0;
  for (int64_t i = 0; i < 2000; i++) {
    int64_t at = trainTextWindow(&text, 5, i, 10);
    ck_assert(at >= 0 && at + 10 < 101);
    numSeen += !seen[at]++;
  }
  ck_assert_int_eq(numSeen, 91);
  ck_assert_int_eq(trainTextHeldOut(&text, 10, 0), 10);
  ck_assert_int_eq(trainTextHeldOut(&text, 10, 3), 3);
  for (int64_t i = 0; i < 10; i++)
    ck_assert_int_eq(trainTextHeldOutAt(&text, 10, 10, i), 10 * i);
  ck_assert_int_eq(trainTextHeldOutAt(&text, 10, 3, 2), 60);
}
END_TEST

static double probability(const struct trainNgram *ngram, const char *before,
                          char byte) {
  return trainNgramProbability(ngram, (const uint8_t *)before,
                               (int64_t)strlen(before), (uint8_t)byte);
}

/* Worked by hand.  "abababa" has the 5-grams ababa (2) and babab (1): n1 = 1,
 * n2 = 1, D = 1/3.  Different bytes stand before: baba 1 (a), abab 1 (b); and
 * so for every shorter one: bab 1, aba 1; ba 1, ab 1; a 1, b 1.  There n1 = 2,
 * n2 = 0, so that D = 1, held at 0.9.
 *   P1(a) = (1 - 0.9) / 2 + 0.9 * 2 / 2 / 256
 *   P2(a | b) = 1 - 0.9 + 0.9 P1(a), as b is followed by a only; so too
 *   P3(a | ab), P4(a | bab); P5(a | abab) = (2 - 1/3) / 2 + 1/3 / 2 P4.
 * The unseen c gets what is left over. */
START_TEST(ngramByHand) {
  struct trainNgram *ngram = trainNgramMake((const uint8_t *)"abababa", 7);
  double p1 = 0.05 + 0.9 / 256, c = 0.9 / 256;
  ck_assert_double_eq_tol(probability(ngram, "", 'a'), p1, 1e-12);
  ck_assert_double_eq_tol(probability(ngram, "", 'c'), c, 1e-12);
  double p = p1;
  const char *const before[] = {"b", "ab", "bab"};
  for (int i = 0; i < 3; i++) {
    p = 0.1 + 0.9 * p;
    c *= 0.9;
    ck_assert_double_eq_tol(probability(ngram, before[i], 'a'), p, 1e-12);
    ck_assert_double_eq_tol(probability(ngram, before[i], 'c'), c, 1e-12);
  }
  p = (2 - 1.0 / 3) / 2 + p / 6;
  ck_assert_double_eq_tol(probability(ngram, "abab", 'a'), p, 1e-12);
  /* Only four bytes count. */
  ck_assert_double_eq_tol(probability(ngram, "zzabab", 'a'), p, 1e-12);
  /* A context that was never seen: the longest one that was. */
  ck_assert_double_eq_tol(probability(ngram, "zb", 'a'), 0.1 + 0.9 * p1, 1e-12);
  trainNgramFree(ngram);
}
END_TEST

/* Whatever the context, probabilities add up to 1; and longer contexts help on
 * text of the same kind. */
START_TEST(ngramIsADistribution) {
  static char story[1 << 16];
  int64_t count = (int64_t)storyTell(story, sizeof story);
  const uint8_t *bytes = (const uint8_t *)story;
  struct trainNgram *ngram = trainNgramMake(bytes, count / 2);
  for (int64_t at = 0; at < 4000; at += 37) {
    int64_t length = at % 6 < at ? at % 6 : at;
    double sum = 0;
    for (int byte = 0; byte < 256; byte++)
      sum += trainNgramProbability(ngram, bytes + at - length, length,
                                   (uint8_t)byte);
    ck_assert_double_eq_tol(sum, 1, 1e-9);
  }
  double loss = 0;
  for (int64_t i = count / 2; i < count; i++)
    loss -= log(trainNgramProbability(ngram, bytes + i, 0, bytes[i]));
  double ours = trainNgramLoss(ngram, bytes, count / 2, count - count / 2);
  ck_assert(ours > 0 && ours < 0.5 * loss);
  trainNgramFree(ngram);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {utf8,    parts,       files,
                                windows, ngramByHand, ngramIsADistribution};
  return suiteRunTests("text", tests, sizeof tests / sizeof *tests, 60);
}
