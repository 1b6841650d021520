/* Pictures: what is in the file, and what is refused. */
#include "support/suite.h"
#include "tools/common/svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct toolError error;
static char path[64];

static void makePath(void) {
  strcpy(path, "/tmp/lrmoe_svg_XXXXXX");
  int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  close(descriptor);
}

static struct toolSvg *begin(const char *title) {
  struct toolSvg *svg = NULL;
  makePath();
  enum toolExit code = toolSvgBegin(path, title, &svg, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
  return svg;
}

/* Ends the picture and gives the file's text; free() it. */
static char *end(struct toolSvg *svg, double width, double height) {
  enum toolExit code = toolSvgEnd(svg, width, height, &error);
  ck_assert_msg(code == toolGood, "%s", error.text);
  char *text = calloc(1, 100000);
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert(fread(text, 1, 99999, file) < 99999);
  fclose(file);
  unlink(path);
  return text;
}

static void mustHold(const char *text, const char *part) {
  ck_assert_msg(strstr(text, part) != NULL, "%s is not in\n%s", part, text);
}

START_TEST(picture) {
  struct toolSvg *svg = begin("Two boxes");
  toolSvgRect(svg, &(struct toolSvgBox){1, 2, 30, 4.5}, "#123456", "a tip");
  toolSvgRect(svg, &(struct toolSvgBox){5, 6, 7, 8}, "none", NULL);
  toolSvgLine(svg, (struct toolSvgPoint){0, 1}, (struct toolSvgPoint){2, 3},
              "red", 1.5);
  toolSvgPolyline(svg, (struct toolSvgPoint[]){{0, 0}, {1, 1}, {2, 0}}, 3,
                  "blue", 0);
  toolSvgText(svg, 10, 20, toolSvgEndAnchor, "%d ranks", 4);
  toolSvgNote(svg, 10, 30, toolSvgMiddle, "note");
  toolSvgHead(svg, 10, 40, "head");
  char *text = end(svg, 120, 80);
  ck_assert_int_eq(
      strncmp(text, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39), 0);
  mustHold(text, "width=\"120\" height=\"80\" viewBox=\"0 0 120 80\"");
  mustHold(text, "<title>Two boxes</title>");
  mustHold(text, "<rect x=\"1.00\" y=\"2.00\" width=\"30.00\" height=\"4.50\" "
                 "fill=\"#123456\"><title>a tip</title></rect>");
  mustHold(text, "fill=\"none\" stroke=\"#5b6770\"/>");
  mustHold(text, "points=\"0.00,1.00 2.00,3.00\" stroke=\"red\" "
                 "stroke-width=\"1.50\"/>");
  mustHold(text, "points=\"0.00,0.00 1.00,1.00 2.00,0.00\" stroke=\"blue\" "
                 "vector-effect");
  mustHold(text, "<text x=\"10.00\" y=\"20.00\" text-anchor=\"end\">4 ranks"
                 "</text>");
  mustHold(text,
           "text-anchor=\"middle\" font-size=\"10\" fill=\"#5b6770\">note<");
  mustHold(text, "font-size=\"15\" font-weight=\"bold\">head<");
  ck_assert_str_eq(text + strlen(text) - 7, "</svg>\n");
  free(text);
}
END_TEST

/* Nothing that is given can end an element or break the encoding. */
START_TEST(anyText) {
  struct toolSvg *svg = begin("<&\">");
  toolSvgText(svg, 0, 0, toolSvgStart, "%s", "a<b>&\"c\"");
  toolSvgText(svg, 0, 0, toolSvgStart, "%s", "\xc3\xa9\xe2\x82\xac");
  toolSvgText(svg, 0, 0, toolSvgStart, "%s",
              "x\x01y\xffz\xc0\xafw\xed\xa0\x80");
  toolSvgText(svg, 0, 0, toolSvgStart, "%s", "cut\xe2\x82");
  toolSvgRect(svg, &(struct toolSvgBox){0}, "none", "</title>");
  char *text = end(svg, 1, 1);
  mustHold(text, "<title>&lt;&amp;&quot;&gt;</title>");
  mustHold(text, ">a&lt;b&gt;&amp;&quot;c&quot;</text>");
  mustHold(text, ">\xc3\xa9\xe2\x82\xac</text>");
  mustHold(text, ">x\xef\xbf\xbdy\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbdw"
                 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd</text>");
  mustHold(text, ">cut\xef\xbf\xbd\xef\xbf\xbd</text>");
  mustHold(text, "<title>&lt;/title&gt;</title></rect>");
  free(text);
}
END_TEST

START_TEST(shades) {
  ck_assert_str_eq(toolSvgShade(-1), toolSvgShade(0));
  ck_assert_str_eq(toolSvgShade(2), toolSvgShade(1));
  ck_assert_str_eq(toolSvgShade(0.0 / 0.0), toolSvgShade(0));
  ck_assert_str_ne(toolSvgShade(0), toolSvgShade(1));
  ck_assert_str_eq(toolSvgInk(1), "#ffffff");
  ck_assert_str_ne(toolSvgInk(0), toolSvgInk(1));
  for (int i = 0; i < 16; i++) { /* darker at every step */
    unsigned colour = 0, next = 0;
    sscanf(toolSvgShade(i / 15.0), "#%x", &colour);
    sscanf(toolSvgShade((i + 1) / 15.0), "#%x", &next);
    ck_assert_int_eq(next < colour, i < 15);
  }
  ck_assert_str_eq(toolSvgColour(8), toolSvgColour(0));
  ck_assert_str_ne(toolSvgColour(1), toolSvgColour(0));
  ck_assert(toolSvgTextWidth("abcd") > toolSvgTextWidth("\xe2\x82\xac"));
}
END_TEST

START_TEST(cells) {
  struct toolSvg *svg = begin("");
  toolSvgCell(svg, &(struct toolSvgBox){0, 0, 40, 20}, 1, "300", "0 to 1");
  char *text = end(svg, 40, 20);
  mustHold(text, "fill=\"#124672\"><title>0 to 1</title></rect>");
  mustHold(text, "<text x=\"20.00\" y=\"14.20\" text-anchor=\"middle\" "
                 "fill=\"#ffffff\"");
  free(text);
}
END_TEST

START_TEST(withoutPathNothingHappens) {
  struct toolSvg *svg = (void *)path;
  ck_assert_int_eq(toolSvgBegin(NULL, "", &svg, &error), toolGood);
  ck_assert_ptr_null(svg);
  struct toolSvgPoint point = {0, 0};
  toolSvgRect(svg, NULL, "none", NULL);
  toolSvgLine(svg, point, point, "red", 1);
  toolSvgPolyline(svg, NULL, 0, "red", 1);
  toolSvgText(svg, 0, 0, toolSvgStart, "a");
  toolSvgNote(svg, 0, 0, toolSvgStart, "a");
  toolSvgHead(svg, 0, 0, "a");
  toolSvgCell(svg, NULL, 0, "a", NULL);
  toolSvgDrop(svg);
  ck_assert_int_eq(toolSvgEnd(svg, 1, 1, &error), toolGood);
}
END_TEST

START_TEST(refusedBeforeTheRun) {
  struct toolSvg *svg = NULL;
  ck_assert_int_eq(toolSvgBegin("/nonexistent/a.svg", "", &svg, &error),
                   toolBadInput);
  ck_assert_str_eq(error.text, "option --svg: \"/nonexistent/a.svg\" cannot be "
                               "written");
  ck_assert_int_eq(toolSvgBegin("/tmp", "", &svg, &error), toolBadInput);
  ck_assert_ptr_null(svg);
  ck_assert_int_eq(toolSvgBegin("/dev/full", "", &svg, &error), toolGood);
  ck_assert_int_eq(toolSvgEnd(svg, 1, 1, &error), toolBadInput);
  ck_assert_str_eq(error.text,
                   "option --svg: \"/dev/full\": No space left on device");
}
END_TEST

START_TEST(droppedIsNotWritten) {
  struct toolSvg *svg = begin("");
  toolSvgText(svg, 0, 0, toolSvgStart, "a");
  unlink(path);
  toolSvgDrop(svg);
  ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {picture,
                                anyText,
                                shades,
                                cells,
                                withoutPathNothingHappens,
                                refusedBeforeTheRun,
                                droppedIsNotWritten};
  return suiteRunTests("svg", tests, sizeof tests / sizeof *tests, 60);
}
