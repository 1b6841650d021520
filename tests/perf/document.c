/* See document.h. */
#include "document.h"

#include "support/program.h"
#include "support/suite.h"

json_t *documentRun(const char *program, const char *name,
                    const char *arguments) {
  int code = programRun(program, "-J %s %s", name, arguments);
  ck_assert_msg(code == 0, "%s: %d\n%s", arguments, code, programErr);
  json_error_t error;
  json_t *document = json_load_file(programPath(name), 0, &error);
  ck_assert_msg(document != NULL, "%s", error.text);
  return document;
}

double numberOf(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

const char *textOf(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  ck_assert_msg(text != NULL, "%s is no text", key);
  return text;
}
void documentWriteHost(void) {
  programWrite("host.xml",
               "<system version=\"1\"><cpu numaid=\"0\">"
               "<pci busid=\"0000:01:00.0\" class=\"0x030200\">"
               "<gpu dev=\"0\" sm=\"80\"/></pci>"
               "<pci busid=\"0000:02:00.0\" class=\"0x030200\">"
               "<gpu dev=\"1\" sm=\"80\"/></pci>"
               "<pci busid=\"0000:03:00.0\" class=\"0x020000\"><nic>"
               "<net name=\"n\" dev=\"0\" speed=\"100000\"/>"
               "</nic></pci></cpu></system>");
}
