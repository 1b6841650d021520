/* The live machine: hwloc discovers it, and its XML is read as a file's is;
 * the kernel adds what hwloc does not know, the speed of network ports, and
 * NVIDIA's driver, where there is one, the NVLinks.
 *
 * hwloc reads a description of another machine where a variable of the
 * environment gives one, says that it is this machine where HWLOC_THISSYSTEM
 * asks for that, and release 2.9 dies of a segmentation fault on some that are
 * damaged (open-mpi/hwloc#783).  There is no thread-safe way to make it look
 * away, so such a variable is refused by name. */
#include "topo/live.h"

#include "topo/nvml.h"
#include "topo/readers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- One at a time ------------------------------------------------------ */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void lrmoeHwlocLock(void) {
  pthread_mutex_lock(&mutex);
}

void lrmoeHwlocUnlock(void) {
  pthread_mutex_unlock(&mutex);
}

/* ---- hwloc -------------------------------------------------------------- */

static lrmoeResult_t checkEnvironment(void) {
  static const char *const names[] = {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC",
                                      "HWLOC_FSROOT", "HWLOC_CPUID_PATH"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (value && *value && strcmp(value, "/") != 0)
      return LRMOE_FAIL(lrmoeSystemError,
                        "%s=%s describes another machine than the live one: "
                        "unset it",
                        names[i], value);
  }
  return lrmoeSuccess;
}

/* The plugin "pci" leaks (libpciaccess) and sees no more than hwloc itself
 * does in the kernel's files. */
lrmoeResult_t lrmoeLiveLoad(hwloc_topology_t hwloc) {
  LRMOE_CHECK(checkEnvironment());
  hwloc_topology_set_components(hwloc, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                "pci");
  if (hwloc_topology_load(hwloc))
    return LRMOE_FAIL(lrmoeSystemError, "hwloc cannot see the machine: %s",
                      strerror(errno));
  if (!hwloc_topology_is_thissystem(hwloc))
    return LRMOE_FAIL(lrmoeSystemError,
                      "hwloc describes another machine: unset "
                      "HWLOC_THISSYSTEM");
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeLiveUsable(hwloc_topology_t hwloc, hwloc_bitmap_t *usable) {
  hwloc_bitmap_t made = hwloc_bitmap_alloc();
  if (!made) return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for a CPU set");
  hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(hwloc);
  if (hwloc_get_cpubind(hwloc, made, HWLOC_CPUBIND_THREAD))
    hwloc_bitmap_copy(made, allowed);
  else
    hwloc_bitmap_and(made, made, allowed);
  *usable = made;
  return lrmoeSuccess;
}

/* ---- Network ports ------------------------------------------------------ */

/* The number that a file of the kernel begins with; 0 without it. */
static double numberIn(const char *path) {
  double number = 0;
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  if (fscanf(file, "%lf", &number) != 1) number = 0;
  fclose(file);
  return number;
}

/* "200 Gb/sec (4X HDR)" of an HCA; 100000, in Mb/s, of Ethernet. */
static double portBits(const struct lrmoeNode *port, const char *folder) {
  char path[512];
  if (port->index < 0) {
    snprintf(path, sizeof path, "%.300s/net/%s/speed", folder, port->name);
    return numberIn(path) * 1e6;
  }
  snprintf(path, sizeof path, "%.300s/infiniband/%s/ports/%d/rate", folder,
           port->name, port->index);
  return numberIn(path) * 1e9;
}

void lrmoeLivePorts(struct lrmoeMachine *machine, const char *folder) {
  for (int32_t i = 0; i < machine->numNodes; i++) {
    struct lrmoeNode *port = &machine->nodes[i];
    bool isNamed =
        *port->name && !strchr(port->name, '/') && *port->name != '.';
    if (port->kind != lrmoeNodePort || !isNamed) continue;
    double bits = portBits(port, folder);
    if (bits > 0 && bits / 8 < (double)LRMOE_MAX_RATE)
      port->up = (struct lrmoeRate){.bytesPerSecond = (int64_t)(bits / 8)};
  }
}

/* ---- The machine -------------------------------------------------------- */

lrmoeResult_t lrmoeLiveExport(hwloc_topology_t hwloc, const char *source,
                              hwloc_const_bitmap_t usable,
                              struct lrmoeMachine *machine) {
  char *text = NULL;
  int length = 0;
  if (hwloc_topology_export_xmlbuffer(hwloc, &text, &length, 0))
    return LRMOE_FAIL(lrmoeSystemError, "hwloc does not write its XML: %s",
                      strerror(errno));
  const char *root = strstr(text, "<topology");
  struct lrmoeHwlocInput input = {.source = source,
                                  .text = root ? root : text,
                                  .usable = usable,
                                  .isLive = true};
  input.bytes = strlen(input.text);
  lrmoeResult_t result = lrmoeHwlocRead(&input, machine);
  hwloc_free_xmlbuffer(hwloc, text);
  return result;
}

static const char sourceName[] = "this machine";

static lrmoeResult_t readUsable(hwloc_topology_t hwloc,
                                struct lrmoeMachine *machine) {
  hwloc_bitmap_t usable = NULL;
  LRMOE_CHECK(lrmoeLiveUsable(hwloc, &usable));
  lrmoeResult_t result = lrmoeLiveExport(hwloc, sourceName, usable, machine);
  hwloc_bitmap_free(usable);
  return result;
}

static lrmoeResult_t readLocked(struct lrmoeMachine *machine) {
  hwloc_topology_t hwloc;
  if (hwloc_topology_init(&hwloc))
    return LRMOE_FAIL(lrmoeSystemError, "hwloc does not start: %s",
                      strerror(errno));
  hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  lrmoeResult_t result = lrmoeLiveLoad(hwloc);
  if (result == lrmoeSuccess) result = readUsable(hwloc, machine);
  hwloc_topology_destroy(hwloc);
  return result;
}

static lrmoeResult_t readHwloc(struct lrmoeMachine *machine) {
  lrmoeHwlocLock();
  lrmoeResult_t result = readLocked(machine);
  lrmoeHwlocUnlock();
  return result;
}

/* An hwloc that was built with NVML or RSMI has links already. */
static lrmoeResult_t addNvml(const char *library,
                             struct lrmoeMachine *machine) {
  if (lrmoeHwlocHasLinks(machine)) return lrmoeSuccess;
  struct lrmoeNvml nvml = {0};
  lrmoeResult_t result = lrmoeNvmlRead(library, &nvml, machine);
  if (result == lrmoeSuccess) result = lrmoeNvmlAdd(&nvml, machine);
  lrmoeNvmlFree(&nvml);
  return result;
}

lrmoeResult_t lrmoeLiveReadWith(const struct lrmoeLiveInput *input,
                                struct lrmoeMachine *machine) {
  LRMOE_CHECK(readHwloc(machine));
  LRMOE_CHECK(addNvml(input->nvml, machine));
  LRMOE_CHECK(lrmoeHwlocNoteLinks(sourceName, machine));
  lrmoeLivePorts(machine, input->folder);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeLiveRead(struct lrmoeMachine *machine) {
  const struct lrmoeLiveInput input = {LRMOE_NVML_LIBRARY, "/sys/class"};
  return lrmoeLiveReadWith(&input, machine);
}
