/* XML of unknown origin, read safely, and its attributes as checked values.
 *
 * No DTD, no entities, no network, no includes; bounded size and depth.  Every
 * message names the source and the line. */
#ifndef LRMOE_TOPO_XML_H
#define LRMOE_TOPO_XML_H

#include "base/result.h"

#include <libxml/tree.h>
#include <stdbool.h>

enum {
  lrmoeMaxXmlBytes = 1 << 26, /* a thousand hosts are 10 MB */
  lrmoeMaxXmlDepth = 128
};

/* Parses; free with xmlFreeDoc. */
lrmoeResult_t lrmoeXmlParse(const char *source, const char *text, size_t bytes,
                            xmlDocPtr *document);

bool lrmoeXmlIs(const xmlNode *element, const char *name);

/* The first child element of element, and the next after child; NULL: none. */
xmlNode *lrmoeXmlFirst(const xmlNode *element);
xmlNode *lrmoeXmlNext(const xmlNode *child);

/* The attribute's text, NULL without it.  Lives as long as the document. */
const char *lrmoeXmlText(const xmlNode *element, const char *name);

/* The attribute as a whole number within low..high, decimal or 0x...; absent
 * or empty: missing.  Else an lrmoeInvalidArgument that names it. */
struct lrmoeXmlNumber {
  const char *source;
  const xmlNode *element;
  const char *name;
  int64_t low;
  int64_t high;
  int64_t missing;
};
lrmoeResult_t lrmoeXmlInteger(const struct lrmoeXmlNumber *number,
                              int64_t *value);

#endif
