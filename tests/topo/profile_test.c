/* Calibration profiles: written, read, damaged, of others; and what calibrated
 * ranks in one memory are predicted to take. */
#include "base/alloc.h"
#include "support/suite.h"
#include "topo/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A copy is 8 bytes a ns alone, and all ranks together do 16. */
static const struct lrmoeFit fits[] = {
    {lrmoePatternAll, lrmoeLinkMemory, {0, 16000000000, 3, 4, 5}},
    {lrmoePatternMessage, lrmoeLinkSelf, {0, 8000000000, 0, 0, 1}},
    {lrmoePatternMessage, lrmoeLinkMemory, {0, 8000000000, 1, 2, 9}},
    {lrmoePatternScatter, lrmoeLinkMemory, {0, 16000000000, 0, 0, 1}},
    {lrmoePatternGather, lrmoeLinkMemory, {0, 8000000000, 0, 0, 1}}};

static struct lrmoeTopology *create(int numRanks, int isCalibrated) {
  lrmoeTopology_t topology = NULL;
  ASSERT_OK(lrmoeTopologyCreate(numRanks, &topology));
  if (isCalibrated) ASSERT_OK(lrmoeTopologyApplyFits(topology, fits, 5));
  return topology;
}

/* What most tests begin with: a topology without and one with a calibration,
 * and the profile of the latter. */
static struct lrmoeTopology *plain, *calibrated;
static char *text;

static void setUp(void) {
  plain = create(4, 0);
  calibrated = create(4, 1);
  ASSERT_OK(lrmoeProfileWrite(calibrated, &text));
}

static void tearDown(void) {
  lrmoeTopologyDestroy(plain);
  lrmoeTopologyDestroy(calibrated);
  free(text);
}

static void sameFits(lrmoeTopology_t left, lrmoeTopology_t right) {
  for (int i = 0;; i++) {
    lrmoeTopologyFit_t a = LRMOE_TOPOLOGY_FIT_INITIALIZER, b = a;
    lrmoeResult_t result = lrmoeTopologyGetFit(left, i, &a);
    ck_assert_int_eq(result, lrmoeTopologyGetFit(right, i, &b));
    if (result != lrmoeSuccess) return;
    ck_assert_mem_eq(&a, &b, sizeof a);
  }
}

START_TEST(applied) {
  lrmoeLink_t link;
  ASSERT_OK(lrmoeTopologyGetLink(calibrated, 0, 3, &link));
  ck_assert_int_eq(link.guessed, 0);
  ck_assert_int_eq(link.linkClass, lrmoeLinkMemory);
  ck_assert_int_eq(link.bytesPerSecond, 8000000000);
  lrmoeTopologyFit_t fit = LRMOE_TOPOLOGY_FIT_INITIALIZER;
  ASSERT_OK(lrmoeTopologyGetFit(calibrated, 4, &fit)); /* sorted: all is last */
  ck_assert_int_eq(fit.pattern, lrmoePatternAll);
  ck_assert_int_eq(fit.bytesPerSecond, 16000000000);
  ck_assert_int_eq(fit.medianErrorPpm, 3);
  ck_assert_int_eq(fit.worstErrorPpm, 4);
  ck_assert_int_eq(fit.numSamples, 5);
  ASSERT_RESULT(lrmoeTopologyGetFit(calibrated, 5, &fit), lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologyGetFit(calibrated, -1, &fit),
                lrmoeInvalidArgument);
  struct lrmoeFit twice[] = {fits[0], fits[1], fits[0]};
  ASSERT_RESULT(lrmoeTopologyApplyFits(calibrated, twice, 3),
                lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(),
                   "two fits of pattern all, class memory");
  ck_assert_int_eq(calibrated->numFits, 5);
}
END_TEST

/* ---- Predictions -------------------------------------------------------- */

static int64_t predict(struct lrmoeTopology *topology, const int64_t *traffic) {
  int64_t ns = -1;
  ASSERT_OK(lrmoeTopologyTrafficNs(topology, traffic, &ns));
  return ns;
}

START_TEST(predictions) {
  const int64_t n = 8000000; /* one rank copies it in 1 ms */
  /* One message: one core. */
  ck_assert_int_eq(predict(calibrated, (int64_t[16]){[1] = n}), 1000000);
  /* One receiver of three: one core. */
  ck_assert_int_eq(
      predict(calibrated,
              (int64_t[16]){[0 * 4 + 3] = n, [4 + 3] = n, [8 + 3] = n}),
      3000000);
  /* All ranks alike: two cores for four ranks. */
  int64_t ring[16] = {[1] = n, [4 + 2] = n, [8 + 3] = n, [12] = n};
  ck_assert_int_eq(predict(calibrated, ring), 2000000);
  /* Two receivers: a core each. */
  ck_assert_int_eq(predict(calibrated, (int64_t[16]){[1] = n, [4] = n}),
                   1000000);
  /* Four, one with four times as much: 4 units at half speed are 2 ms, and the
   * three that are left of it take 3. */
  ring[1] = 4 * n;
  ck_assert_int_eq(predict(calibrated, ring), 5000000);
  /* What stays at home is copied too. */
  ck_assert_int_eq(predict(calibrated, (int64_t[16]){[0] = n}), 1000000);
  ck_assert_int_eq(predict(calibrated, (int64_t[16]){0}), 0);
  int64_t ns = 77;
  ASSERT_RESULT(
      lrmoeTopologyTrafficNs(calibrated, (int64_t[16]){[5] = -1}, &ns),
      lrmoeInvalidArgument);
  ck_assert_int_eq(ns, 77);
  /* Sums that no int64 holds. */
  int64_t most[16] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                      INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
  ck_assert_int_ge(predict(calibrated, most), INT64_MAX / 16);
}
END_TEST

