/* Calibration profiles: see profile.h.
 *
 *   {
 *    "format": "lrmoe-profile",
 *    "version": 1,
 *    "machine": "16 hex digits",      lrmoeTopologyInfo_t.machineKey
 *    "ranks": 4,
 *    "fits": [
 *     {
 *      "pattern": "message",          message, gather, scatter, all
 *      "class": "memory",             self, memory, device, direct, switched,
 *                                     pci, host bridge, sockets, nic
 *      "latencyNs": 1700,             0 .. 10^12
 *      "bytesPerSecond": 7000000000,  1 .. 10^14
 *      "medianErrorPpm": 21000,       0 or more
 *      "worstErrorPpm": 80000,        0 or more
 *      "numSamples": 135              1 or more
 *     }, ...
 *    ],
 *    "checkSum": "16 hex digits"      of the above, see checkSumOf
 *   }
 *
 * Every field must be there, once; others are refused by name, so that a later
 * version cannot be taken for this one by half.  The check sum tells a damaged
 * file from a true one: each figure steers plans that all ranks must agree on.
 * It is checked last, so that what can be named is named. */
#include "topo/profile.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  profileVersion = 1,
  maxProfileFits = lrmoeNumPatterns * lrmoeNumLinkClasses,
  numFigures = 5,
  hexDigits = 16
};

static const char formatName[] = "lrmoe-profile";

static const struct {
  const char *key;
  int64_t least;
  int64_t most;
} figures[numFigures] = {
    {"latencyNs", 0, 1000000000000},  {"bytesPerSecond", 1, LRMOE_MAX_RATE},
    {"medianErrorPpm", 0, INT64_MAX}, {"worstErrorPpm", 0, INT64_MAX},
    {"numSamples", 1, INT64_MAX},
};

/* A line's figures in the order of the table. */
static void listFigures(const struct lrmoeLine *line,
                        int64_t values[numFigures]) {
  values[0] = line->latencyNs;
  values[1] = line->bytesPerSecond;
  values[2] = line->medianErrorPpm;
  values[3] = line->worstErrorPpm;
  values[4] = line->numSamples;
}

static uint64_t checkSumOf(uint64_t machine, int64_t numRanks,
                           const struct lrmoeFit *fits, int64_t numFits) {
  int64_t head[] = {profileVersion, (int64_t)machine, numRanks, numFits};
  uint64_t sum = lrmoeHash(0, head, sizeof head);
  for (int64_t i = 0; i < numFits; i++) {
    int64_t words[2 + numFigures] = {(int64_t)fits[i].pattern,
                                     (int64_t)fits[i].linkClass};
    listFigures(&fits[i].line, words + 2);
    sum = lrmoeHash(sum, words, sizeof words);
  }
  return sum;
}

/* ---- Writing ------------------------------------------------------------ */

static json_t *makeHex(uint64_t value) {
  char digits[hexDigits + 1];
  snprintf(digits, sizeof digits, "%016" PRIx64, value);
  return json_string(digits);
}

static json_t *makeFit(const struct lrmoeFit *fit) {
  int64_t values[numFigures];
  listFigures(&fit->line, values);
  json_t *object =
      json_pack("{s:s, s:s}", "pattern", lrmoePatternName(fit->pattern),
                "class", lrmoeLinkClassName(fit->linkClass));
  for (int i = 0; i < numFigures; i++)
    if (json_object_set_new(object, figures[i].key, json_integer(values[i]))) {
      json_decref(object);
      return NULL;
    }
  return object;
}

static json_t *makeFits(const struct lrmoeTopology *topology) {
  json_t *fits = json_array();
  for (int32_t i = 0; i < topology->numFits; i++)
    if (json_array_append_new(fits, makeFit(&topology->fits[i]))) {
      json_decref(fits);
      return NULL;
    }
  return fits;
}

