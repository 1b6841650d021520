/* A tool for NVTX, which loads it from NVTX_INJECTION64_PATH: each process
 * writes its ranges to $LRMOE_TEST_RANGES/PID, "+NAME" where one begins and "-"
 * where the last one ends. */
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Thread_local int depth;

static void say(const char *mark, const char *name) {
  char path[300];
  snprintf(path, sizeof path, "%s/%d", getenv("LRMOE_TEST_RANGES"),
           (int)getpid());
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) abort();
  dprintf(file, "%s%s\n", mark, name);
  close(file);
}

static int push(const char *name) {
  say("+", name);
  return depth++;
}

static int pop(void) {
  say("-", "");
  return --depth;
}

__attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getTable);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getTable) {
  const NvtxExportTableCallbacks *callbacks = getTable(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (!callbacks ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
    return 0;
  if (size <= NVTX_CBID_CORE_RangePop) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
