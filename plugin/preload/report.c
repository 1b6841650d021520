/* The report: one JSON document a line, appended to LRMOE_PRELOAD_REPORT when a
 * communicator ends, or at exit.  Each rank writes its own; the last of them
 * that ends also writes the traffic matrix of all, if they have a board. */
#include "plugin/line.h"
#include "plugin/preload/comm.h"
#include "plugin/preload/mode.h"

static void append(json_t *line) {
  lrmoeLineAppend(line, "LRMOE_PRELOAD_REPORT", lrmoePreloadSettings()->report);
}

static void writeRank(const struct lrmoePreloadComm *comm) {
  const struct lrmoePreloadSettings *settings = lrmoePreloadSettings();
  const struct lrmoeTraffic *traffic = &comm->traffic;
  json_t *line = lrmoeLineBegin("rank", comm->key, comm->numRanks);
  lrmoeLinePut(line, "rank", comm->rank);
  json_object_set_new(line, "mode",
                      json_string(lrmoePreloadModeName(settings->mode)));
  json_object_set_new(line, "agreed", json_boolean(comm->board != NULL));
  lrmoeLinePut(line, "groups", traffic->numGroups);
  lrmoeLinePut(line, "messages", traffic->numMessages);
  lrmoeLinePut(line, "allToAlls", traffic->numAllToAlls);
  json_object_set_new(line, "sentBytes",
                      lrmoeLineNumbers(traffic->sentBytes, comm->numRanks));
  json_object_set_new(line, "recvBytes",
                      lrmoeLineNumbers(traffic->recvBytes, comm->numRanks));
  json_object_set_new(line, "wireBytes",
                      lrmoeLineNumbers(traffic->wireBytes, comm->numRanks));
  lrmoeLinePut(line, "boardBytes", traffic->boardBytes);
  if (settings->rowBytes && !comm->hasCuda) {
    lrmoeLinePut(line, "rows", traffic->numRows);
    lrmoeLinePut(line, "zeroRows", traffic->numZeroRows);
  }
  lrmoeLinePut(line, "elided", traffic->numElided);
  lrmoeLinePut(line, "exact", traffic->numExact);
  if (settings->mode == lrmoePreloadCalibrate) {
    lrmoeLinePut(line, "calibrated", traffic->numCalibrated);
    lrmoeLinePut(line, "hints", traffic->numHints);
    lrmoeLinePut(line, "refused", traffic->numRefused);
  }
  lrmoeLinePut(line, "hostNs", traffic->hostNs);
  append(line);
}

/* imbalance: bytes that the busiest rank receives over the ranks' mean. */
static void writeMatrix(struct lrmoePreloadComm *comm) {
  int64_t most = 0, total = 0;
  json_t *matrix = json_array();
  json_t *line = lrmoeLineBegin("matrix", comm->key, comm->numRanks);
  for (int s = 0; s < comm->numRanks; s++)
    json_array_append_new(
        matrix,
        lrmoeLineNumbers(lrmoeBoardRow(comm->board, s), comm->numRanks));
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