lrmoeResult_t lrmoeProfileWrite(const struct lrmoeTopology *topology,
                                char **text) {
  if (!topology->numFits)
    return LRMOE_FAIL(lrmoeInvalidUsage, "the topology is not calibrated");
  uint64_t sum = checkSumOf(topology->machineKey, topology->numRanks,
                            topology->fits, topology->numFits);
  /* Pack gives NULL, and frees the others, if one is NULL. */
  json_t *document = json_pack(
      "{s:s, s:i, s:o, s:i, s:o, s:o}", "format", formatName, "version",
      profileVersion, "machine", makeHex(topology->machineKey), "ranks",
      topology->numRanks, "fits", makeFits(topology), "checkSum", makeHex(sum));
  char *made = document ? json_dumps(document, JSON_INDENT(1)) : NULL;
  json_decref(document);
  if (!made) return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for a profile");
  *text = made;
  return lrmoeSuccess;
}

/* ---- Reading ------------------------------------------------------------ */

struct reader {
  const char *source;
  const struct lrmoeTopology *topology;
  struct lrmoeFit fits[maxProfileFits];
  int32_t numFits;
};

/* All fields of `names` are there, and no others. */
static lrmoeResult_t checkFields(const struct reader *reader, json_t *object,
                                 const char *const *names, const char *what) {
  const char *key;
  json_t *value;
  if (!json_is_object(object))
    return LRMOE_FAIL(lrmoeCorrupt, "%s: %s is no object", reader->source,
                      what);
  json_object_foreach(object, key, value) {
    const char *const *name = names;
    while (*name && strcmp(*name, key) != 0)
      name++;
    if (!*name)
      return LRMOE_FAIL(lrmoeUnsupported,
                        "%s: %s has an unknown field \"%.60s\"", reader->source,
                        what, key);
  }
  for (; *names; names++)
    if (!json_object_get(object, *names))
      return LRMOE_FAIL(lrmoeCorrupt, "%s: %s has no field \"%s\"",
                        reader->source, what, *names);
  return lrmoeSuccess;
}

static lrmoeResult_t readInt(const struct reader *reader, json_t *object,
                             const char *key, int64_t limits[2],
                             int64_t *value) {
  json_t *found = json_object_get(object, key);
  if (!json_is_integer(found))
    return LRMOE_FAIL(lrmoeCorrupt, "%s: \"%s\" is no whole number",
                      reader->source, key);
  int64_t read = json_integer_value(found);
  if (read < limits[0] || read > limits[1])
    return LRMOE_FAIL(lrmoeCorrupt, "%s: \"%s\" is %lld, not %lld..%lld",
                      reader->source, key, (long long)read,
                      (long long)limits[0], (long long)limits[1]);
  *value = read;
  return lrmoeSuccess;
}

static lrmoeResult_t readHex(const struct reader *reader, json_t *object,
                             const char *key, uint64_t *value) {
  const char *text = json_string_value(json_object_get(object, key));
  if (!text || strlen(text) != hexDigits ||
      strspn(text, "0123456789abcdef") != hexDigits)
    return LRMOE_FAIL(lrmoeCorrupt, "%s: \"%s\" is not %d hex digits",
                      reader->source, key, hexDigits);
  *value = strtoull(text, NULL, 16);
  return lrmoeSuccess;
}

/* The name's number in one of the two lists. */
static lrmoeResult_t readName(const struct reader *reader, json_t *object,
                              const char *key, bool isPattern, int *number) {
  const char *text = json_string_value(json_object_get(object, key));
  int count = isPattern ? lrmoeNumPatterns : lrmoeLinkNone;
  for (int i = 0; i < count && text; i++) {
    const char *name = isPattern ? lrmoePatternName((lrmoePattern_t)i)
                                 : lrmoeLinkClassName((lrmoeLinkClass_t)i);
    if (strcmp(name, text) != 0) continue;
    *number = i;
    return lrmoeSuccess;
  }
  return LRMOE_FAIL(lrmoeCorrupt, "%s: \"%s\" is \"%.60s\"", reader->source,
                    key, text ? text : "no text");
}

