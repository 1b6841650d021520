/* The matrices NVLinkBandwidth and XGMIBandwidth of hwloc's XML: MB/s from the
 * object of a row to that of a column, one direction; 0: no link; what stands
 * for an object and itself does not count.
 *
 * NVSwitches are objects of the matrix: a GPU's links to all of them are its
 * links to the host's switch, which lrmoeMachineComplete adds up.  Links to
 * processors (POWER) are named by package or NUMA node.
 *
 * hwloc up to 2.9 states 50 GB/s for an NVLink 3 or 4, which moves 25
 * (open-mpi/hwloc#574): a GPU whose links would move more than its model has in
 * all is halved, and so is the matrix, with a note.  RSMI's figure for a link
 * was 100 GB/s whatever the GPU in those releases: a guess. */
#include "base/alloc.h"
#include "topo/hwloc_xml.h"
#include "topo/readers.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
  maxMatrixObjects = 4096
};

/* MB/s of all NVLinks of a GPU, one direction, by NVIDIA's data sheets.  The
 * first that the model's name contains. */
static const struct {
  const char *model;
  int64_t total;
} nvlinkTotals[] = {{"P100", 80000},  {"V100", 150000}, {"A100", 300000},
                    {"A800", 200000}, {"H100", 450000}, {"H200", 450000},
                    {"H800", 200000}, {"H20", 450000},  {"B100", 900000},
                    {"B200", 900000}, {"B300", 900000}};

static const int64_t rsmiDefault = 100000;

struct matrix {
  const xmlNode *element;
  int64_t numObjects;
  int32_t *nodes;  /* [numObjects] -1: none of ours */
  int64_t *values; /* [numObjects, numObjects] */
  bool isNvlink;
  bool isGuessed;
};

/* ---- Reading ------------------------------------------------------------ */

static const struct lrmoeHwlocObject *find(const struct lrmoeHwloc *reader,
                                           int64_t gpIndex) {
  for (int32_t i = 0; i < reader->numObjects; i++)
    if (reader->objects[i].gpIndex == gpIndex) return &reader->objects[i];
  return NULL;
}

/* The next word of a list in the text of elements of one name.  Words are
 * whole within an element. */
struct words {
  const xmlNode *element; /* being read */
  const char *name;
  const char *at;
};

static const char *textOf(const xmlNode *element) {
  const xmlNode *text = element->children;
  return text && text->content ? (const char *)text->content : "";
}

static const char *nextWord(struct words *words) {
  while (words->element) {
    bool isList = lrmoeXmlIs(words->element, words->name);
    if (isList && !words->at) words->at = textOf(words->element);
    while (isList && isspace((unsigned char)*words->at))
      words->at++;
    if (isList && *words->at) {
      const char *word = words->at;
      while (*words->at && !isspace((unsigned char)*words->at))
        words->at++;
      return word;
    }
    words->element = lrmoeXmlNext(words->element);
    words->at = NULL;
  }
  return NULL;
}

/* A number that ends a word; the part before a colon, a type, is passed. */
static lrmoeResult_t readWord(const struct lrmoeHwloc *reader,
                              const xmlNode *element, const char *word,
                              int64_t *value) {
  size_t length = word ? strcspn(word, " \t\r\n") : 0;
  const char *colon = word ? memchr(word, ':', length) : NULL;
  const char *digits = colon ? colon + 1 : word;
  char *end = NULL;
  errno = 0;
  bool isNumber = digits && isdigit((unsigned char)*digits);
  *value = isNumber ? strtoll(digits, &end, 10) : 0;
  LRMOE_REQUIRE(isNumber && !errno && end == word + length,
                "%s:%ld: \"%.*s\" in a matrix is no whole number, or there "
                "are too few",
                reader->source, xmlGetLineNo(element), (int)length,
                word ? word : "");
  return lrmoeSuccess;
}

