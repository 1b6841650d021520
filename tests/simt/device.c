/* Device memory for the emulator's tests: see device.h. */
#include "device.h"

#include "support/simt/simt.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void *deviceCopyOf(const void *from, size_t bytes) {
  void *device = NULL;
  ASSERT_CUDA(cudaMalloc(&device, bytes));
  if (from)
    ASSERT_CUDA(cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice));
  else
    ASSERT_CUDA(cudaMemset(device, 0, bytes));
  return device;
}

void deviceTake(void *device, void *to, size_t bytes) {
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_CUDA(cudaMemcpy(to, device, bytes, cudaMemcpyDeviceToHost));
  ASSERT_CUDA(cudaFree(device));
}

static void runChild(void (*body)(void *user), void *user, FILE *errors) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  dup2(fileno(errors), STDERR_FILENO);
  body(user);
  exit(0);
}

const char *childErrors(void (*body)(void *user), void *user, int *endedWell) {
  static char text[1 << 16];
  FILE *errors = tmpfile();
  ck_assert_ptr_nonnull(errors);
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) runChild(body, user, errors);
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  rewind(errors);
  size_t length = fread(text, 1, sizeof text - 1, errors);
  text[length] = 0;
  fclose(errors);
  *endedWell = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return text;
}

uint32_t nextNumber(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

void chooseOrder(int order) {
  if (order == 0)
    simtSetOrder(simtOrderFifo, 0);
  else if (order == 1)
    simtSetOrder(simtOrderLifo, 0);
  else
    simtSetOrder(simtOrderRandom, (uint64_t)order);
}
