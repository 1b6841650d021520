/* lrmoe-topo, lrmoe-calibrate and topo_perf as a user calls them: arguments,
 * exit codes, what is printed, JSON, pictures, profiles. */
#include "support/suite.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static char said[1 << 20]; /* by the last program, both streams */

static const char machine[] =
    "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ffff\" "
    "arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"1\" modelid=\"1\">"
    "<pci busid=\"0000:01:00.0\" class=\"0x030200\" "
    "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
    "<gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\">"
    "<nvlink target=\"0000:02:00.0\" count=\"4\" tclass=\"0x030200\"/>"
    "</gpu></pci>"
    "<pci busid=\"0000:02:00.0\" class=\"0x030200\" "
    "link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">"
    "<gpu dev=\"1\" sm=\"80\" rank=\"1\" gdr=\"1\">"
    "<nvlink target=\"0000:01:00.0\" count=\"4\" tclass=\"0x030200\"/>"
    "</gpu></pci></cpu></system>\n";

static const char *in(const char *name) {
  static char paths[4][128];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static void setUp(void) {
  strcpy(folder, "/tmp/lrmoe_programs_XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  FILE *file = fopen(in("machine.xml"), "w");
  fputs(machine, file);
  fclose(file);
  file = fopen(in("broken.xml"), "w");
  fwrite(machine, 1, 200, file);
  fclose(file);
}

static void tearDown(void) {
  char command[100];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  ck_assert_int_eq(system(command), 0);
}

/* Runs a program in the folder; its exit status, or 128 + signal. */
static int run(const char *program, const char *arguments) {
  char command[1024];
  snprintf(command, sizeof command, "cd '%s' && exec %s %s 2>&1", folder,
           program, arguments);
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  size_t used = fread(said, 1, sizeof said - 1, pipe);
  said[used] = '\0';
  int status = pclose(pipe);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void mustSay(const char *part) {
  ck_assert_msg(strstr(said, part) != NULL, "\"%s\" is not in:\n%s", part,
                said);
}

static const char *const programs[] = {LRMOE_TOPO, LRMOE_CALIBRATE,
                                       LRMOE_TOPO_PERF};

START_TEST(common) {
  ck_assert_int_eq(run(programs[_i], "--help"), 0);
  mustSay("Usage: ");
  mustSay("--json");
  ck_assert_int_eq(run(programs[_i], "--version"), 0);
  ck_assert_int_eq(run(programs[_i], "--nonsense"), 1);
  mustSay("option --nonsense is unknown");
  ck_assert_int_eq(run(programs[_i], "-J /nonexistent/a.json"), 1);
  mustSay("cannot be written");
}
END_TEST

START_TEST(topoText) {
  ck_assert_int_eq(run(LRMOE_TOPO, "machine.xml"), 0);
  mustSay("# machine.xml");
  mustSay("# ranks 2, hosts 1, NVLink or memory domains 1");
  mustSay("GPU 0000:01:00.0");
  mustSay("rank 1");
  mustSay("NVLink");
  mustSay("100.0N"); /* four links of 25 GB/s, direct */
  ck_assert_int_eq(run(LRMOE_TOPO, "--copies 3 machine.xml"), 0);
  mustSay("# ranks 6, hosts 3");
  ck_assert_int_eq(run(LRMOE_TOPO, "machine.xml --copies 20"), 0);
  mustSay("the matrix of 40 ranks");
}
END_TEST

START_TEST(topoCheck) {
  ck_assert_int_eq(run(LRMOE_TOPO, "--check machine.xml"), 0);
  ck_assert_str_eq(said, "");
  ck_assert_int_eq(run(LRMOE_TOPO, "--check broken.xml"), 1);
  mustSay("lrmoe-topo: broken.xml");
  ck_assert_int_eq(run(LRMOE_TOPO, "--check none.xml"), 1);
  mustSay("none.xml: No such file or directory");
  ck_assert_int_eq(run(LRMOE_TOPO, "--check machine.xml --ranks 3"), 1);
  mustSay("3 ranks");
}
END_TEST

static const char *const wrongCalls[][2] = {
    {"", "one of FILE, --live, --memory and --synthetic is needed, 0"},
    {"machine.xml --live", "2 are given"},
    {"machine.xml broken.xml", "\"broken.xml\" is not an option"},
    {"--memory", "--memory needs --ranks"},
    {"machine.xml --copies 0", "--copies"},
    {"machine.xml --order size", "--order"},
    {"machine.xml --svg /nonexistent/a.svg", "cannot be written"},
    {"machine.xml --profile none.json", "none.json"},
};

START_TEST(topoRefuses) {
  ck_assert_int_eq(run(LRMOE_TOPO, wrongCalls[_i][0]), 1);
  mustSay(wrongCalls[_i][1]);
  mustSay("lrmoe-topo: ");
}
END_TEST

static json_t *readJson(const char *name) {
  json_error_t why;
  json_t *document = json_load_file(in(name), JSON_REJECT_DUPLICATES, &why);
  ck_assert_msg(document != NULL, "%s:%d: %s", name, why.line, why.text);
  ck_assert_int_eq(json_integer_value(json_object_get(document, "schema")), 1);
  ck_assert(json_is_string(json_object_get(document, "program")));
  ck_assert(json_is_string(json_object_get(document, "version")));
  ck_assert(json_is_object(json_object_get(document, "options")));
  ck_assert(json_is_array(json_object_get(document, "results")));
  return document;
}

/* The n-th result with that item. */
static json_t *itemOf(json_t *document, const char *item, int n) {
  json_t *results = json_object_get(document, "results");
  for (size_t i = 0; i < json_array_size(results); i++) {
    json_t *result = json_array_get(results, i);
    const char *found = json_string_value(json_object_get(result, "item"));
    ck_assert_ptr_nonnull(found);
    if (strcmp(found, item) == 0 && n-- == 0) return result;
  }
  ck_abort_msg("no such item %s", item);
}

START_TEST(topoJson) {
  ck_assert_int_eq(run(LRMOE_TOPO, "machine.xml -J out.json"), 0);
  json_t *document = readJson("out.json");
  json_t *topology = itemOf(document, "topology", 0);
  ck_assert_int_eq(json_integer_value(json_object_get(topology, "ranks")), 2);
  ck_assert_int_eq(
      (int)strlen(json_string_value(json_object_get(topology, "machine"))), 16);
  json_t *rank = itemOf(document, "rank", 1);
  json_t *rates = json_object_get(rank, "bytes_per_second");
  ck_assert_int_eq((int)json_array_size(rates), 2);
  ck_assert_int_eq(json_integer_value(json_array_get(rates, 0)), 100000000000);
  ck_assert_int_eq(
      json_integer_value(json_array_get(json_object_get(rank, "classes"), 0)),
      lrmoeLinkDirect);
  json_t *node = itemOf(document, "node", 2);
  ck_assert(json_is_string(json_object_get(node, "kind")));
  ck_assert(json_is_integer(json_object_get(node, "parent")));
  json_t *wire = itemOf(document, "wire", 0);
  ck_assert_int_eq(json_integer_value(json_object_get(wire, "count")), 4);
  json_decref(document);
}
END_TEST

static char *readText(const char *name) {
  static char text[1 << 20];
  FILE *file = fopen(in(name), "r");
  ck_assert_ptr_nonnull(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  return text;
}

START_TEST(topoSvg) {
  ck_assert_int_eq(run(LRMOE_TOPO, "machine.xml --svg out.svg"), 0);
  char *text = readText("out.svg");
  ck_assert_ptr_nonnull(strstr(text, "GPU 0000:01:00.0: rank 0"));
  ck_assert_ptr_nonnull(strstr(text, ">100N<"));
  ck_assert_ptr_nonnull(strstr(text, "rank 0 to 1: direct, 100.0 GB/s"));
  ck_assert_str_eq(text + strlen(text) - 7, "</svg>\n");
  ck_assert_int_eq(run(LRMOE_TOPO, "machine.xml --copies 40 --svg out.svg"), 0);
  ck_assert_ptr_null(strstr(readText("out.svg"), "rank 0 to 1"));
}
END_TEST

/* Calibrates, and takes the profile for this machine and for no other. */
START_TEST(profiles) {
  ck_assert_int_eq(
      run(LRMOE_CALIBRATE, "-g 2 -e 64K --rounds 2 -o p.json -J out.json"), 0);
  mustSay("profile written to p.json");
  mustSay("gather");
  json_t *document = readJson("out.json");
  json_t *results = json_object_get(document, "results");
  ck_assert_int_eq((int)json_array_size(results), 5);
  for (size_t i = 0; i < 5; i++) {
    json_t *fit = json_array_get(results, i);
    ck_assert(json_is_string(json_object_get(fit, "pattern")));
    ck_assert(json_real_value(json_object_get(fit, "rate")) > 0);
    ck_assert(json_is_real(json_object_get(fit, "median_error")));
  }
  json_decref(document);
  ck_assert_int_eq(run(LRMOE_TOPO, "--memory -g 2 --profile p.json"), 0);
  mustSay(", calibrated");
  ck_assert_int_eq(run(LRMOE_TOPO, "--memory -g 3 --profile p.json"), 1);
  mustSay("p.json is of 2 ranks, the topology has 3");
  ck_assert_int_eq(run(LRMOE_TOPO, "machine.xml --profile p.json"), 1);
  mustSay("p.json is of another machine");
}
END_TEST

START_TEST(calibrateRefuses) {
  ck_assert_int_eq(run(LRMOE_CALIBRATE, "-b 64K -e 4K"), 1);
  mustSay("--minbytes is above --maxbytes");
  ck_assert_int_eq(run(LRMOE_CALIBRATE, "-o /nonexistent/p.json"), 1);
  mustSay("cannot be written");
  ck_assert_int_eq(run(LRMOE_CALIBRATE, "-g 0"), 1);
}
END_TEST

START_TEST(topoPerf) {
  ck_assert_int_eq(run(LRMOE_TOPO_PERF, "-g 2 --matrices 2 -r 1 --budget 50 "
                                        "-b 4K -e 64K -J out.json"),
                   0);
  mustSay("|error|, seed 1: median");
  mustSay("|error|, seed 9001, held out: median");
  json_t *document = readJson("out.json");
  json_t *results = json_object_get(document, "results");
  ck_assert_int_eq((int)json_array_size(results), 5);
  for (size_t i = 0; i < 4; i++) {
    json_t *row = json_array_get(results, i);
    ck_assert(json_real_value(json_object_get(row, "predicted")) > 0);
    ck_assert(json_real_value(json_object_get(row, "measured")) > 0);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "seed")),
                     i < 2 ? 1 : 9001);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "matrix")),
                     (int)i % 2);
  }
  ck_assert(
      json_integer_value(
          json_object_get(json_array_get(results, 0), "bytes")) !=
      json_integer_value(json_object_get(json_array_get(results, 2), "bytes")));
  json_t *row = json_array_get(results, 4);
  ck_assert(json_is_real(json_object_get(row, "median_error")));
  ck_assert(json_is_real(json_object_get(row, "held_out_median_error")));
  ck_assert_int_eq(json_integer_value(json_object_get(row, "wrong")), 0);
  json_decref(document);
}
END_TEST

