/* Lines of JSON: see line.h. */
#include "plugin/line.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

json_t *lrmoeLineNumbers(const int64_t *values, int count) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++)
    json_array_append_new(array, json_integer(values[i]));
  return array;
}

void lrmoeLinePut(json_t *line, const char *name, int64_t value) {
  json_object_set_new(line, name, json_integer(value));
}

json_t *lrmoeLineBegin(const char *kind, uint64_t comm, int numRanks) {
  char key[20];
  json_t *line = json_object();
  snprintf(key, sizeof key, "%016llx", (unsigned long long)comm);
  lrmoeLinePut(line, "schema", 1);
  json_object_set_new(line, "kind", json_string(kind));
  json_object_set_new(line, "comm", json_string(key));
  lrmoeLinePut(line, "ranks", numRanks);
  return line;
}

/* One write a line, so that those of several ranks do not mix. */
void lrmoeLineAppend(json_t *line, const char *parameter, const char *path) {
  char *text = json_dumps(line, JSON_COMPACT);
  size_t bytes = text ? strlen(text) : 0;
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (text) text[bytes] = '\n';
  if (!text || file < 0 || write(file, text, bytes + 1) != (ssize_t)bytes + 1)
    lrmoeLog(lrmoeLogWarn, "%s=%s cannot be written: %s", parameter, path,
             strerror(errno));
  if (file >= 0) close(file);
  free(text);
  json_decref(line);
}
