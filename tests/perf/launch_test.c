/* Ranks that a launcher makes: mpirun, and torchrun's environment. */
#include "document.h"
#include "support/program.h"
#include "support/suite.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char perf[] = LRMOE_MOE_BACKWARD_PERF;

#define SMALL "--experts 8 --topk 2 --hidden 64 --ffn 32 -n 1 -w 0"

/* A port for MASTER_PORT with a free one after it, where ranks meet. */
static int freePort(void) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  socklen_t length = sizeof address;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
  ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
  close(fd);
  return ntohs(address.sin_port) - 1;
}

/* The environment of one of two ranks. */
static const char *rankOf(int rank, int port) {
  static char text[2][160];
  snprintf(text[rank], sizeof text[rank],
           "RANK=%d WORLD_SIZE=2 LOCAL_RANK=%d MASTER_ADDR=127.0.0.1 "
           "MASTER_PORT=%d",
           rank, rank, port);
  return text[rank];
}

static json_t *rowOf(const char *name) {
  json_t *document = json_load_file(programPath(name), 0, NULL);
  ck_assert_ptr_nonnull(document);
  json_t *rows = json_object_get(document, "results");
  ck_assert_uint_eq(json_array_size(rows), 1);
  json_t *row = json_incref(json_array_get(rows, 0));
  json_decref(document);
  return row;
}

/* Bytes and kept pairs do not depend on who made the ranks. */
static void sameAsForked(const char *name) {
  static const char *const keys[] = {"ranks", "pairs",       "kept",
                                     "moved", "bytes_dedup", "wrong"};
  int code = programRun(perf, "-g 2 " SMALL " -b 64 -e 64 -J forked.json");
  ck_assert_msg(code == 0, "%s", programErr);
  json_t *launched = rowOf(name), *forked = rowOf("forked.json");
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    ck_assert_msg(numberOf(launched, keys[i]) == numberOf(forked, keys[i]),
                  "%s: %g, %g forked", keys[i], numberOf(launched, keys[i]),
                  numberOf(forked, keys[i]));
  ck_assert(numberOf(launched, "ranks") == 2);
  ck_assert(numberOf(launched, "kept") > 0);
  json_decref(launched);
  json_decref(forked);
}

static int countOf(const char *text, const char *word) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, word)); at++)
    count++;
  return count;
}

START_TEST(byMpirun) {
  if (programRun("mpirun", "--version")) return; /* nothing to test */
  /* MPI is not instrumented, and keeps what it allocates. */
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  setenv("TSAN_OPTIONS", "report_bugs=0", 1);
  int code = programRun("mpirun",
                        "--allow-run-as-root --oversubscribe -np 2 %s " SMALL
                        " -b 64 -e 64 -J mpi.json",
                        perf);
  ck_assert_msg(code == 0, "%s", programErr);
  ck_assert_int_eq(countOf(programOut, "2 ranks"), 1);
  sameAsForked("mpi.json");
}
END_TEST

START_TEST(byTorchrun) {
  int port = freePort();
  int code = programRun("sh",
                        "-c '%s %s " SMALL " -b 64 -e 64 -J torch.json & "
                        "%s %s " SMALL " -b 64 -e 64 -J torch.json && wait $!'",
                        rankOf(1, port), perf, rankOf(0, port), perf);
  ck_assert_msg(code == 0, "%s", programErr);
  ck_assert_int_eq(countOf(programOut, "2 ranks"), 1);
  sameAsForked("torch.json");
}
END_TEST

/* Rank 1 has a run less than rank 0. */
START_TEST(oneIsGone) {
  int port = freePort();
  int code = programRun("sh",
                        "-c '%s %s " SMALL " -b 64 -e 64 & "
                        "%s %s " SMALL " -b 64 -e 128'",
                        rankOf(1, port), perf, rankOf(0, port), perf);
  ck_assert_int_eq(code, 2);
  ck_assert_ptr_nonnull(strstr(programErr, "rank 1 of 2 is gone"));
}
END_TEST

/* The verdict is everybody's, and rank 0's alone to say. */
START_TEST(allFail) {
  int port = freePort();
  int code = programRun("sh",
                        "-c 'export LRMOE_GEMM=none; "
                        "%s %s " SMALL " -b 64 -e 64 & "
                        "%s %s " SMALL " -b 64 -e 64; "
                        "code=$?; wait $! && exit 99; exit $code'",
                        rankOf(1, port), perf, rankOf(0, port), perf);
  ck_assert_msg(code && code != 99, "%d: %s", code, programErr);
  ck_assert_int_eq(countOf(programErr, "moe_backward_perf: rank "), 1);
}
END_TEST

START_TEST(refused) {
  static const struct {
    const char *numRanks, *rank, *address, *port, *place, *arguments, *why;
  } cases[] = {
      {"1", "0", "::1", "9", "", "-g 3",
       "-g 3, and 1 ranks were started: leave it out"},
      {"2", "0", "::1", NULL, "", "", "MASTER_PORT is not"},
      {"2", "0", NULL, "9", "", "", "MASTER_ADDR is not"},
      {"2", "2", "::1", "9", "", "", "RANK=2 is not in 0..1"},
      {"two", "0", "::1", "9", "", "", "WORLD_SIZE=two is not in 1.."},
      {"2", "0", NULL, NULL, "here", "", "RENDEZVOUS=here is not HOST:PORT"},
      {"2", "1", NULL, NULL, "no-such-host.invalid:7", "",
       "no-such-host.invalid:7, where ranks meet"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    unsetenv("MASTER_ADDR");
    unsetenv("MASTER_PORT");
    setenv("WORLD_SIZE", cases[i].numRanks, 1);
    setenv("RANK", cases[i].rank, 1);
    setenv("LRMOE_RENDEZVOUS", cases[i].place, 1);
    if (cases[i].address) setenv("MASTER_ADDR", cases[i].address, 1);
    if (cases[i].port) setenv("MASTER_PORT", cases[i].port, 1);
    programRefuses(perf, cases[i].arguments, cases[i].why);
  }
}
END_TEST

/* One launched rank needs no others. */
START_TEST(alone) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  setenv("LRMOE_RENDEZVOUS", "[::1]:9", 1);
  int code = programRun(perf, SMALL " -b 64 -e 64");
  ck_assert_msg(code == 0, "%s", programErr);
  ck_assert_int_eq(countOf(programOut, "1 ranks"), 1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {byMpirun, byTorchrun, oneIsGone,
                                allFail,  refused,    alone};
  return suiteRunTests("launch", tests, sizeof tests / sizeof *tests, 120);
}
