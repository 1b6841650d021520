/* JSON output: see json.h.  jansson holds the document; a value that it
 * refuses (no memory, text that is not UTF-8) is noticed at the end. */
#include "tools/common/json.h"

#include "lrmoe.h"
#include "tools/common/file.h"
#include "tools/common/launch.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum toolExit toolJsonBegin(const struct toolProgram *program,
                            struct toolJson **json, struct toolError *error) {
  *json = NULL;
  const char *path = program->json;
  if (!path || toolLaunchIsSilent()) return toolGood;
  enum toolExit code = toolFileProbe("json", path, error);
  if (code != toolGood) return code;
  struct toolJson *made = calloc(1, sizeof *made);
  if (!made) return toolFail(error, toolRunFailed, "no memory for --json");
  made->path = path;
  beginDocument(made, program);
  *json = made;
  return toolGood;
}

enum toolExit toolJsonEnd(struct toolJson *json, struct toolError *error) {
  if (!json) return toolGood;
  char *text =
      json->isBroken ? NULL : json_dumps(json->document, JSON_INDENT(1));
  size_t length = text ? strlen(text) : 0;
  enum toolExit code = toolGood;
  if (text) {
    text[length] = '\n'; /* in the place of the end mark */
    code = toolFileWrite("json", json->path, text, length + 1, error);
  } else {
    code = toolFail(error, toolRunFailed,
                    "--json: out of memory, or a text that is not UTF-8");
  }
  free(text);
  toolJsonDrop(json);
  return code;
}

void toolJsonDrop(struct toolJson *json) {
  if (!json) return;
  json_decref(json->document);
  free(json);
}