static lrmoeResult_t readIndexes(const struct lrmoeHwloc *reader,
                                 struct matrix *matrix) {
  struct words words = {lrmoeXmlFirst(matrix->element), "indexes", NULL};
  for (int64_t i = 0; i < matrix->numObjects; i++) {
    int64_t gpIndex = 0;
    LRMOE_CHECK(readWord(reader, matrix->element, nextWord(&words), &gpIndex));
    const struct lrmoeHwlocObject *object = find(reader, gpIndex);
    matrix->nodes[i] = object ? object->node : -1;
  }
  LRMOE_REQUIRE(!nextWord(&words),
                "%s:%ld: a matrix of %lld objects with more indexes",
                reader->source, xmlGetLineNo(matrix->element),
                (long long)matrix->numObjects);
  return lrmoeSuccess;
}

static lrmoeResult_t readValues(const struct lrmoeHwloc *reader,
                                struct matrix *matrix) {
  struct words words = {lrmoeXmlFirst(matrix->element), "u64values", NULL};
  int64_t count = matrix->numObjects * matrix->numObjects;
  for (int64_t i = 0; i < count; i++)
    LRMOE_CHECK(readWord(reader, matrix->element, nextWord(&words),
                         &matrix->values[i]));
  LRMOE_REQUIRE(!nextWord(&words), "%s:%ld: a matrix of more than %lld values",
                reader->source, xmlGetLineNo(matrix->element),
                (long long)count);
  return lrmoeSuccess;
}

/* ---- What it means ------------------------------------------------------ */

static int64_t rowTotal(const struct matrix *matrix, int64_t row) {
  int64_t total = 0;
  for (int64_t column = 0; column < matrix->numObjects; column++) {
    int64_t value = matrix->values[row * matrix->numObjects + column];
    if (column != row && value < INT64_MAX / 2 - total) total += value;
  }
  return total;
}

/* What the GPU's model has in all, 0: unknown. */
static int64_t modelTotal(const struct lrmoeHwloc *reader, int32_t node) {
  if (node < 0) return 0;
  const struct lrmoeNode *gpu = &reader->machine->nodes[node];
  size_t count = sizeof nvlinkTotals / sizeof *nvlinkTotals;
  for (size_t i = 0; gpu->kind == lrmoeNodeGpu && i < count; i++)
    if (strstr(gpu->name, nvlinkTotals[i].model)) return nvlinkTotals[i].total;
  return 0;
}

static lrmoeResult_t halve(const struct lrmoeHwloc *reader,
                           struct matrix *matrix, int64_t row) {
  int64_t stated = rowTotal(matrix, row);
  for (int64_t i = 0; i < matrix->numObjects * matrix->numObjects; i++)
    matrix->values[i] /= 2;
  matrix->isGuessed = true;
  return lrmoeMachineNote(
      reader->machine, matrix->nodes[row],
      "%s: the NVLinks of a %s would move %lld MB/s, it has %lld: hwloc's "
      "error of a factor of two (open-mpi/hwloc#574) is taken out",
      reader->source, reader->machine->nodes[matrix->nodes[row]].name,
      (long long)stated, (long long)modelTotal(reader, matrix->nodes[row]));
}

static lrmoeResult_t judge(const struct lrmoeHwloc *reader,
                           struct matrix *matrix) {
  for (int64_t row = 0; row < matrix->numObjects && matrix->isNvlink; row++) {
    int64_t total = modelTotal(reader, matrix->nodes[row]);
    if (total && rowTotal(matrix, row) > total)
      return halve(reader, matrix, row);
  }
  for (int64_t i = 0; i < matrix->numObjects && !matrix->isNvlink; i++)
    matrix->isGuessed =
        matrix->isGuessed ||
        (matrix->numObjects > 1 &&
         matrix->values[i * matrix->numObjects + (i == 0)] == rsmiDefault);
  if (!matrix->isGuessed) return lrmoeSuccess;
  return lrmoeMachineNote(reader->machine, -1,
                          "%s: 100 GB/s for an xGMI link is what hwloc takes "
                          "for any of them",
                          reader->source);
}

static enum lrmoeWireKind wireKind(const struct lrmoeHwloc *reader,
                                   const struct matrix *matrix, int32_t from,
                                   int32_t to) {
  const struct lrmoeNode *nodes = reader->machine->nodes;
  if (nodes[from].kind == lrmoeNodeNuma || nodes[to].kind == lrmoeNodeNuma)
    return lrmoeWireC2c;
  return matrix->isNvlink ? lrmoeWireNvlink : lrmoeWireXgmi;
}

