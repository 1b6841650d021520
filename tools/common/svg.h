/* Pictures as SVG files: rectangles, lines, polylines and text, in pixels from
 * the upper left corner, y downwards.  What is drawn later lies on top.
 *
 * The picture is white with dark text whatever the viewer's theme, carries no
 * script and no reference to anything outside, and names a plain sans font.
 * Any text may be given: what XML cannot hold is replaced.
 *
 *   struct toolSvg *svg = NULL;
 *   toolSvgBegin("out.svg", "Loads", &svg, &error);
 *   toolSvgRect(svg, &(struct toolSvgBox){10, 10, 40, 20}, "#2a6f97", NULL);
 *   toolSvgText(svg, 30, 24, toolSvgMiddle, "%d", 7);
 *   toolSvgEnd(svg, 60, 40, &error);
 */
#ifndef LRMOE_TOOLS_SVG_H
#define LRMOE_TOOLS_SVG_H

#include "tools/common/fail.h"

struct toolSvg;

/* Begins a picture; the title is what a viewer shows and a screen reader says.
 * With path NULL (no --svg) *svg is NULL, which all functions below take and
 * ignore.  Fails now, not after the run, when PATH cannot be written. */
enum toolExit toolSvgBegin(const char *path, const char *title,
                           struct toolSvg **svg, struct toolError *error);

struct toolSvgBox {
  double x;
  double y;
  double width;
  double height;
};

/* fill: a colour, "none" for a frame; tip: shown when pointed at, NULL: none.
 * A frame has the colour of lines. */
void toolSvgRect(struct toolSvg *svg, const struct toolSvgBox *box,
                 const char *fill, const char *tip);

struct toolSvgPoint {
  double x;
  double y;
};

/* width in pixels, 0: one that stays thin at any zoom. */
void toolSvgLine(struct toolSvg *svg, struct toolSvgPoint from,
                 struct toolSvgPoint to, const char *colour, double width);
void toolSvgPolyline(struct toolSvg *svg, const struct toolSvgPoint *points,
                     int count, const char *colour, double width);

enum toolSvgAnchor {
  toolSvgStart,
  toolSvgMiddle,
  toolSvgEndAnchor
};

/* Text of toolSvgTextSize pixels whose base line begins, has its middle or
 * ends at (x, y).  toolSvgNote is smaller and grey, toolSvgHead larger. */
enum {
  toolSvgTextSize = 12
};
void toolSvgText(struct toolSvg *svg, double x, double y,
                 enum toolSvgAnchor anchor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void toolSvgNote(struct toolSvg *svg, double x, double y,
                 enum toolSvgAnchor anchor, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void toolSvgHead(struct toolSvg *svg, double x, double y, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

/* Room that a text of so many characters needs, on the safe side. */
double toolSvgTextWidth(const char *text);

/* A colour of a scale from pale (0) to deep (1), of even steps to the eye and
 * to a printer in grey, and the colour of text that can be read on it.  Static
 * storage, one of 16 steps. */
const char *toolSvgShade(double part);
const char *toolSvgInk(double part);

/* Text in the middle of a box filled with a shade. */
void toolSvgCell(struct toolSvg *svg, const struct toolSvgBox *box, double part,
                 const char *text, const char *tip);

/* The i-th of eight colours that can be told apart, also by the colour-blind
 * (Okabe and Ito); they begin again after the last. */
const char *toolSvgColour(int index);

/* Writes the picture, width by height pixels, and frees it. */
enum toolExit toolSvgEnd(struct toolSvg *svg, double width, double height,
                         struct toolError *error);

/* Frees it unwritten. */
void toolSvgDrop(struct toolSvg *svg);

#endif
