/* Figure 4's example: dropped pairs leave, the rest is packed, and what has
 * shrunk needs fewer replicas.
 *
 * Inputs: the expert of each pair, in the order in which they arrive, and the
 * places of those that are dropped.  Packing is a stable counting sort by
 * expert; counts and their exclusive prefix sums are what a grouped GEMM takes.
 * With an expert a rank and a limit of rows a rank, the planner says how many
 * replicas a load needs that is over the limit somewhere: its tolerance is the
 * peak that the limit allows over the mean. */
#include "perf/paper/paper.h"

#include <stdio.h>
#include <string.h>

struct toolIntList paperFigure4Rows = {{0, 2, 0, 1, 2, 0, 1, 2, 0}, 9};
struct toolIntList paperFigure4Dropped = {{5, 6, 7}, 3};
int64_t paperFigure4Limit = 3;

enum {
  maxExperts = toolMaxList
};

struct example {
  int64_t numExperts;
  int64_t before[maxExperts];
  int64_t after[maxExperts];
  int64_t offsets[maxExperts + 1];
  int64_t packed[toolMaxList]; /* [numKept] places of kept pairs */
  int64_t numKept;
  int isDropped[toolMaxList];
  int64_t replicasBefore;
  int64_t replicasAfter;
};

/* ---- Packing ------------------------------------------------------------ */

static enum toolExit readInput(struct example *example,
                               struct toolError *error) {
  const struct toolIntList *rows = &paperFigure4Rows;
  const struct toolIntList *dropped = &paperFigure4Dropped;
  for (int i = 0; i < dropped->count; i++) {
    if (dropped->values[i] >= rows->count)
      return toolFail(error, toolBadInput,
                      "--dropped: there is no pair %lld among %d",
                      (long long)dropped->values[i], rows->count);
    example->isDropped[dropped->values[i]] = 1;
  }
  for (int i = 0; i < rows->count; i++) {
    int64_t expert = rows->values[i];
    if (expert >= example->numExperts) example->numExperts = expert + 1;
    example->before[expert]++;
    example->after[expert] += !example->isDropped[i];
  }
  return toolGood;
}

static void pack(struct example *example) {
  int64_t next[maxExperts];
  for (int64_t e = 0; e < example->numExperts; e++) {
    next[e] = example->offsets[e];
    example->offsets[e + 1] = example->offsets[e] + example->after[e];
  }
  example->numKept = example->offsets[example->numExperts];
  for (int i = 0; i < paperFigure4Rows.count; i++)
    if (!example->isDropped[i])
      example->packed[next[paperFigure4Rows.values[i]]++] = i;
}

/* ---- Replicas ----------------------------------------------------------- */

static int64_t sumOf(const int64_t *counts, int64_t count) {
  int64_t sum = 0;
  for (int64_t e = 0; e < count; e++)
    sum += counts[e];
  return sum;
}

/* Replicas of a load: none if every expert's rows fit its own rank, else those
 * of a plan.  Rank e holds expert e, and every rank may take a replica. */
static enum toolExit countReplicas(lrmoeTopology_t topology,
                                   const int64_t *counts, int64_t numExperts,
                                   int64_t *replicas, struct toolError *error) {
  int64_t demand[maxExperts * maxExperts] = {0}; /* all from rank 0 */
  int64_t most = 0, pairs = sumOf(counts, numExperts);
  for (int64_t e = 0; e < numExperts; e++)
    if (counts[e] > most) most = counts[e];
  memcpy(demand, counts, (size_t)numExperts * sizeof *counts);
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  int isOver = most > paperFigure4Limit && pairs > 0;
  int64_t room = paperFigure4Limit * numExperts - pairs;
  config.numExperts = (int32_t)numExperts;
  config.policy = isOver ? lrmoePolicyLrmoe : lrmoePolicyFixed;
  config.slots = isOver ? 1 : 0;
  if (isOver && room > 0) config.tolerancePpm = room * 1000000 / pairs;
  struct toolPlanner planner;
  struct toolPlan plan;
  enum toolExit code =
      toolPlannerMake(topology, (int)numExperts, &config, &planner, error);
  if (code) return code;
  code = toolPlanMake(&planner, demand, NULL, 1, &plan, error);
  toolPlannerFree(&planner);
  if (code) return code;
  *replicas = plan.view.numReplicas;
  toolPlanFree(&plan);
  return toolGood;
}