static lrmoeResult_t connect(struct lrmoeHwloc *reader,
                             const struct matrix *matrix, int64_t row,
                             int64_t column) {
  int64_t rate = matrix->values[row * matrix->numObjects + column];
  int32_t from = matrix->nodes[row];
  int32_t to = matrix->nodes[column];
  if (!rate || from < 0 || to < 0 || from == to) return lrmoeSuccess;
  LRMOE_REQUIRE(rate <= LRMOE_MAX_RATE / 1000000,
                "%s:%ld: %lld MB/s in a matrix", reader->source,
                xmlGetLineNo(matrix->element), (long long)rate);
  struct lrmoeWire wire = {
      .kind = wireKind(reader, matrix, from, to),
      .from = from,
      .to = to,
      .rate = {.bytesPerSecond = rate * 1000000, .guessed = matrix->isGuessed}};
  return lrmoeMachineConnect(reader->machine, &wire);
}

static lrmoeResult_t connectAll(struct lrmoeHwloc *reader,
                                struct matrix *matrix) {
  LRMOE_CHECK(readIndexes(reader, matrix));
  LRMOE_CHECK(readValues(reader, matrix));
  LRMOE_CHECK(judge(reader, matrix));
  for (int64_t row = 0; row < matrix->numObjects; row++)
    for (int64_t column = 0; column < matrix->numObjects; column++)
      LRMOE_CHECK(connect(reader, matrix, row, column));
  return lrmoeSuccess;
}

static lrmoeResult_t readMatrix(struct lrmoeHwloc *reader,
                                const xmlNode *element, bool isNvlink) {
  struct matrix matrix = {.element = element, .isNvlink = isNvlink};
  struct lrmoeXmlNumber number = {reader->source,   element, "nbobjs", 1,
                                  maxMatrixObjects, 0};
  LRMOE_CHECK(lrmoeXmlInteger(&number, &matrix.numObjects));
  LRMOE_REQUIRE(matrix.numObjects, "%s:%ld: a matrix without nbobjs",
                reader->source, xmlGetLineNo(element));
  LRMOE_CHECK(LRMOE_ALLOCATE(matrix.numObjects, &matrix.nodes));
  lrmoeResult_t result =
      LRMOE_ALLOCATE(matrix.numObjects * matrix.numObjects, &matrix.values);
  if (result == lrmoeSuccess) result = connectAll(reader, &matrix);
  lrmoeFree(matrix.nodes);
  lrmoeFree(matrix.values);
  return result;
}

bool lrmoeHwlocHasLinks(const struct lrmoeMachine *machine) {
  for (int32_t i = 0; i < machine->numWires; i++)
    if (machine->wires[i].kind != lrmoeWireC2c) return true;
  return false;
}

static int32_t countGpus(const struct lrmoeMachine *machine) {
  int32_t count = 0;
  for (int32_t i = 0; i < machine->numNodes; i++)
    count += machine->nodes[i].kind == lrmoeNodeGpu;
  return count;
}

lrmoeResult_t lrmoeHwlocNoteLinks(const char *source,
                                  struct lrmoeMachine *machine) {
  if (countGpus(machine) < 2 || lrmoeHwlocHasLinks(machine))
    return lrmoeSuccess;
  return lrmoeMachineNote(machine, -1,
                          "%s: no links between GPUs are known; an hwloc "
                          "without NVML or RSMI does not see any",
                          source);
}

lrmoeResult_t lrmoeHwlocMatrices(struct lrmoeHwloc *reader,
                                 const xmlNode *root) {
  for (xmlNode *child = lrmoeXmlFirst(root); child;
       child = lrmoeXmlNext(child)) {
    const char *name = lrmoeXmlText(child, "name");
    if (strncmp((const char *)child->name, "distances2", 10) != 0 || !name)
      continue;
    bool isNvlink = strcmp(name, "NVLinkBandwidth") == 0;
    if (isNvlink || strcmp(name, "XGMIBandwidth") == 0)
      LRMOE_CHECK(readMatrix(reader, child, isNvlink));
  }
  return lrmoeSuccess;
}
