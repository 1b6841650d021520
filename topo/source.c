/* From a configuration to a topology: reads each source into a machine of its
 * own, completes and checks it, joins them, and builds the model.
 *
 * A file's format is told by its first element, <topology> or <system>; its
 * name says nothing. */
#include "base/alloc.h"
#include "base/config.h"
#include "topo/readers.h"
#include "topo/topology.h"
#include "topo/xml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
  maxSources = 1 << 16,
  maxCopies = 1 << 20,
  maxJoinedNodes = 1 << 22
};

/* ---- Files -------------------------------------------------------------- */

static lrmoeResult_t sizeOf(FILE *file, const char *path, size_t *bytes) {
  struct stat status;
  if (fstat(fileno(file), &status))
    return LRMOE_FAIL(lrmoeSystemError, "%s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode))
    return LRMOE_FAIL(lrmoeInvalidArgument, "%s is no file", path);
  LRMOE_REQUIRE(status.st_size > 0 && status.st_size <= lrmoeMaxXmlBytes,
                "%s is %lld B long, not 1..%d", path, (long long)status.st_size,
                lrmoeMaxXmlBytes);
  *bytes = (size_t)status.st_size;
  return lrmoeSuccess;
}

static lrmoeResult_t readOpen(FILE *file, const char *path, char **text,
                              size_t *bytes) {
  char *made = NULL;
  size_t room = 0;
  LRMOE_CHECK(sizeOf(file, path, &room));
  LRMOE_CHECK(LRMOE_ALLOCATE(room + 1, &made));
  size_t count = fread(made, 1, room, file);
  if (ferror(file)) {
    lrmoeFree(made);
    return LRMOE_FAIL(lrmoeSystemError, "%s cannot be read: %s", path,
                      strerror(errno));
  }
  *text = made;
  *bytes = count;
  return lrmoeSuccess;
}

static lrmoeResult_t readFile(const char *path, char **text, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return LRMOE_FAIL(lrmoeSystemError, "%s: %s", path, strerror(errno));
  lrmoeResult_t result = readOpen(file, path, text, bytes);
  fclose(file);
  return result;
}

/* ---- What it is --------------------------------------------------------- */

struct span {
  const char *at;
  const char *end;
};

static bool startsWith(struct span span, const char *word) {
  size_t length = strlen(word);
  return (size_t)(span.end - span.at) >= length &&
         memcmp(span.at, word, length) == 0;
}

/* Past the first occurrence of a word; the end without it. */
static const char *past(struct span span, const char *word) {
  size_t length = strlen(word);
  const char *found =
      memmem(span.at, (size_t)(span.end - span.at), word, length);
  return found ? found + length : span.end;
}

static bool isSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A document type may have declarations in brackets. */
static const char *pastDoctype(struct span span) {
  struct span head = {span.at, past(span, ">")};
  if (memchr(head.at, '[', (size_t)(head.end - head.at)))
    span.at = past(span, "]");
  return past(span, ">");
}

/* To the first element: over a byte order mark, space, comments, the XML
 * declaration and a document type. */
static struct span skipProlog(struct span span) {
  if (startsWith(span, "\xef\xbb\xbf")) span.at += 3;
  for (;;) {
    while (span.at < span.end && isSpace(*span.at))
      span.at++;
    if (startsWith(span, "<!--"))
      span.at = past(span, "-->");
    else if (startsWith(span, "<?"))
      span.at = past(span, "?>");
    else if (startsWith(span, "<!DOCTYPE"))
      span.at = pastDoctype(span);
    else
      return span;
  }
}

static bool isElement(struct span span, const char *name) {
  size_t length = strlen(name);
  if (!startsWith(span, "<")) return false;
  span.at++;
  if (!startsWith(span, name)) return false;
  span.at += length;
  return span.at == span.end || isSpace(*span.at) || *span.at == '>' ||
         *span.at == '/';
}

static lrmoeResult_t readContent(const char *source, const char *text,
                                 size_t bytes, struct lrmoeMachine *machine) {
  struct span root = skipProlog((struct span){text, text + bytes});
  if (isElement(root, "system"))
    return lrmoeNcclRead(source, text, bytes, machine);
  /* Without what is before it: lstopo writes a document type, which nothing
   * here may have. */
  const struct lrmoeHwlocInput input = {
      .source = source, .text = root.at, .bytes = (size_t)(root.end - root.at)};
  if (isElement(root, "topology")) return lrmoeHwlocRead(&input, machine);
  return LRMOE_FAIL(lrmoeInvalidArgument,
                    "%s is neither hwloc's XML (<topology>) nor NCCL's "
                    "(<system>)",
                    source);
}

/* ---- Sources ------------------------------------------------------------ */

static lrmoeResult_t readPath(const char *path, struct lrmoeMachine *machine) {
  char *text = NULL;
  size_t bytes = 0;
  LRMOE_CHECK(readFile(path, &text, &bytes));
  lrmoeResult_t result = readContent(path, text, bytes, machine);
  lrmoeFree(text);
  return result;
}

static lrmoeResult_t readSource(const lrmoeTopologySource_t *source,
                                struct lrmoeMachine *machine) {
  LRMOE_REQUIRE(source->text || source->kind == lrmoeSourceLive,
                "a topology source without text");
  switch (source->kind) {
  case lrmoeSourceAuto:
    return readPath(source->text, machine);
  case lrmoeSourceText:
    return readContent("text", source->text,
                       source->bytes ? source->bytes : strlen(source->text),
                       machine);
  case lrmoeSourceSynthetic:
    return lrmoeSyntheticRead(source->text, machine);
  case lrmoeSourceLive:
    return lrmoeLiveRead(machine);
  default:
    return LRMOE_FAIL(lrmoeInvalidArgument, "a topology source of kind %d",
                      (int)source->kind);
  }
}

static const char *nameOf(const lrmoeTopologySource_t *source) {
  switch (source->kind) {
  case lrmoeSourceAuto:
    return source->text;
  case lrmoeSourceText:
    return "text";
  case lrmoeSourceSynthetic:
    return "synthetic";
  default:
    return "this machine";
  }
}

static lrmoeResult_t addSource(const lrmoeTopologySource_t *source,
                               struct lrmoeMachine *one,
                               struct lrmoeMachine *all) {
  LRMOE_REQUIRE(source->copies >= 1 && source->copies <= maxCopies,
                "%d copies of a host, not 1..%d", source->copies, maxCopies);
  LRMOE_CHECK(readSource(source, one));
  LRMOE_CHECK(lrmoeMachineComplete(one));
  LRMOE_CHECK(lrmoeMachineCheck(one, nameOf(source)));
  LRMOE_REQUIRE((int64_t)one->numNodes * source->copies + all->numNodes <=
                    maxJoinedNodes,
                "more than %d nodes in all", maxJoinedNodes);
  return lrmoeMachineJoin(all, one, source->copies);
}

/* The next of the caller's structs, which may be of another version: each is as
 * long as it says. */
static lrmoeResult_t addNext(const char **given, struct lrmoeMachine *all) {
  lrmoeTopologySource_t source = LRMOE_TOPOLOGY_SOURCE_INITIALIZER;
  if (*given) {
    LRMOE_CHECK(lrmoeConfigRead("lrmoeTopologySource_t", *given, sizeof source,
                                &source));
    *given += source.size;
  } else {
    source.kind = lrmoeSourceLive;
  }
  struct lrmoeMachine one = {0};
  lrmoeResult_t result = addSource(&source, &one, all);
  lrmoeMachineFree(&one);
  return result;
}

static lrmoeResult_t addAll(const lrmoeTopologyConfig_t *config,
                            struct lrmoeMachine *all) {
  const char *given = config->numSources ? (const char *)config->sources : NULL;
  int64_t count = config->numSources ? config->numSources : 1;
  for (int64_t i = 0; i < count; i++)
    LRMOE_CHECK(addNext(&given, all));
  return lrmoeSuccess;
}

static lrmoeResult_t checkConfig(const lrmoeTopologyConfig_t *config) {
  LRMOE_REQUIRE(config->numSources >= 0 && config->numSources <= maxSources &&
                    (config->sources || !config->numSources),
                "%lld topology sources, not 0..%d",
                (long long)config->numSources, maxSources);
  LRMOE_REQUIRE(config->rankOrder >= lrmoeRanksAuto &&
                    config->rankOrder <= lrmoeRanksIndex,
                "a rank order of kind %d", (int)config->rankOrder);
  LRMOE_REQUIRE(config->numRanks >= 0, "numRanks is %d", config->numRanks);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeTopologyOpen(const lrmoeTopologyConfig_t *config,
                                lrmoeTopology_t *topology) {
  return lrmoeTopologyOpenAt(config, NULL, topology);
}

lrmoeResult_t lrmoeTopologyOpenAt(const lrmoeTopologyConfig_t *config,
                                  const int64_t *buses,
                                  lrmoeTopology_t *topology) {
  LRMOE_REQUIRE(topology, "topology is NULL");
  lrmoeTopologyConfig_t known = LRMOE_TOPOLOGY_CONFIG_INITIALIZER;
  if (config)
    LRMOE_CHECK(
        lrmoeConfigRead("lrmoeTopologyConfig_t", config, sizeof known, &known));
  LRMOE_CHECK(checkConfig(&known));
  struct lrmoeMachine all = {0};
  struct lrmoeTopology *made = NULL;
  struct lrmoeModelConfig model = {known.numRanks, known.rankOrder, buses};
  lrmoeResult_t result = addAll(&known, &all);
  if (result == lrmoeSuccess) result = lrmoeModelBuild(&all, &model, &made);
  lrmoeMachineFree(&all);
  if (result == lrmoeSuccess && known.profile)
    result = lrmoeTopologyLoadProfile(made, known.profile);
  if (result == lrmoeSuccess)
    *topology = made;
  else
    lrmoeTopologyDestroy(made);
  return result;
}
