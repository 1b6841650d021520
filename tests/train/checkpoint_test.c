/* Checkpoints: files that are cut or damaged, folders at every moment of their
 * making, resume with the same and with other numbers of ranks, and what is
 * refused. */
#include "curve.h"
#include "perf/train/checkpoint.h"
#include "perf/train/folder.h"
#include "perf/train/shard.h"
#include "story.h"
#include "support/program.h"
#include "support/suite.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Files --------------------------------------------------------------- */

static size_t writeBytes(const char *path, const char *bytes, size_t count) {
  FILE *file = fopen(path, "wb");
  ck_assert_ptr_nonnull(file);
  size_t done = fwrite(bytes, 1, count, file);
  ck_assert_int_eq(fclose(file), 0);
  return done;
}

static size_t readBytes(const char *path, char *bytes, size_t room) {
  FILE *file = fopen(path, "rb");
  ck_assert_ptr_nonnull(file);
  size_t count = fread(bytes, 1, room, file);
  fclose(file);
  return count;
}

static int isWhole(const char *path) {
  struct trainShard shard = {0};
  int64_t facts[trainShardFacts];
  int why = trainShardRead(path, &shard, facts);
  trainShardFree(&shard);
  ck_assert(why == 0 || why == EBADMSG);
  return why == 0;
}

START_TEST(files) {
  int64_t facts[trainShardFacts] = {1, 2, [15] = -3}, got[trainShardFacts];
  struct trainShard shard = trainShardBegin(facts);
  memcpy(trainShardAdd(&shard, 5, 3), "abc", 3);
  trainShardAdd(&shard, -1, 0);
  memcpy(trainShardAdd(&shard, 6, 16), "0123456789abcdef", 16);
  char path[128];
  snprintf(path, sizeof path, "%s", programPath("shard"));
  ck_assert_int_eq(trainShardWrite(&shard, path), 0);
  trainShardFree(&shard);
  ck_assert_int_eq(trainShardRead(path, &shard, got), 0);
  ck_assert_mem_eq(facts, got, sizeof facts);
  size_t bytes = 0;
  ck_assert_mem_eq(trainShardFind(&shard, 6, &bytes), "0123456789abcdef", 16);
  ck_assert_uint_eq(bytes, 16);
  ck_assert_mem_eq(trainShardFind(&shard, 5, &bytes), "abc", 3);
  ck_assert_uint_eq(bytes, 3);
  ck_assert_ptr_nonnull(trainShardFind(&shard, -1, &bytes));
  ck_assert_ptr_null(trainShardFind(&shard, 7, &bytes));
  trainShardFree(&shard);
  /* Torn at any length, or with any bit the other way, it is not taken. */
  char whole[512];
  size_t count = readBytes(path, whole, sizeof whole);
  ck_assert_uint_lt(count, sizeof whole);
  for (size_t cut = 0; cut < count; cut++) {
    writeBytes(path, whole, cut);
    ck_assert_msg(!isWhole(path), "cut at %zu", cut);
  }
  for (size_t bit = 0; bit < 8 * count; bit++) {
    whole[bit / 8] = (char)(whole[bit / 8] ^ 1 << bit % 8);
    writeBytes(path, whole, count);
    ck_assert_msg(!isWhole(path), "bit %zu", bit);
    whole[bit / 8] = (char)(whole[bit / 8] ^ 1 << bit % 8);
  }
  writeBytes(path, whole, count);
  ck_assert(isWhole(path));
}
END_TEST

/* ---- Folders ------------------------------------------------------------- */

static void makeShard(const char *folder, int64_t step) {
  int64_t facts[trainShardFacts] = {0};
  char path[trainPathRoom];
  ck_assert_int_eq(trainFolderBegin(folder, step), 0);
  struct trainShard shard = trainShardBegin(facts);
  trainFolderShard(folder, step, 1, 0, path);
  ck_assert_int_eq(trainShardWrite(&shard, path), 0);
  trainShardFree(&shard);
}

START_TEST(folders) {
  char folder[128], path[trainPathRoom];
  int64_t steps[trainMaxFolders];
  snprintf(folder, sizeof folder, "%s", programPath("folders"));
  struct toolError error;
  ck_assert_int_eq(trainCheckpointHold(folder, &error), toolGood);
  ck_assert(!trainCheckpointIsThere(folder));
  for (int64_t step = 10; step <= 30; step += 10) {
    makeShard(folder, step);
    ck_assert_int_eq(trainFolderList(folder, steps),
                     step > 20 ? 2 : step / 10 - 1);
    ck_assert_int_eq(trainFolderCommit(folder, step), 0);
  }
  ck_assert_int_eq(trainFolderList(folder, steps), 2);
  ck_assert_int_eq(steps[0], 30);
  ck_assert_int_eq(steps[1], 20);
  /* What was left half-written is no checkpoint and goes with the next. */
  makeShard(folder, 40);
  ck_assert_int_eq(trainFolderList(folder, steps), 2);
  trainFolderShard(folder, 40, 1, 0, path);
  ck_assert_int_eq(access(path, F_OK), 0);
  makeShard(folder, 50);
  ck_assert_int_ne(access(path, F_OK), 0);
  ck_assert_int_eq(trainFolderCommit(folder, 50), 0);
  /* One of the same step, there already, is replaced. */
  makeShard(folder, 50);
  ck_assert_int_eq(trainFolderCommit(folder, 50), 0);
  trainFolderShard(folder, 50, 0, 0, path);
  ck_assert(isWhole(path));
  ck_assert_int_eq(trainFolderList(folder, steps), 2);
}
END_TEST