static enum toolExit findReplicas(struct example *example,
                                  struct toolError *error) {
  int64_t count = example->numExperts;
  lrmoeTopology_t topology = NULL;
  lrmoeResult_t result = lrmoeTopologyCreate((int)count, &topology);
  if (result != lrmoeSuccess) return toolCallFailed(result, "topology", error);
  enum toolExit code = countReplicas(topology, example->before, count,
                                     &example->replicasBefore, error);
  if (code == toolGood)
    code = countReplicas(topology, example->after, count,
                         &example->replicasAfter, error);
  lrmoeTopologyDestroy(topology);
  return code;
}

/* ---- Picture and numbers ------------------------------------------------ */

static const char *expertColour(int64_t expert) {
  return toolSvgColour((int)(expert % 8));
}

static void drawPair(struct toolSvg *svg, double x, double y, int place,
                     int isFaded) {
  int64_t expert = paperFigure4Rows.values[place];
  struct toolSvgBox box = {x, y, 90, 20};
  toolSvgRect(svg, &box, isFaded ? "#eeeeee" : expertColour(expert), NULL);
  toolSvgText(svg, x + 45, y + 15, toolSvgMiddle, "%se%lld",
              isFaded ? "dropped " : "", (long long)expert);
}

static void draw(struct toolSvg *svg, const struct example *example) {
  toolSvgHead(svg, 12, 22, "Figure 4: mask, pack, count");
  toolSvgText(svg, 75, 48, toolSvgMiddle, "1 mask");
  toolSvgText(svg, 195, 48, toolSvgMiddle, "2 pack");
  toolSvgText(svg, 270, 48, toolSvgStart, "3 counts, offsets");
  for (int i = 0; i < paperFigure4Rows.count; i++)
    drawPair(svg, 30, 58 + 24 * i, i, example->isDropped[i]);
  for (int64_t i = 0; i < example->numKept; i++)
    drawPair(svg, 150, 58 + 24 * (double)i, (int)example->packed[i], 0);
  for (int64_t e = 0; e < example->numExperts; e++)
    toolSvgText(svg, 270, 74 + 24 * (double)example->offsets[e], toolSvgStart,
                "e%lld: offset %lld, M = %lld (was %lld)", (long long)e,
                (long long)example->offsets[e], (long long)example->after[e],
                (long long)example->before[e]);
  toolSvgText(svg, 270, 82 + 24 * (double)example->numKept, toolSvgStart,
              "limit %lld rows a rank: %lld replicas, then %lld",
              (long long)paperFigure4Limit, (long long)example->replicasBefore,
              (long long)example->replicasAfter);
}

static void compare(struct paperRun *run, const struct example *example) {
  static const double counts[] = {3, 1, 2}, offsets[] = {0, 3, 4, 6};
  static const char *const why = "the places dropped are ours, one an expert";
  char name[32];
  int same = example->numExperts == 3;
  paperCompare(run, &(struct paperNumber){
                        4, "replicas after packing", "", 0,
                        (double)example->replicasAfter,
                        "what fits its GPU needs none; before: figure4.json"});
  for (int e = 0; same && e < 3; e++) {
    snprintf(name, sizeof name, "rows of e%d", e);
    paperCompare(run, &(struct paperNumber){4, name, "rows", counts[e],
                                            (double)example->after[e], why});
  }
  for (int e = 0; same && e < 4; e++) {
    snprintf(name, sizeof name, "offset %d", e);
    paperCompare(run, &(struct paperNumber){4, name, "rows", offsets[e],
                                            (double)example->offsets[e], why});
  }
}

static void write(struct toolJson *json, const struct example *example) {
  toolJsonRow(json);
  toolJsonInts(json, "before", example->before, example->numExperts);
  toolJsonInts(json, "after", example->after, example->numExperts);
  toolJsonInts(json, "offsets", example->offsets, example->numExperts + 1);
  toolJsonInts(json, "packed", example->packed, example->numKept);
  toolJsonInt(json, "replicas_before", example->replicasBefore);
  toolJsonInt(json, "replicas_after", example->replicasAfter);
}

enum toolExit paperFigure4(struct paperRun *run, struct paperSize *size,
                           struct toolError *error) {
  struct example example = {0};
  enum toolExit code = readInput(&example, error);
  if (code) return code;
  pack(&example);
  code = findReplicas(&example, error);
  if (code) return code;
  write(run->json, &example);
  draw(run->svg, &example);
  compare(run, &example);
  *size = (struct paperSize){520, 90 + 24.0 * paperFigure4Rows.count};
  return toolGood;
}
