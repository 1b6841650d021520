/* JSON output: see json.h.  jansson holds the document; a value that it
 * refuses (no memory, text that is not UTF-8) is noticed at the end. */
#include "tools/common/json.h"

#include "lrmoe.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct toolJson {
  const char *path; /* as given */
  json_t *document;
  json_t *results; /* owned by document */
  json_t *row;     /* owned by results; the options at first */
  int isBroken;
};

/* ---- The document ------------------------------------------------------- */

static void put(struct toolJson *json, const char *key, json_t *value) {
  if (json_object_set_new(json->row, key, value)) json->isBroken = 1;
}

void toolJsonText(struct toolJson *json, const char *key, const char *value) {
  if (json) put(json, key, value ? json_string(value) : json_null());
}

void toolJsonInt(struct toolJson *json, const char *key, int64_t value) {
  if (json) put(json, key, json_integer(value));
}

void toolJsonReal(struct toolJson *json, const char *key, double value) {
  if (json) put(json, key, isfinite(value) ? json_real(value) : json_null());
}

static void append(struct toolJson *json, json_t *array, json_t *value) {
  if (json_array_append_new(array, value)) json->isBroken = 1;
}

void toolJsonInts(struct toolJson *json, const char *key, const int64_t *values,
                  int64_t count) {
  if (!json) return;
  json_t *array = json_array();
  for (int64_t i = 0; i < count; i++)
    append(json, array, json_integer(values[i]));
  put(json, key, array);
}

static void putReals(struct toolJson *json, const char *key,
                     const struct toolRealList *list) {
  json_t *array = json_array();
  for (int i = 0; i < list->count; i++)
    append(json, array, json_real(list->values[i]));
  put(json, key, array);
}

static void putOption(struct toolJson *json, const struct toolArg *arg) {
  const struct toolIntList *ints = arg->value;
  switch (arg->kind) {
  case toolArgFlag:
    put(json, arg->name, json_boolean(*(int *)arg->value));
    break;
  case toolArgInt:
    toolJsonInt(json, arg->name, *(int64_t *)arg->value);
    break;
  case toolArgReal:
    toolJsonReal(json, arg->name, *(double *)arg->value);
    break;
  case toolArgText:
    toolJsonText(json, arg->name, *(const char **)arg->value);
    break;
  case toolArgEnum:
    toolJsonText(json, arg->name, arg->names[*(int *)arg->value]);
    break;
  case toolArgIntList:
    toolJsonInts(json, arg->name, ints->values, ints->count);
    break;
  case toolArgRealList:
    putReals(json, arg->name, arg->value);
    break;
  }
}

void toolJsonRow(struct toolJson *json) {
  if (!json) return;
  json->row = json_object();
  append(json, json->results, json->row);
}

static void beginDocument(struct toolJson *json,
                          const struct toolProgram *program) {
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", LRMOE_MAJOR, LRMOE_MINOR,
           LRMOE_PATCH);
  json->document = json_object();
  json->row = json->document;
  toolJsonInt(json, "schema", 1);
  toolJsonText(json, "program", program->name);
  toolJsonText(json, "version", version);
  json_t *options = json_object();
  put(json, "options", options);
  json->results = json_array();
  put(json, "results", json->results);
  json->row = options;
  for (const struct toolArg *arg = program->args; arg->name; arg++)
    putOption(json, arg);
}

/* ---- The file ----------------------------------------------------------- */

/* Whether path is there and not a regular file. */
static int isSpecial(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* The folder of path, where the temporary file will be. */
static void folderOf(const char *path, char folder[PATH_MAX]) {
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) : 1;
  snprintf(folder, PATH_MAX, "%.*s", slash ? (int)length : 1,
           slash ? path : ".");
  if (slash == path) snprintf(folder, PATH_MAX, "/");
}

enum toolExit toolJsonBegin(const struct toolProgram *program,
                            struct toolJson **json, struct toolError *error) {
  *json = NULL;
  const char *path = program->json;
  if (!path) return toolGood;
  char folder[PATH_MAX];
  folderOf(path, folder);
  struct stat status;
  int isFolder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
  if (!*path || strlen(path) >= PATH_MAX - 16 || isFolder ||
      access(isSpecial(path) ? path : folder, W_OK))
    return toolFail(error, toolBadInput, "option --json: \"%.200s\" %s", path,
                    isFolder ? "is a folder" : "cannot be written");
  struct toolJson *made = calloc(1, sizeof *made);
  if (!made) return toolFail(error, toolRunFailed, "no memory for --json");
  made->path = path;
  beginDocument(made, program);
  *json = made;
  return toolGood;
}

static int writeTo(const struct toolJson *json, FILE *file) {
  int isBad = json_dumpf(json->document, file, JSON_INDENT(1)) != 0;
  isBad |= fputc('\n', file) == EOF;
  isBad |= fflush(file) != 0;
  return isBad;
}

static int writeDirectly(const struct toolJson *json) {
  FILE *file = fopen(json->path, "w");
  if (!file) return 1;
  int isBad = writeTo(json, file);
  return (fclose(file) != 0) | isBad;
}

/* A new file has the rights that open() would have given it. */
static mode_t newFileMode(void) {
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

static int writeAndRename(const struct toolJson *json) {
  char target[PATH_MAX], temporary[PATH_MAX + 8];
  if (!realpath(json->path, target)) /* a new file, or a link to one */
    snprintf(target, sizeof target, "%s", json->path);
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", target);
  int descriptor = mkstemp(temporary);
  if (descriptor < 0) return 1;
  fchmod(descriptor, newFileMode());
  FILE *file = fdopen(descriptor, "w");
  if (!file) {
    close(descriptor);
    unlink(temporary);
    return 1;
  }
  int isBad = writeTo(json, file);
  isBad |= fclose(file) != 0;
  if (!isBad && rename(temporary, target) == 0) return 0;
  int why = errno;
  unlink(temporary);
  errno = why;
  return 1;
}

enum toolExit toolJsonEnd(struct toolJson *json, struct toolError *error) {
  if (!json) return toolGood;
  enum toolExit code = toolGood;
  if (json->isBroken)
    code = toolFail(error, toolRunFailed,
                    "--json: out of memory, or a text that is not UTF-8");
  else if (isSpecial(json->path) ? writeDirectly(json) : writeAndRename(json))
    code = toolFail(error, toolBadInput, "option --json: \"%.200s\": %s",
                    json->path, strerror(errno));
  toolJsonDrop(json);
  return code;
}

void toolJsonDrop(struct toolJson *json) {
  if (!json) return;
  json_decref(json->document);
  free(json);
}