static lrmoeResult_t readFit(const struct reader *reader, json_t *object,
                             struct lrmoeFit *fit) {
  static const char *const names[] = {
      "pattern",        "class",         "latencyNs",  "bytesPerSecond",
      "medianErrorPpm", "worstErrorPpm", "numSamples", NULL};
  int pattern = 0, linkClass = 0;
  int64_t values[numFigures] = {0};
  LRMOE_CHECK(checkFields(reader, object, names, "a fit"));
  LRMOE_CHECK(readName(reader, object, "pattern", true, &pattern));
  LRMOE_CHECK(readName(reader, object, "class", false, &linkClass));
  for (int i = 0; i < numFigures; i++)
    LRMOE_CHECK(readInt(reader, object, figures[i].key,
                        (int64_t[]){figures[i].least, figures[i].most},
                        &values[i]));
  *fit = (struct lrmoeFit){
      (lrmoePattern_t)pattern,
      (lrmoeLinkClass_t)linkClass,
      {values[0], values[1], values[2], values[3], values[4]}};
  return lrmoeSuccess;
}

static lrmoeResult_t readFits(struct reader *reader, json_t *list) {
  size_t count = json_array_size(list); /* 0 of what is no list */
  if (count < 1 || count > maxProfileFits)
    return LRMOE_FAIL(lrmoeCorrupt, "%s: \"fits\" is no list of 1..%d",
                      reader->source, maxProfileFits);
  for (size_t i = 0; i < count; i++)
    LRMOE_CHECK(readFit(reader, json_array_get(list, i), &reader->fits[i]));
  reader->numFits = (int32_t)count;
  return lrmoeSuccess;
}

static lrmoeResult_t checkFormat(const struct reader *reader, json_t *root) {
  const char *format = json_string_value(json_object_get(root, "format"));
  json_t *version = json_object_get(root, "version");
  if (!format || strcmp(format, formatName) != 0 || !json_is_integer(version))
    return LRMOE_FAIL(lrmoeCorrupt, "%s is no calibration profile",
                      reader->source);
  if (json_integer_value(version) != profileVersion)
    return LRMOE_FAIL(lrmoeUnsupported,
                      "%s is a profile of version %lld; this library reads "
                      "version %d: run lrmoe-calibrate again",
                      reader->source, (long long)json_integer_value(version),
                      profileVersion);
  return lrmoeSuccess;
}

static lrmoeResult_t checkMachine(const struct reader *reader, uint64_t machine,
                                  int64_t numRanks) {
  const struct lrmoeTopology *topology = reader->topology;
  LRMOE_REQUIRE(numRanks == topology->numRanks,
                "%s is of %lld ranks, the topology has %d", reader->source,
                (long long)numRanks, topology->numRanks);
  LRMOE_REQUIRE(machine == topology->machineKey,
                "%s is of another machine: its key is %016" PRIx64
                ", this one's %016" PRIx64,
                reader->source, machine, topology->machineKey);
  return lrmoeSuccess;
}

static lrmoeResult_t readRoot(struct reader *reader, json_t *root) {
  static const char *const names[] = {"format", "version",  "machine", "ranks",
                                      "fits",   "checkSum", NULL};
  uint64_t machine = 0, sum = 0;
  int64_t numRanks = 0;
  LRMOE_CHECK(checkFormat(reader, root));
  LRMOE_CHECK(checkFields(reader, root, names, "the profile"));
  LRMOE_CHECK(readHex(reader, root, "machine", &machine));
  LRMOE_CHECK(readHex(reader, root, "checkSum", &sum));
  LRMOE_CHECK(
      readInt(reader, root, "ranks", (int64_t[]){1, INT32_MAX}, &numRanks));
  LRMOE_CHECK(readFits(reader, json_object_get(root, "fits")));
  if (sum != checkSumOf(machine, numRanks, reader->fits, reader->numFits))
    return LRMOE_FAIL(lrmoeCorrupt, "%s: the check sum is wrong",
                      reader->source);
  return checkMachine(reader, machine, numRanks);
}

lrmoeResult_t lrmoeProfileRead(const char *source, const char *text,
                               size_t bytes, struct lrmoeTopology *topology) {
  struct reader reader = {.source = source, .topology = topology};
  json_error_t why;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
  if (!root)
    return LRMOE_FAIL(lrmoeCorrupt, "%s:%d: %s", source, why.line, why.text);
  lrmoeResult_t result = readRoot(&reader, root);
  json_decref(root);
  if (result == lrmoeSuccess)
    result = lrmoeTopologyApplyFits(topology, reader.fits, reader.numFits);
  return result;
}