/* Every recorded file, where they are present: a model, or the reason. */
START_TEST(recordedFiles) {
  static const char *const folders[] = {"/nccl", "/hwloc"};
  for (int f = 0; f < 2; f++) {
    char path[1024], arguments[1500];
    snprintf(path, sizeof path, "%s%s", LRMOE_DEFAULT_SHARED_DATA, folders[f]);
    DIR *files = opendir(path);
    if (!files) continue;
    for (struct dirent *file; (file = readdir(files));) {
      if (!strstr(file->d_name, ".xml")) continue;
      snprintf(arguments, sizeof arguments, "--check '%s/%s'", path,
               file->d_name);
      int status = run(LRMOE_TOPO, arguments);
      ck_assert_msg(status == 0 || status == 1, "%s: %d: %s", file->d_name,
                    status, said);
      ck_assert_int_eq(status == 0, *said == '\0');
    }
    closedir(files);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topo programs");
  TCase *tcase = tcase_create("topo programs");
  tcase_set_timeout(tcase, 300);
  tcase_add_checked_fixture(tcase, setUp, tearDown);
  tcase_add_loop_test(tcase, common, 0, 3);
  tcase_add_test(tcase, topoText);
  tcase_add_test(tcase, topoCheck);
  tcase_add_loop_test(tcase, topoRefuses, 0,
                      (int)(sizeof wrongCalls / sizeof *wrongCalls));
  tcase_add_test(tcase, topoJson);
  tcase_add_test(tcase, topoSvg);
  tcase_add_test(tcase, profiles);
  tcase_add_test(tcase, calibrateRefuses);
  tcase_add_test(tcase, topoPerf);
  tcase_add_test(tcase, recordedFiles);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
