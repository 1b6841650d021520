/* NCCL's environment plugin: its ABI, what it suggests, and that the user's
 * word goes; and, where NCCL is installed, that NCCL loads it. */
#include "plugin/nccl/env.h"
#include "support/program.h"
#include "support/suite.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Four pointers, in this order. */
_Static_assert(offsetof(struct lrmoeNcclEnvPlugin, name) == 0, "name");
_Static_assert(offsetof(struct lrmoeNcclEnvPlugin, init) == 8, "init");
_Static_assert(offsetof(struct lrmoeNcclEnvPlugin, finalize) == 16, "finalize");
_Static_assert(offsetof(struct lrmoeNcclEnvPlugin, getEnv) == 24, "getEnv");
_Static_assert(sizeof(struct lrmoeNcclEnvPlugin) == 32, "size");

static const char name[] = "NCCL_NCHANNELS_PER_NET_PEER";

static const struct lrmoeNcclEnvPlugin *load(void) {
  void *handle = dlopen(PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(handle != NULL, "%s", dlerror());
  const struct lrmoeNcclEnvPlugin *plugin = dlsym(handle, "ncclEnvPlugin_v1");
  ck_assert_ptr_nonnull(plugin);
  ck_assert_str_eq(plugin->name, "lrmoe");
  return plugin;
}

/* A host with a GPU behind a switch with so many NICs. */
static void describe(int numNics) {
  char text[4096];
  int used = snprintf(text, sizeof text,
                      "<system version=\"1\"><cpu numaid=\"0\">"
                      "<pci busid=\"0000:00:01.0\" class=\"0x060400\">"
                      "<pci busid=\"0000:01:00.0\" class=\"0x030200\">"
                      "<gpu dev=\"0\" sm=\"80\"/></pci>");
  for (int i = 0; i < numNics; i++)
    used += snprintf(text + used, sizeof text - (size_t)used,
                     "<pci busid=\"0000:%02x:00.0\" class=\"0x020000\"><nic>"
                     "<net name=\"n%d\" dev=\"%d\" speed=\"100000\" "
                     "port=\"1\" guid=\"0x%x\"/></nic></pci>",
                     2 + i, i, i, 16 + i);
  snprintf(text + used, sizeof text - (size_t)used, "</pci></cpu></system>");
  programWrite("host.xml", text);
  setenv("LRMOE_TOPOLOGY", programPath("host.xml"), 1);
}

static void expectSuggestion(int numNics, const char *expected) {
  const struct lrmoeNcclEnvPlugin *plugin = load();
  describe(numNics);
  ASSERT_OK(plugin->init(2, 28, 9, ""));
  const char *value = plugin->getEnv(name);
  ck_assert_msg(!expected == !value && (!value || !strcmp(value, expected)),
                "%d NICs: %s", numNics, value ? value : "none");
  ASSERT_OK(plugin->finalize());
  ck_assert_ptr_null(plugin->getEnv(name));
}

START_TEST(channels_for_ports) {
  unsetenv(name);
  expectSuggestion(0, NULL);
  expectSuggestion(1, NULL);
  expectSuggestion(2, "2");
  expectSuggestion(3, "4");
  expectSuggestion(4, "4");
}
END_TEST

START_TEST(the_user_is_heard) {
  const struct lrmoeNcclEnvPlugin *plugin = load();
  describe(4);
  ASSERT_OK(plugin->init(2, 28, 9, ""));
  setenv(name, "1", 1);
  ck_assert_str_eq(plugin->getEnv(name), "1");
  setenv(name, "", 1);
  ck_assert_str_eq(plugin->getEnv(name), "");
  setenv("NCCL_DEBUG", "WARN", 1);
  ck_assert_str_eq(plugin->getEnv("NCCL_DEBUG"), "WARN");
  unsetenv("NCCL_DEBUG");
  ck_assert_ptr_null(plugin->getEnv("NCCL_DEBUG"));
  ASSERT_OK(plugin->finalize());
}
END_TEST

/* NCCL goes on without suggestions. */
START_TEST(no_topology) {
  const struct lrmoeNcclEnvPlugin *plugin = load();
  unsetenv(name);
  setenv("LRMOE_TOPOLOGY", "/nowhere", 1);
  ASSERT_OK(plugin->init(2, 28, 9, ""));
  ck_assert_ptr_null(plugin->getEnv(name));
}
END_TEST

#ifdef NCCL_FILE
/* By the name that NCCL makes, in a process of its own, since NCCL reads its
 * environment once. */
START_TEST(nccl_loads_it) {
  describe(4);
  int code = programRun(
      "/bin/sh",
      "-c \"NCCL_ENV_PLUGIN=lrmoe LD_LIBRARY_PATH='%s' LRMOE_DEBUG=2 '%s'\"",
      PLUGIN_FOLDER, LOAD_FILE);
  ck_assert_msg(code == 0, "%d: %s", code, programErr);
  ck_assert_msg(strstr(programErr, "env plugin: NCCL 2.") != NULL, "%s",
                programErr);
  ck_assert_msg(strstr(programErr, "NCCL_NCHANNELS_PER_NET_PEER=4") != NULL,
                "%s", programErr);
}
END_TEST
#endif

int main(void) {
  const TTest *tests[] = {
      channels_for_ports,
      the_user_is_heard,
      no_topology,
#ifdef NCCL_FILE
      nccl_loads_it,
#endif
  };
  return suiteRunTests("plugin_env", tests, sizeof tests / sizeof *tests,
                       120.0);
}
