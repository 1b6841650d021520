/* The report: one JSON document a line, appended to LRMOE_PRELOAD_REPORT when a
 * communicator ends, or at exit.  Each rank writes its own; the last of them
 * that ends also writes the traffic matrix of all, if they have a board. */
#include "base/log.h"
#include "plugin/preload/comm.h"
#include "plugin/preload/mode.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *numbers(const int64_t *values, int count) {
  json_t *array = json_array();
  for (int i = 0; i < count; i++)
    json_array_append_new(array, json_integer(values[i]));
  return array;
}

static void put(json_t *line, const char *name, int64_t value) {
  json_object_set_new(line, name, json_integer(value));
}

static json_t *begin(const struct lrmoePreloadComm *comm, const char *kind) {
  char key[20];
  json_t *line = json_object();
  snprintf(key, sizeof key, "%016llx", (unsigned long long)comm->key);
  put(line, "schema", 1);
  json_object_set_new(line, "kind", json_string(kind));
  json_object_set_new(line, "comm", json_string(key));
  put(line, "ranks", comm->numRanks);
  return line;
}

/* One write a line, so that those of several ranks do not mix. */
static void append(json_t *line) {
  const char *path = lrmoePreloadSettings()->report;
  char *text = json_dumps(line, JSON_COMPACT);
  size_t bytes = text ? strlen(text) : 0;
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (text) text[bytes] = '\n';
  if (!text || file < 0 || write(file, text, bytes + 1) != (ssize_t)bytes + 1)
    lrmoeLog(lrmoeLogWarn, "LRMOE_PRELOAD_REPORT=%s cannot be written: %s",
             path, strerror(errno));
  if (file >= 0) close(file);
  free(text);
  json_decref(line);
}

static void writeRank(const struct lrmoePreloadComm *comm) {
  const struct lrmoePreloadSettings *settings = lrmoePreloadSettings();
  const struct lrmoeTraffic *traffic = &comm->traffic;
  json_t *line = begin(comm, "rank");
  put(line, "rank", comm->rank);
  json_object_set_new(line, "mode",
                      json_string(lrmoePreloadModeName(settings->mode)));
  json_object_set_new(line, "agreed", json_boolean(comm->board != NULL));
  put(line, "groups", traffic->numGroups);
  put(line, "messages", traffic->numMessages);
  put(line, "allToAlls", traffic->numAllToAlls);
  json_object_set_new(line, "sentBytes",
                      numbers(traffic->sentBytes, comm->numRanks));
  json_object_set_new(line, "recvBytes",
                      numbers(traffic->recvBytes, comm->numRanks));
  json_object_set_new(line, "wireBytes",
                      numbers(traffic->wireBytes, comm->numRanks));
  put(line, "boardBytes", traffic->boardBytes);
  if (settings->rowBytes && !comm->hasCuda) {
    put(line, "rows", traffic->numRows);
    put(line, "zeroRows", traffic->numZeroRows);
  }
  put(line, "elided", traffic->numElided);
  put(line, "exact", traffic->numExact);
  put(line, "hostNs", traffic->hostNs);
  append(line);
}

/* imbalance: bytes that the busiest rank receives over the ranks' mean. */
static void writeMatrix(struct lrmoePreloadComm *comm) {
  int64_t most = 0, total = 0;
  json_t *line = begin(comm, "matrix"), *matrix = json_array();
  for (int s = 0; s < comm->numRanks; s++)
    json_array_append_new(
        matrix, numbers(lrmoeBoardRow(comm->board, s), comm->numRanks));
  for (int d = 0; d < comm->numRanks; d++) {
    int64_t received = 0;
    for (int s = 0; s < comm->numRanks; s++)
      received += lrmoeBoardRow(comm->board, s)[d];
    if (received > most) most = received;
    total += received;
  }
  json_object_set_new(line, "bytes", matrix);
  json_object_set_new(
      line, "imbalance",
      json_real(total ? (double)most * comm->numRanks / (double)total : 1.0));
  append(line);
}

void lrmoePreloadReport(struct lrmoePreloadComm *comm) {
  if (!lrmoePreloadSettings()->report) return;
  writeRank(comm);
  if (comm->board && lrmoeBoardLeave(comm->board, comm->traffic.sentBytes))
    writeMatrix(comm);
}