/* ---- The program --------------------------------------------------------- */

static struct curve uninterrupted;

static void runWhole(void) {
  curveText();
  curveRun(&uninterrupted, "-n 12");
  ck_assert_int_eq(uninterrupted.first, 1);
  ck_assert_int_eq(uninterrupted.last, 12);
}

/* The same ranks: to the last bit.  Others: to rounding. */
START_TEST(resume) {
  struct curve part;
  runWhole();
  curveRun(&part, "-n 12 --checkpoint a --checkpoint-every 5");
  curveSame(&uninterrupted, &part, 0);
  curveRun(&part, "-n 12 --checkpoint a --resume");
  ck_assert_int_eq(part.first, 0); /* nothing was left to do */
  ck_assert(part.heldOut == uninterrupted.heldOut);
  ck_assert_int_eq(system(curveCommand("rm -r a/step_000000000012")), 0);
  curveRun(&part, "-n 12 --checkpoint a --resume");
  ck_assert_int_eq(part.first, 11);
  curveSame(&uninterrupted, &part, 0);
  for (int ranks = 1; ranks <= 4; ranks++) {
    char options[128];
    snprintf(options, sizeof options,
             "-n 12 --checkpoint b --checkpoint-every 3 --resume -g %d "
             "--policy lrmoe",
             ranks);
    ck_assert_int_eq(
        system(curveCommand("rm -rf b; cp -r a b; rm -r b/step_0*12")), 0);
    curveRun(&part, options);
    ck_assert_int_eq(part.first, 11);
    curveSame(&uninterrupted, &part, 2e-3);
  }
}
END_TEST

/* The newest checkpoint is damaged, in each way that a disk may damage it: the
 * one before it is taken, and the curve is the same. */
START_TEST(damaged) {
  const char *const damages[] = {
      "truncate -s -8 c/step_000000000008/rank_1",
      "truncate -s 0 c/step_000000000008/rank_0",
      "rm c/step_000000000008/rank_1",
      "(echo X; cat c/step_0*08/rank_0) >c/x && mv c/x c/step_0*08/rank_0",
      "cp c/step_000000000004/rank_0 c/step_000000000008/rank_0"};
  struct curve part;
  runWhole();
  for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
    ck_assert_int_eq(system(curveCommand("rm -rf c")), 0);
    /* As if killed after step 8 of the 12. */
    curveRun(&part, "-n 12 --checkpoint c --checkpoint-every 4");
    ck_assert_int_eq(system(curveCommand("rm -r c/step_000000000012")), 0);
    curveRun(&part, "-n 12 --checkpoint c --checkpoint-every 4 --resume");
    ck_assert_int_eq(part.first, 9);
    ck_assert_int_eq(system(curveCommand("rm -rf c")), 0);
    curveRun(&part, "-n 8 --warmup 2 --checkpoint c --checkpoint-every 4");
    ck_assert_int_eq(system(curveCommand(damages[i])), 0);
    curveRun(&part, "-n 8 --warmup 2 --checkpoint c --checkpoint-every 4 "
                    "--resume");
    ck_assert_msg(part.first == 5, "%s: from %d", damages[i], part.first);
    ck_assert_ptr_nonnull(strstr(programErr, "is damaged"));
  }
}
END_TEST

START_TEST(refused) {
  struct curve part;
  runWhole();
  curveRun(&part, "-n 4 --checkpoint d --checkpoint-every 2");
  curveRefuses("-n 4 --checkpoint d", 1, "d has checkpoints");
  curveRefuses("-n 4 --resume", 1, "--resume needs --checkpoint");
  curveRefuses("-n 6 --checkpoint d --resume --ffn 16", 1, "another --ffn");
  curveRefuses("-n 6 --checkpoint d --resume --seed 4", 1, "another --seed");
  curveRefuses("-n 6 --checkpoint d --resume --batch 8", 1, "another --batch");
  curveRefuses("-n 4 --checkpoint none/d", 1, "none/d: No such file");
  ck_assert_int_eq(
      system(curveCommand("for f in d/step_*/rank_0; do echo > $f; done")), 0);
  curveRefuses("-n 6 --checkpoint d --resume", 1,
               "d: no checkpoint in it is whole");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {files, folders, resume, damaged, refused};
  return suiteRunTests("checkpoint", tests, sizeof tests / sizeof *tests, 300);
}
