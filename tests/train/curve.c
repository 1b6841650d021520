/* See curve.h. */
#include "curve.h"

#include "story.h"
#include "support/program.h"
#include "support/suite.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const curveOptions =
    "--text story -g 2 --dim 16 --layers 2 --heads 2 --experts 4 --topk 2 "
    "--ffn 8 --context 16 --batch 4 --retain 0.7 --exact 0 --warmup 2 "
    "--lr 3e-3 --grams 2 --gram-rows 64 "
    "--held-out-every 0 --held-out-windows 16 --report-every 1 -J out.json";

void curveText(void) {
  static char story[1 << 15];
  storyTell(story, sizeof story);
  programWrite("story", story);
}

static double numberIn(const json_t *row, const char *key) {
  const json_t *value = json_object_get(row, key);
  ck_assert_msg(json_is_number(value), "%s is no number", key);
  return json_number_value(value);
}

void curveRead(struct curve *curve) {
  json_error_t error;
  json_t *document = json_load_file(programPath("out.json"), 0, &error);
  ck_assert_msg(document != NULL, "%s", error.text);
  const json_t *rows = json_object_get(document, "results");
  size_t i;
  json_t *row;
  *curve = (struct curve){0};
  json_array_foreach(rows, i, row) {
    const char *kind = json_string_value(json_object_get(row, "row"));
    if (kind && strcmp(kind, "end") == 0)
      curve->heldOut = numberIn(row, "held_out");
    if (kind) continue;
    int step = (int)numberIn(row, "step");
    ck_assert(step >= 1 && step <= curveMaxSteps);
    if (!curve->first) curve->first = step;
    ck_assert(curve->last == 0 || curve->last + 1 == step);
    curve->last = step;
    curve->losses[step] = numberIn(row, "loss");
  }
  ck_assert(curve->heldOut > 0);
  json_decref(document);
}

void curveRun(struct curve *curve, const char *options) {
  remove(programPath("out.json"));
  int code = programRun(LRMOE_TRAIN_MOE, "%s %s", curveOptions, options);
  ck_assert_msg(code == 0, "%s: %d\n%s", options, code, programErr);
  curveRead(curve);
}

void curveRefuses(const char *options, int code, const char *why) {
  int got = programRun(LRMOE_TRAIN_MOE, "%s %s", curveOptions, options);
  ck_assert_msg(got == code, "%s: %d\n%s", options, got, programErr);
  ck_assert_msg(strstr(programErr, why) != NULL, "%s: \"%s\" is not in \"%s\"",
                options, why, programErr);
}

void curveSame(const struct curve *whole, const struct curve *part,
               double tolerance) {
  ck_assert(part->first == 0 || part->last == whole->last);
  for (int step = part->first; part->first && step <= part->last; step++)
    ck_assert_msg(fabs(part->losses[step] - whole->losses[step]) <= tolerance,
                  "step %d: %.17g, uninterrupted %.17g", step,
                  part->losses[step], whole->losses[step]);
  ck_assert(fabs(part->heldOut - whole->heldOut) <= tolerance);
}

const char *curveCommand(const char *command) {
  static char text[512];
  snprintf(text, sizeof text, "cd '%s' && { %s; }", programFolder(), command);
  return text;
}