/* More bytes never take less time. */
START_TEST(monotone) {
  uint64_t state = 7;
  for (int i = 0; i < 2000; i++) {
    int64_t traffic[16];
    for (int j = 0; j < 16; j++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      traffic[j] = state >> 62 ? (int64_t)(state >> 40) : 0;
    }
    int64_t before = predict(calibrated, traffic);
    traffic[i % 16] += 100000;
    ck_assert_int_ge(predict(calibrated, traffic) + 64, before);
  }
}
END_TEST

/* ---- Profiles ----------------------------------------------------------- */

START_TEST(roundTrip) {
  ASSERT_OK(lrmoeProfileRead("p", text, strlen(text), plain));
  sameFits(plain, calibrated);
  lrmoeLink_t link;
  ASSERT_OK(lrmoeTopologyGetLink(plain, 0, 1, &link));
  ck_assert_int_eq(link.guessed, 0);
}
END_TEST

START_TEST(files) {
  char path[] = "/tmp/lrmoe_profile_XXXXXX";
  int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  close(descriptor);
  ASSERT_RESULT(lrmoeTopologySaveProfile(plain, path), lrmoeInvalidUsage);
  ASSERT_RESULT(lrmoeTopologyLoadProfile(plain, path),
                lrmoeCorrupt); /* empty */
  ASSERT_OK(lrmoeTopologySaveProfile(calibrated, path));
  ASSERT_OK(lrmoeTopologySaveProfile(calibrated, path)); /* replaces it */
  ASSERT_OK(lrmoeTopologyLoadProfile(plain, path));
  sameFits(calibrated, plain);
  ASSERT_OK(lrmoeTopologySaveProfile(calibrated, "/dev/null"));
  ck_assert_int_eq(access("/dev/null", W_OK), 0);
  ASSERT_RESULT(lrmoeTopologySaveProfile(calibrated, "/nonexistent/p"),
                lrmoeSystemError);
  ASSERT_RESULT(lrmoeTopologyLoadProfile(calibrated, "/nonexistent/p"),
                lrmoeSystemError);
  ASSERT_RESULT(lrmoeTopologyLoadProfile(calibrated, "/tmp"), lrmoeSystemError);
  ASSERT_RESULT(lrmoeTopologyLoadProfile(calibrated, "/dev/zero"),
                lrmoeCorrupt);
  ASSERT_RESULT(lrmoeTopologyLoadProfile(calibrated, NULL),
                lrmoeInvalidArgument);
  ASSERT_RESULT(lrmoeTopologySaveProfile(NULL, path), lrmoeInvalidArgument);
  unlink(path);
}
END_TEST

START_TEST(ofAnother) {
  struct lrmoeTopology *topology = create(5, 0);
  ASSERT_RESULT(lrmoeProfileRead("p", text, strlen(text), topology),
                lrmoeInvalidArgument);
  ck_assert_str_eq(lrmoeGetLastError(), "p is of 4 ranks, the topology has 5");
  lrmoeTopologyDestroy(topology);
  plain->machineKey ^= 1;
  ASSERT_RESULT(lrmoeProfileRead("p", text, strlen(text), plain),
                lrmoeInvalidArgument);
  ck_assert_ptr_nonnull(strstr(lrmoeGetLastError(), "p is of another machine"));
  ck_assert_int_eq(plain->numFits, 0);
  ck_assert_int_eq(plain->calibrated, 0);
}
END_TEST

/* The text with its first `from` replaced. */
static char *replaced(const char *whole, const char *from, const char *to) {
  const char *at = strstr(whole, from);
  ck_assert_msg(at != NULL, "no %s in %s", from, whole);
  char *made = calloc(1, strlen(whole) + strlen(to) + 1);
  memcpy(made, whole, (size_t)(at - whole));
  strcat(made, to);
  strcat(made, at + strlen(from));
  return made;
}

