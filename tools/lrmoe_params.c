/* lrmoe-params: the LRMOE_* parameters of the library, as the Markdown table
 * that README.md shows (tests/tools/readme_table.sh compares the two). */
#include "lrmoe.h"
#include "tools/common/args.h"
#include "tools/common/json.h"

#include <stdio.h>

static void printRow(struct toolJson *json, const lrmoeParameter_t *shown) {
  printf("| `%s` | %s | %s |\n", shown->name, shown->defaultValue,
         shown->description);
  toolJsonRow(json);
  toolJsonText(json, "name", shown->name);
  toolJsonText(json, "default", shown->defaultValue);
  toolJsonText(json, "description", shown->description);
}

int main(int argc, char **argv) {
  static const struct toolArg args[] = {{0}};
  struct toolProgram program = {
      .name = "lrmoe-params",
      .summary = "Prints the environment variables that the library reads.",
      .args = args};
  toolArgsStart(&program, argc, argv);
  struct toolError error;
  struct toolJson *json;
  enum toolExit code = toolJsonBegin(&program, &json, &error);
  if (code) return toolComplain(program.name, code, &error);

  printf("| Variable | Default | Meaning |\n|---|---|---|\n");
  lrmoeParameter_t shown;
  for (int i = 0; lrmoeGetParameter(i, &shown) == lrmoeSuccess; i++)
    printRow(json, &shown);
  code = toolJsonEnd(json, &error);
  return code ? (int)toolComplain(program.name, code, &error) : 0;
}
