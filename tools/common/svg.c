/* Pictures as SVG files: see svg.h.  The elements are collected in memory,
 * because the size of a picture, which stands first, is known last. */
#include "tools/common/svg.h"

#include "tools/common/file.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct toolSvg {
  const char *path;
  const char *title;
  FILE *out; /* to body */
  char *body;
  size_t bodyBytes;
};

static const char lineColour[] = "#5b6770";

/* ---- Text --------------------------------------------------------------- */

/* Length of the UTF-8 sequence at `text` if XML may hold it, else 0. */
static int charLength(const unsigned char *text) {
  if (text[0] < 0x80)
    return text[0] >= 0x20 || text[0] == '\n' || text[0] == '\t';
  int length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
  if (text[0] < 0xc2 || text[0] > 0xf4) return 0;
  uint32_t code = text[0] & (0x7fu >> length);
  for (int i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (text[i] & 0x3fu);
  }
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  int isSurrogate = code >= 0xd800 && code <= 0xdfff;
  int isMark = (code & 0xfffe) == 0xfffe;
  return code < least[length] || code > 0x10ffff || isSurrogate || isMark
             ? 0
             : length;
}

static const char *entityOf(char character) {
  switch (character) {
  case '<':
    return "&lt;";
  case '>':
    return "&gt;";
  case '&':
    return "&amp;";
  case '"':
    return "&quot;";
  default:
    return NULL;
  }
}

static void putText(FILE *out, const char *text) {
  while (*text) {
    int length = charLength((const unsigned char *)text);
    const char *entity = entityOf(*text);
    if (entity)
      fputs(entity, out);
    else if (length)
      fwrite(text, 1, (size_t)length, out);
    else
      fputs("\xef\xbf\xbd", out); /* the replacement character */
    text += length ? length : 1;
  }
}

double toolSvgTextWidth(const char *text) {
  double characters = 0;
  for (; *text; text++)
    characters += (*text & 0xc0) != 0x80;
  return characters * toolSvgTextSize * 0.62;
}

static void putWords(struct toolSvg *svg, const char *attributes,
                     const char *format, va_list arguments) {
  char text[512];
  vsnprintf(text, sizeof text, format, arguments);
  fprintf(svg->out, "<text %s>", attributes);
  putText(svg->out, text);
  fputs("</text>\n", svg->out);
}

static void place(char attributes[200], struct toolSvgPoint at,
                  enum toolSvgAnchor anchor, const char *more) {
  static const char *const names[] = {"start", "middle", "end"};
  snprintf(attributes, 200, "x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\"%s", at.x,
           at.y, names[anchor], more);
}

void toolSvgText(struct toolSvg *svg, double x, double y,
                 enum toolSvgAnchor anchor, const char *format, ...) {
  if (!svg) return;
  char attributes[200];
  place(attributes, (struct toolSvgPoint){x, y}, anchor, "");
  va_list arguments;
  va_start(arguments, format);
  putWords(svg, attributes, format, arguments);
  va_end(arguments);
}

void toolSvgNote(struct toolSvg *svg, double x, double y,
                 enum toolSvgAnchor anchor, const char *format, ...) {
  if (!svg) return;
  char attributes[200];
  place(attributes, (struct toolSvgPoint){x, y}, anchor,
        " font-size=\"10\" fill=\"#5b6770\"");
  va_list arguments;
  va_start(arguments, format);
  putWords(svg, attributes, format, arguments);
  va_end(arguments);
}

void toolSvgHead(struct toolSvg *svg, double x, double y, const char *format,
                 ...) {
  if (!svg) return;
  char attributes[200];
  place(attributes, (struct toolSvgPoint){x, y}, toolSvgStart,
        " font-size=\"15\" font-weight=\"bold\"");
  va_list arguments;
  va_start(arguments, format);
  putWords(svg, attributes, format, arguments);
  va_end(arguments);
}

/* ---- Shapes ------------------------------------------------------------- */

void toolSvgRect(struct toolSvg *svg, const struct toolSvgBox *box,
                 const char *fill, const char *tip) {
  if (!svg) return;
  int isFrame = strcmp(fill, "none") == 0;
  fprintf(svg->out,
          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
          "fill=\"%s\"",
          box->x, box->y, box->width, box->height, fill);
  if (isFrame) fprintf(svg->out, " stroke=\"%s\"", lineColour);
  if (!tip) {
    fputs("/>\n", svg->out);
    return;
  }
  fputs("><title>", svg->out);
  putText(svg->out, tip);
  fputs("</title></rect>\n", svg->out);
}