static const struct {
  const char *from;
  const char *to;
  lrmoeResult_t result;
  const char *message;
} faults[] = {
    {"\"version\": 1", "\"version\": 2", lrmoeUnsupported, "of version 2"},
    {"\"version\": 1", "\"version\": \"1\"", lrmoeCorrupt, "no calibration"},
    {"lrmoe-profile", "lrmoe-plan", lrmoeCorrupt, "no calibration profile"},
    {"\"ranks\": 4", "\"ranks\": 4, \"host\": \"a\"", lrmoeUnsupported,
     "unknown field \"host\""},
    {"\"numSamples\"", "\"extra\": 1, \"numSamples\"", lrmoeUnsupported,
     "unknown field \"extra\""},
    {"\"ranks\": 4", "\"ranks\": 4, \"ranks\": 4", lrmoeCorrupt, "duplicate"},
    {"\"ranks\": 4,", "", lrmoeCorrupt, "no field \"ranks\""},
    {"\"ranks\": 4", "\"ranks\": 0", lrmoeCorrupt, "\"ranks\" is 0"},
    {"\"ranks\": 4", "\"ranks\": 4.0", lrmoeCorrupt, "no whole number"},
    {"\"ranks\": 4", "\"ranks\": 99999999999999999999", lrmoeCorrupt,
     "too big"},
    {"\"ranks\": 4", "\"ranks\": 5", lrmoeCorrupt, "check sum"},
    {"8000000000", "8000000001", lrmoeCorrupt, "check sum"},
    {"8000000000", "0", lrmoeCorrupt, "\"bytesPerSecond\" is 0"},
    {"8000000000", "-5", lrmoeCorrupt, "\"bytesPerSecond\" is -5"},
    {"8000000000", "100000000000001", lrmoeCorrupt, "\"bytesPerSecond\""},
    {"\"class\": \"memory\"", "\"class\": \"none\"", lrmoeCorrupt, "\"none\""},
    {"\"class\": \"memory\"", "\"class\": 7", lrmoeCorrupt, "no text"},
    {"\"pattern\": \"gather\"", "\"pattern\": \"all\"", lrmoeCorrupt,
     "check sum"},
    {"\"pattern\": \"gather\"", "\"pattern\": \"star\"", lrmoeCorrupt, "star"},
    {"\"machine\": \"", "\"machine\": \"0", lrmoeCorrupt, "not 16 hex digits"},
    {"\"checkSum\": \"", "\"checkSum\": \"X", lrmoeCorrupt, "16 hex digits"},
    {"\"fits\": [", "\"fits\": [7, ", lrmoeCorrupt, "a fit is no object"},
    {"\"fits\": [", "\"fits\": [], \"fitz\": [", lrmoeUnsupported, "fitz"},
    {"{", "[", lrmoeCorrupt, "p:"},
    {"{", "", lrmoeCorrupt, "p:"},
};

START_TEST(faultsAreNamed) {
  char *wrong = replaced(text, faults[_i].from, faults[_i].to);
  lrmoeResult_t result = lrmoeProfileRead("p", wrong, strlen(wrong), plain);
  ck_assert_msg(result == faults[_i].result, "%s: %s", faults[_i].to,
                lrmoeGetErrorString(result));
  ck_assert_msg(strstr(lrmoeGetLastError(), faults[_i].message) != NULL, "%s",
                lrmoeGetLastError());
  ck_assert_int_eq(plain->numFits, 0);
  free(wrong);
}
END_TEST

/* Every truncation, and every byte changed: refused, or the same figures. */
START_TEST(damaged) {
  size_t length = strlen(text);
  for (size_t i = 0; i < 2 * length; i++) {
    char kept = text[i / 2];
    if (i % 2) text[i / 2] = (char)(kept ^ (1 << (i / 2 % 7)));
    lrmoeResult_t result =
        lrmoeProfileRead("p", text, i % 2 ? length : i / 2, plain);
    text[i / 2] = kept;
    ck_assert(i % 2 || result == lrmoeCorrupt);
    if (result != lrmoeSuccess) {
      ck_assert_int_eq(plain->numFits, 0);
      continue;
    }
    sameFits(calibrated, plain);
    lrmoeFree(plain->fits);
    plain->fits = NULL;
    plain->numFits = 0;
  }
}
END_TEST

START_TEST(allocationFaults) {
  lrmoeAllocFailAt(1);
  ASSERT_RESULT(lrmoeProfileRead("p", text, strlen(text), plain),
                lrmoeOutOfMemory);
  lrmoeAllocFailAt(0);
  ck_assert_int_eq(plain->numFits, 0);
  ASSERT_OK(lrmoeProfileRead("p", text, strlen(text), plain));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("profile");
  TCase *tcase = tcase_create("profile");
  tcase_set_timeout(tcase, 120);
  tcase_add_checked_fixture(tcase, setUp, tearDown);
  tcase_add_test(tcase, applied);
  tcase_add_test(tcase, predictions);
  tcase_add_test(tcase, monotone);
  tcase_add_test(tcase, roundTrip);
  tcase_add_test(tcase, files);
  tcase_add_test(tcase, ofAnother);
  tcase_add_loop_test(tcase, faultsAreNamed, 0,
                      (int)(sizeof faults / sizeof *faults));
  tcase_add_test(tcase, damaged);
  tcase_add_test(tcase, allocationFaults);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
