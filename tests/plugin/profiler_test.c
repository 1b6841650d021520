/* NCCL's profiler plugin: its ABI, and what it makes of events as NCCL gives
 * them. */
#include "plugin/nccl/profiler.h"
#include "support/program.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PIN(field, offset) \
  _Static_assert(offsetof(struct lrmoeNcclEvent, field) == (offset), #field)
PIN(type, 0);
PIN(parent, 8);
PIN(rank, 16);
PIN(of.coll.sequence, 24);
PIN(of.coll.func, 32);
PIN(of.coll.count, 56);
PIN(of.coll.root, 64);
PIN(of.coll.datatype, 72);
PIN(of.coll.numChannels, 80);
PIN(of.coll.algorithm, 88);
PIN(of.coll.parentGroup, 104);
PIN(of.p2p.func, 24);
PIN(of.p2p.buffer, 32);
PIN(of.p2p.datatype, 40);
PIN(of.p2p.count, 48);
PIN(of.p2p.peer, 56);
PIN(of.p2p.numChannels, 60);
PIN(of.p2p.parentGroup, 64);
PIN(of.kernel.channel, 24);
PIN(of.kernel.timer, 32);
_Static_assert(sizeof(struct lrmoeNcclEvent) == 112, "event");
_Static_assert(offsetof(struct lrmoeNcclProfilerPlugin, finalize) == 40,
               "plugin");

static const struct lrmoeNcclProfilerPlugin *plugin;
static void *context;

static void start(int numRanks) {
  int mask = -1;
  void *handle = dlopen(PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(handle != NULL, "%s", dlerror());
  plugin = dlsym(handle, "ncclProfiler_v5");
  ck_assert_ptr_nonnull(plugin);
  ck_assert_str_eq(plugin->name, "lrmoe");
  setenv("LRMOE_NCCL_REPORT", programPath("report"), 1);
  ASSERT_OK(plugin->init(&context, 0xabc, &mask, "EP", 1, numRanks, 1, NULL));
  ck_assert_int_eq(mask, 2 + 4 + 64);
  ck_assert_ptr_nonnull(context);
}

static json_t *finish(void) {
  ASSERT_OK(plugin->finalize(context));
  json_t *line = json_loads(programRead("report"), 0, NULL);
  ck_assert_ptr_nonnull(line);
  ck_assert_str_eq(json_string_value(json_object_get(line, "comm")),
                   "0000000000000abc");
  ck_assert_str_eq(json_string_value(json_object_get(line, "name")), "EP");
  return line;
}

static void message(const char *func, const char *type, size_t count,
                    int peer) {
  struct lrmoeNcclEvent event = {.type = lrmoeEventP2p};
  void *handle = &event;
  event.of.p2p.func = func;
  event.of.p2p.datatype = type;
  event.of.p2p.count = count;
  event.of.p2p.peer = peer;
  ASSERT_OK(plugin->startEvent(context, &handle, &event));
  ASSERT_OK(plugin->stopEvent(handle));
  struct lrmoeNcclEvent kernel = {.type = lrmoeEventKernel, .parent = handle};
  ASSERT_OK(plugin->startEvent(context, &handle, &kernel));
  ck_assert_ptr_null(handle);
  union lrmoeNcclEventState state = {{5}};
  ASSERT_OK(plugin->recordEventState(handle, lrmoeStateKernelStop, &state));
  ASSERT_OK(plugin->stopEvent(handle));
}

static void *collective(const char *func, size_t count) {
  struct lrmoeNcclEvent event = {.type = lrmoeEventColl};
  void *handle = NULL;
  event.of.coll.func = func;
  event.of.coll.datatype = "ncclFloat32";
  event.of.coll.count = count;
  ASSERT_OK(plugin->startEvent(context, &handle, &event));
  ck_assert_ptr_nonnull(handle);
  ASSERT_OK(plugin->stopEvent(handle));
  return handle;
}

static void *stampStart(void *parent, uint64_t timer) {
  struct lrmoeNcclEvent event = {.type = lrmoeEventKernel, .parent = parent};
  void *handle = NULL;
  event.of.kernel.timer = timer;
  ASSERT_OK(plugin->startEvent(context, &handle, &event));
  ck_assert_ptr_nonnull(handle);
  return handle;
}

static void stampStop(void *handle, uint64_t timer) {
  union lrmoeNcclEventState state = {{timer}};
  ASSERT_OK(plugin->recordEventState(handle, lrmoeStateKernelStop, &state));
  ASSERT_OK(plugin->stopEvent(handle));
}

static json_int_t at(const json_t *line, const char *array, size_t index) {
  return json_integer_value(
      json_array_get(json_object_get(line, array), index));
}

static json_int_t of(const json_t *row, const char *key) {
  return json_integer_value(json_object_get(row, key));
}

/* ---- Tests ---- */

START_TEST(bytes_of_peers) {
  start(3);
  message("Send", "ncclBfloat16", 100, 0);
  message("Send", "ncclBfloat16", 10, 0);
  message("Send", "ncclUint8", 7, 2);
  message("Recv", "ncclFloat64", 3, 2);
  message("Send", "ncclSomethingNew", 3, 1);
  message("Send", "ncclUint8", 7, 3);
  json_t *line = finish();
  ck_assert_int_eq(at(line, "sentBytes", 0), 220);
  ck_assert_int_eq(at(line, "sentBytes", 1), 0);
  ck_assert_int_eq(at(line, "sentBytes", 2), 7);
  ck_assert_int_eq(at(line, "recvBytes", 2), 24);
  ck_assert_int_eq(of(line, "sends"), 4);
  ck_assert_int_eq(of(line, "recvs"), 1);
  ck_assert_uint_eq(json_array_size(json_object_get(line, "collectives")), 0);
  json_decref(line);
}
END_TEST

/* From the first channel's start to the last one's stop, also when the stamps
 * come after the next collective has begun. */
START_TEST(times_of_collectives) {
  start(2);
  void *first = collective("AllReduce", 1000);
  void *second = collective("AllGather", 50);
  void *a = stampStart(first, 1000), *b = stampStart(first, 1010);
  void *c = stampStart(second, 2000);
  stampStop(b, 1500);
  stampStop(c, 2100);
  stampStop(a, 1400);
  collective("AllReduce", 10); /* without stamps */
  json_t *line = finish();
  const json_t *rows = json_object_get(line, "collectives");
  const json_t *reduce = json_array_get(rows, 0);
  const json_t *gather = json_array_get(rows, 1);
  ck_assert_uint_eq(json_array_size(rows), 2);
  ck_assert_str_eq(json_string_value(json_object_get(reduce, "func")),
                   "AllReduce");
  ck_assert_int_eq(of(reduce, "calls"), 2);
  ck_assert_int_eq(of(reduce, "bytes"), 4040);
  ck_assert_int_eq(of(reduce, "timed"), 1);
  ck_assert_int_eq(of(reduce, "gpuNs"), 500);
  ck_assert_int_eq(of(gather, "gpuNs"), 100);
  ck_assert_int_eq(of(line, "lostStamps"), 0);
  json_decref(line);
}
END_TEST

/* A stamp that comes when its collective is long gone is not another's. */
START_TEST(late_stamps_are_lost) {
  start(2);
  void *stamp = stampStart(collective("AllReduce", 1), 1000);
  for (int i = 0; i < 256; i++)
    collective("AllGather", 1);
  stampStop(stamp, 2000);
  json_t *line = finish();
  const json_t *rows = json_object_get(line, "collectives");
  ck_assert_int_eq(of(line, "lostStamps"), 1);
  for (size_t i = 0; i < 2; i++)
    ck_assert_int_eq(of(json_array_get(rows, i), "timed"), 0);
  json_decref(line);
}
END_TEST

START_TEST(many_functions) {
  char name[20];
  start(2);
  for (int i = 0; i < 40; i++) {
    snprintf(name, sizeof name, "Function%d", i);
    collective(name, 1);
  }
  json_t *line = finish();
  const json_t *rows = json_object_get(line, "collectives");
  ck_assert_uint_eq(json_array_size(rows), 16);
  ck_assert_int_eq(of(json_array_get(rows, 15), "calls"), 25);
  json_decref(line);
}
END_TEST

/* Nobody wants a report: NCCL is asked for nothing. */
START_TEST(no_report) {
  int mask = -1;
  void *handle = &mask;
  start(2);
  json_decref(finish());
  unsetenv("LRMOE_NCCL_REPORT");
  ASSERT_OK(plugin->init(&context, 1, &mask, NULL, 1, 2, 0, NULL));
  ck_assert_int_eq(mask, 0);
  struct lrmoeNcclEvent event = {.type = lrmoeEventP2p};
  ASSERT_OK(plugin->startEvent(context, &handle, &event));
  ck_assert_ptr_null(handle);
  ASSERT_OK(plugin->finalize(context));
}
END_TEST

int main(void) {
  const TTest *tests[] = {bytes_of_peers, times_of_collectives,
                          late_stamps_are_lost, many_functions, no_report};
  return suiteRunTests("plugin_profiler", tests, sizeof tests / sizeof *tests,
                       60.0);
}
