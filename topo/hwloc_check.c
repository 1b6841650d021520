/* What hwloc's XML must have before anything else is read of it: a format that
 * is known, a type for every object, and sets that hwloc can read. */
#include "topo/hwloc_xml.h"

#include <string.h>

enum {
  maxSetText = 1 << 16 /* half a million CPUs */
};

static lrmoeResult_t checkVersion(const char *source, const xmlNode *root) {
  LRMOE_REQUIRE(lrmoeXmlIs(root, "topology"),
                "%s: the root element is <%s>, not <topology>: no topology of "
                "hwloc",
                source, (const char *)root->name);
  const char *version = lrmoeXmlText(root, "version");
  if (!version || strncmp(version, "1.", 2) == 0 ||
      strncmp(version, "2.", 2) == 0)
    return lrmoeSuccess;
  return LRMOE_FAIL(lrmoeUnsupported,
                    "%s: format %.20s of hwloc's XML; 1 and 2 are read: write "
                    "it again with `lstopo --export-xml-flags v2` or an hwloc "
                    "2.x",
                    source, version);
}

bool lrmoeHwlocHasSets(const xmlNode *object) {
  static const char *const without[] = {"Bridge", "PCIDev", "OSDev", "Misc"};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (lrmoeHwlocIs(object, without[i])) return false;
  return lrmoeXmlIs(object, "object");
}

/* Words of up to eight hexadecimal digits, the highest first; one in between
 * may be empty, for 0.  An infinite set begins with 0xf...f.  hwloc 2.9 aborts
 * on a comma in front, so what it is to read has to be a set before. */
static bool isSet(const char *text) {
  static const char rest[] = "0xf...f";
  size_t head = strncmp(text, rest, strlen(rest)) == 0 ? strlen(rest) : 0;
  const char *at = text + head;
  if (head && !*at) return true;
  if (head && *at++ != ',') return false;
  for (bool isFirst = !head;; isFirst = false) {
    size_t prefix = strncmp(at, "0x", 2) == 0 ? 2 : 0;
    size_t digits = strspn(at + prefix, "0123456789abcdefABCDEF");
    const char *end = at + prefix + digits;
    bool mayBeEmpty = !isFirst && *end == ',' && !prefix;
    if (digits > 8 || (!digits && !mayBeEmpty)) return false;
    if (*end != ',') return !*end;
    at = end + 1;
  }
}

static lrmoeResult_t checkSet(const char *source, const xmlNode *object,
                              const char *name) {
  const char *text = lrmoeXmlText(object, name);
  const char *type = lrmoeXmlText(object, "type");
  LRMOE_REQUIRE(text, "%s:%ld: an object of type %.20s without %s", source,
                xmlGetLineNo(object), type ? type : "none", name);
  LRMOE_REQUIRE(strlen(text) <= maxSetText && isSet(text),
                "%s:%ld: %s=\"%.40s\" is no set", source, xmlGetLineNo(object),
                name, text);
  return lrmoeSuccess;
}

static lrmoeResult_t checkObject(const char *source, const xmlNode *object) {
  LRMOE_REQUIRE(lrmoeXmlText(object, "type"), "%s:%ld: an object without type",
                source, xmlGetLineNo(object));
  if (!lrmoeHwlocHasSets(object)) return lrmoeSuccess;
  LRMOE_CHECK(checkSet(source, object, "cpuset"));
  LRMOE_CHECK(checkSet(source, object, "complete_cpuset"));
  return lrmoeXmlText(object, "nodeset") ? checkSet(source, object, "nodeset")
                                         : lrmoeSuccess;
}

static lrmoeResult_t checkObjects(const char *source, const xmlNode *object) {
  if (lrmoeXmlIs(object, "object")) LRMOE_CHECK(checkObject(source, object));
  for (xmlNode *child = lrmoeXmlFirst(object); child;
       child = lrmoeXmlNext(child))
    LRMOE_CHECK(checkObjects(source, child));
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeHwlocCheck(const char *source, const xmlNode *root) {
  LRMOE_CHECK(checkVersion(source, root));
  return checkObjects(source, root);
}
