/* Writes seeds for fuzz_plan into a folder: plans of a few shapes, as they are
 * saved now, so that seeds never lag behind the format. */
#include "base/hash.h"
#include "fuzz/fuzz.h"
#include "lrmoe.h"

#include <string.h>

static void writeSeed(const char *folder, int number, const char *data,
                      size_t bytes) {
  char path[4096];
  snprintf(path, sizeof path, "%s/plan%d", folder, number);
  FILE *file = fopen(path, "wb");
  FUZZ_CHECK(file != NULL);
  FUZZ_CHECK(fputc(1, file) != EOF);
  FUZZ_CHECK(fwrite(data, 1, bytes, file) == bytes);
  FUZZ_CHECK(fclose(file) == 0);
}

static void makeSeed(const char *folder, int number, int numRanks,
                     int numExperts, lrmoePolicy_t policy) {
  lrmoeTopology_t topology;
  lrmoePlanner_t planner;
  lrmoePlan_t plan;
  lrmoePlannerConfig_t config = LRMOE_PLANNER_CONFIG_INITIALIZER;
  config.numExperts = numExperts;
  config.retainPpm = 600000;
  config.policy = policy;
  config.slots = policy == lrmoePolicyProportional;
  int64_t demand[64];
  for (int i = 0; i < 64; i++)
    demand[i] = (int64_t)(lrmoeMix((uint64_t)i + 1) % 100);
  FUZZ_CHECK(lrmoeTopologyCreate(numRanks, &topology) == lrmoeSuccess);
  FUZZ_CHECK(lrmoePlannerCreate(topology, &config, &planner) == lrmoeSuccess);
  FUZZ_CHECK(lrmoePlanMake(planner, demand, &plan) == lrmoeSuccess);
  char saved[4096];
  size_t bytes = sizeof saved;
  FUZZ_CHECK(lrmoePlanSave(plan, saved, &bytes) == lrmoeSuccess);
  writeSeed(folder, number, saved, bytes);
  lrmoePlanDestroy(plan);
  lrmoePlannerDestroy(planner);
  lrmoeTopologyDestroy(topology);
}

int main(int argc, char **argv) {
  static const int shapes[][2] = {{1, 1}, {2, 2}, {2, 5}, {4, 3}, {8, 8}};
  static const lrmoePolicy_t policies[] = {
      lrmoePolicyFixed, lrmoePolicyFixed, lrmoePolicyProportional,
      lrmoePolicyBalanced, lrmoePolicyPermute};
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return EXIT_FAILURE;
  }
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
    makeSeed(argv[1], i, shapes[i][0], shapes[i][1], policies[i]);
  return EXIT_SUCCESS;
}
