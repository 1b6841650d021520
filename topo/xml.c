/* XML of unknown origin: see xml.h.
 *
 * libxml2 expands the entities of a document type inside attributes whatever
 * options it gets, so a document with a document type is stopped where that
 * begins. */
#include "topo/xml.h"

#include <errno.h>
#include <libxml/parser.h>
#include <stdlib.h>
#include <string.h>

static void stopAtDoctype(void *context, const xmlChar *name,
                          const xmlChar *externalId, const xmlChar *systemId) {
  xmlParserCtxtPtr parser = context;
  (void)name;
  (void)externalId;
  (void)systemId;
  int *seen = parser->_private;
  *seen = 1;
  xmlStopParser(parser);
}

/* libxml2's text ends in a newline, or is not there. */
static lrmoeResult_t failParsed(const char *source, xmlParserCtxtPtr parser) {
  const xmlError *error = xmlCtxtGetLastError(parser);
  if (error && error->code == XML_ERR_NO_MEMORY)
    return LRMOE_FAIL(lrmoeOutOfMemory, "%s: no memory for its XML", source);
  const char *text = error && error->message ? error->message : "it is cut off";
  return LRMOE_FAIL(lrmoeInvalidArgument,
                    "%s:%d: XML that is not well-formed:"
                    " %.*s",
                    source, error ? error->line : 0, (int)strcspn(text, "\n"),
                    text);
}

/* Recursion is bounded by the caller's check of depth before it. */
static const xmlNode *tooDeep(const xmlNode *element, int depth) {
  const xmlNode *found = depth > lrmoeMaxXmlDepth ? element : NULL;
  for (const xmlNode *child = lrmoeXmlFirst(element); child && !found;
       child = lrmoeXmlNext(child))
    found = tooDeep(child, depth + 1);
  return found;
}

static lrmoeResult_t checkDocument(const char *source, xmlDocPtr document) {
  xmlNode *root = xmlDocGetRootElement(document);
  if (!root)
    return LRMOE_FAIL(lrmoeInvalidArgument, "%s: no XML element", source);
  const xmlNode *deep = tooDeep(root, 1);
  if (deep)
    return LRMOE_FAIL(lrmoeInvalidArgument,
                      "%s:%ld: elements nested more than %d deep", source,
                      xmlGetLineNo(deep), lrmoeMaxXmlDepth);
  return lrmoeSuccess;
}

static lrmoeResult_t parseWith(xmlParserCtxtPtr parser, const char *source,
                               const char *text, size_t bytes,
                               xmlDocPtr *document) {
  int seenDoctype = 0;
  parser->_private = &seenDoctype;
  parser->sax->internalSubset = stopAtDoctype;
  xmlDocPtr made = xmlCtxtReadMemory(parser, text, (int)bytes, NULL, NULL,
                                     XML_PARSE_NONET | XML_PARSE_NOERROR |
                                         XML_PARSE_NOWARNING);
  lrmoeResult_t result = lrmoeSuccess;
  if (seenDoctype)
    result = LRMOE_FAIL(lrmoeInvalidArgument,
                        "%s: it has a document type (entities), which no "
                        "topology needs",
                        source);
  else if (!made)
    result = failParsed(source, parser);
  else
    result = checkDocument(source, made);
  if (result == lrmoeSuccess)
    *document = made;
  else
    xmlFreeDoc(made);
  return result;
}

lrmoeResult_t lrmoeXmlParse(const char *source, const char *text, size_t bytes,
                            xmlDocPtr *document) {
  LRMOE_REQUIRE(bytes > 0 && bytes <= lrmoeMaxXmlBytes,
                "%s: %zu B of XML, not 1..%d", source, bytes, lrmoeMaxXmlBytes);
  xmlParserCtxtPtr parser = xmlNewParserCtxt();
  if (!parser)
    return LRMOE_FAIL(lrmoeOutOfMemory, "no memory for an XML parser");
  lrmoeResult_t result = parseWith(parser, source, text, bytes, document);
  xmlFreeParserCtxt(parser);
  return result;
}

bool lrmoeXmlIs(const xmlNode *element, const char *name) {
  return strcmp((const char *)element->name, name) == 0;
}

static xmlNode *skipToElement(xmlNode *node) {
  while (node && node->type != XML_ELEMENT_NODE)
    node = node->next;
  return node;
}

xmlNode *lrmoeXmlFirst(const xmlNode *element) {
  return skipToElement(element->children);
}

xmlNode *lrmoeXmlNext(const xmlNode *child) {
  return skipToElement(child->next);
}

const char *lrmoeXmlText(const xmlNode *element, const char *name) {
  for (const xmlAttr *attribute = element->properties; attribute;
       attribute = attribute->next) {
    if (strcmp((const char *)attribute->name, name) != 0) continue;
    const xmlNode *text = attribute->children;
    return text && text->content ? (const char *)text->content : "";
  }
  return NULL;
}

lrmoeResult_t lrmoeXmlInteger(const struct lrmoeXmlNumber *number,
                              int64_t *value) {
  const char *text = lrmoeXmlText(number->element, number->name);
  if (!text || !*text) {
    *value = number->missing;
    return lrmoeSuccess;
  }
  char *end = NULL;
  errno = 0;
  bool isHex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  long long parsed = strtoll(text, &end, isHex ? 16 : 10);
  if (errno || *end || parsed < number->low || parsed > number->high)
    return LRMOE_FAIL(lrmoeInvalidArgument,
                      "%s:%ld: %s=\"%.40s\" of <%s> is not within "
                      "%lld..%lld",
                      number->source, xmlGetLineNo(number->element),
                      number->name, text, (const char *)number->element->name,
                      (long long)number->low, (long long)number->high);
  *value = parsed;
  return lrmoeSuccess;
}