void toolSvgPolyline(struct toolSvg *svg, const struct toolSvgPoint *points,
                     int count, const char *colour, double width) {
  if (!svg) return;
  fputs("<polyline fill=\"none\" points=\"", svg->out);
  for (int i = 0; i < count; i++)
    fprintf(svg->out, "%s%.2f,%.2f", i ? " " : "", points[i].x, points[i].y);
  fprintf(svg->out, "\" stroke=\"%s\"", colour);
  if (width > 0)
    fprintf(svg->out, " stroke-width=\"%.2f\"/>\n", width);
  else
    fputs(" vector-effect=\"non-scaling-stroke\"/>\n", svg->out);
}

void toolSvgLine(struct toolSvg *svg, struct toolSvgPoint from,
                 struct toolSvgPoint to, const char *colour, double width) {
  toolSvgPolyline(svg, (struct toolSvgPoint[]){from, to}, 2, colour, width);
}

/* ---- Colours ------------------------------------------------------------ */

enum {
  numShades = 16,
  firstDark = 9 /* from here on text is white */
};

static int shadeOf(double part) {
  if (!(part > 0)) return 0;
  return part >= 1 ? numShades - 1 : (int)(part * (numShades - 1) + 0.5);
}

const char *toolSvgShade(double part) {
  static const char *const shades[numShades] = {
      "#f4f8fb", "#e7f0f6", "#dae8f1", "#cce0ec", "#bdd7e7", "#adcde1",
      "#9cc3da", "#8ab7d2", "#77aaca", "#659dc1", "#538fb7", "#4281ac",
      "#3372a0", "#266392", "#1b5583", "#124672"};
  return shades[shadeOf(part)];
}

const char *toolSvgInk(double part) {
  return shadeOf(part) >= firstDark ? "#ffffff" : "#1d252b";
}

const char *toolSvgColour(int index) {
  static const char *const colours[8] = {"#0072b2", "#d55e00", "#009e73",
                                         "#cc79a7", "#56b4e9", "#e69f00",
                                         "#5b6770", "#b8a800"};
  return colours[(unsigned)index % 8];
}

void toolSvgCell(struct toolSvg *svg, const struct toolSvgBox *box, double part,
                 const char *text, const char *tip) {
  if (!svg) return;
  toolSvgRect(svg, box, toolSvgShade(part), tip);
  fprintf(svg->out,
          "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\" "
          "fill=\"%s\" pointer-events=\"none\">",
          box->x + box->width / 2,
          box->y + box->height / 2 + toolSvgTextSize * 0.35, toolSvgInk(part));
  putText(svg->out, text);
  fputs("</text>\n", svg->out);
}

/* ---- The file ----------------------------------------------------------- */

enum toolExit toolSvgBegin(const char *path, const char *title,
                           struct toolSvg **svg, struct toolError *error) {
  *svg = NULL;
  if (!path) return toolGood;
  enum toolExit code = toolFileProbe("svg", path, error);
  if (code != toolGood) return code;
  struct toolSvg *made = calloc(1, sizeof *made);
  if (made) made->out = open_memstream(&made->body, &made->bodyBytes);
  if (!made || !made->out) {
    free(made);
    return toolFail(error, toolRunFailed, "no memory for --svg");
  }
  made->path = path;
  made->title = title;
  *svg = made;
  return toolGood;
}

static void putPicture(FILE *out, const struct toolSvg *svg, double width,
                       double height) {
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
          "height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n<title>",
          width, height, width, height);
  putText(out, svg->title);
  fprintf(out,
          "</title>\n<rect width=\"%.0f\" height=\"%.0f\" "
          "fill=\"#ffffff\"/>\n<g font-family=\"sans-serif\" "
          "font-size=\"%d\" fill=\"#1d252b\" stroke=\"none\">\n",
          width, height, toolSvgTextSize);
  fwrite(svg->body, 1, svg->bodyBytes, out);
  fputs("</g>\n</svg>\n", out);
}

enum toolExit toolSvgEnd(struct toolSvg *svg, double width, double height,
                         struct toolError *error) {
  if (!svg) return toolGood;
  char *picture = NULL;
  size_t bytes = 0;
  int isBroken = fflush(svg->out) != 0 || ferror(svg->out);
  FILE *out = open_memstream(&picture, &bytes);
  if (out) {
    putPicture(out, svg, width, height);
    isBroken |= ferror(out);
    isBroken |= fclose(out) != 0;
  }
  enum toolExit code =
      !out || isBroken ? toolFail(error, toolRunFailed, "no memory for --svg")
                       : toolFileWrite("svg", svg->path, picture, bytes, error);
  free(picture);
  toolSvgDrop(svg);
  return code;
}

void toolSvgDrop(struct toolSvg *svg) {
  if (!svg) return;
  fclose(svg->out);
  free(svg->body);
  free(svg);
}
