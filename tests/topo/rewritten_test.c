/* Files of real machines renamed, reordered and rewritten: the model stays the
 * same, bit for bit; and what does matter changes its key. */
#include "topo/recorded.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static int below(int limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int)((state >> 33) % (uint64_t)limit);
}

static int is(const xmlNode *element, const char *name) {
  return xmlStrcmp(element->name, (const xmlChar *)name) == 0;
}

/* A matrix of hwloc's is a list of numbers, in one or in several elements. */
static int isMatrix(const xmlNode *element) {
  return strncmp((const char *)element->name, "distances2", 10) == 0 ||
         is(element, "memattr");
}

/* Moves each child behind a random other one. */
static void shuffle(xmlNode *element) {
  xmlNode *children[512];
  int count = 0;
  if (isMatrix(element)) return;
  for (xmlNode *child = element->children; child && count < 512;) {
    xmlNode *next = child->next;
    if (child->type == XML_ELEMENT_NODE) {
      shuffle(child);
      children[count++] = child;
    } else {
      xmlUnlinkNode(child);
      xmlFreeNode(child);
    }
    child = next;
  }
  for (int i = count - 1; i > 0; i--) {
    int j = below(i + 1);
    xmlNode *kept = children[i];
    children[i] = children[j];
    children[j] = kept;
  }
  for (int i = 0; i < count; i++) {
    xmlUnlinkNode(children[i]);
    xmlAddChild(element, children[i]);
  }
}

/* hwloc's names are those of devices of the network; the others say what
 * something is. */
static int hasFreeName(xmlNode *element) {
  xmlChar *type = xmlGetProp(element, (const xmlChar *)"osdev_type");
  int isFree = is(element, "net") || is(element, "system") ||
               (type && (*type == '2' || *type == '3'));
  xmlFree(type);
  return isFree;
}

/* Devices of the network get other names; attributes change places. */
static void renameAll(xmlNode *element) {
  for (xmlNode *child = element->children; child; child = child->next)
    if (child->type == XML_ELEMENT_NODE) renameAll(child);
  xmlAttr *first = element->properties;
  if (first && first->next) {
    xmlChar *value = xmlGetProp(element, first->name);
    xmlChar *name = xmlStrdup(first->name);
    xmlUnsetProp(element, name);
    xmlNewProp(element, name, value);
    xmlFree(name);
    xmlFree(value);
  }
  xmlChar *named = xmlGetProp(element, (const xmlChar *)"name");
  if (named && hasFreeName(element)) {
    char changed[128];
    snprintf(changed, sizeof changed, "other_%s", (const char *)named);
    xmlSetProp(element, (const xmlChar *)"name", (const xmlChar *)changed);
  }
  xmlFree(named);
}

/* Another domain for every address, in the same order; upper case. */
static void readdress(xmlNode *element) {
  static const char *const names[] = {"busid", "target", "pci_busid"};
  for (xmlNode *child = element->children; child; child = child->next)
    if (child->type == XML_ELEMENT_NODE) readdress(child);
  for (int i = 0; i < 3; i++) {
    const xmlChar *name = (const xmlChar *)names[i];
    xmlChar *old = xmlGetProp(element, name);
    unsigned domain = 0;
    char rest[64], changed[128];
    if (old && sscanf((const char *)old, "%x:%40s", &domain, rest) == 2 &&
        domain < 0xf000) {
      for (char *c = rest; *c; c++)
        if (*c >= 'a' && *c <= 'f') *c = (char)(*c - 'a' + 'A');
      snprintf(changed, sizeof changed, "%X:%s", domain + 0x500, rest);
      xmlSetProp(element, name, (const xmlChar *)changed);
    }
    xmlFree(old);
  }
}

/* hwloc's numbers of objects become others, in matrices too. */
static void renumber(xmlNode *element) {
  char changed[65536];
  size_t length = 0;
  for (xmlNode *child = element->children; child; child = child->next)
    if (child->type == XML_ELEMENT_NODE) renumber(child);
  xmlChar *old = xmlGetProp(element, (const xmlChar *)"gp_index");
  if (old) {
    snprintf(changed, sizeof changed, "%ld",
             7 + 3 * strtol((char *)old, NULL, 10));
    xmlSetProp(element, (const xmlChar *)"gp_index", (const xmlChar *)changed);
  }
  xmlFree(old);
  if (!is(element, "indexes")) return;
  old = xmlNodeGetContent(element);
  for (char *word = strtok((char *)old, " \n"); word;
       word = strtok(NULL, " \n")) {
    char *colon = strchr(word, ':');
    char *number = colon ? colon + 1 : word;
    length += (size_t)snprintf(changed + length, sizeof changed - length,
                               "%.*s%ld\n", (int)(number - word), word,
                               7 + 3 * strtol(number, NULL, 10));
  }
  xmlFree(old);
  xmlNodeSetContent(element, (const xmlChar *)changed);
}

/* Six rewritings of one file against the file itself. */
static void rewriteFile(const char *path, lrmoeTopology_t before) {
  lrmoeTopology_t after = NULL;
  for (int round = 0; round < 6; round++) {
    state = (uint64_t)round;
    xmlDocPtr document = xmlReadFile(path, NULL, 0);
    ck_assert_ptr_nonnull(document);
    xmlNode *root = xmlDocGetRootElement(document);
    if (round > 0) shuffle(root);
    if (round > 1) renameAll(root);
    if (round > 2) readdress(root);
    if (round > 3) renumber(root);
    xmlChar *text = NULL;
    int bytes = 0;
    xmlDocDumpFormatMemory(document, &text, &bytes, round % 2);
    ASSERT_OK(openText((const char *)text, &after));
    assertSameModel(before, after, path);
    if (round <= 1) assertSameLists(before, after, path);
    lrmoeTopologyDestroy(after);
    xmlFree(text);
    xmlFreeDoc(document);
  }
}

/* Folders, and how many models their files make at least. */
static const struct {
  const char *name;
  int numModels;
} folders[] = {{"nccl", 20}, {"hwloc", 15}};

static void rewriteModel(void *context, const char *path, const char *name) {
  int *numModels = context;
  lrmoeTopology_t before = NULL;
  (void)name;
  if (openFile(path, &before)) return; /* one that is refused */
  rewriteFile(path, before);
  lrmoeTopologyDestroy(before);
  ++*numModels;
}

START_TEST(rewrittenFiles) {
  int numModels = 0;
  if (recordedEach(folders[_i].name, rewriteModel, &numModels))
    ck_assert_int_ge(numModels, folders[_i].numModels);
}
END_TEST

/* And what does matter changes the key. */
START_TEST(changedFile) {
  char path[4096];
  if (!recordedPath("nccl", "simllm-perlmutter-4xa100-cxi.xml", path,
                    sizeof path))
    return;
  lrmoeTopology_t before = NULL, after = NULL;
  ASSERT_OK(openFile(path, &before));
  xmlDocPtr document = xmlReadFile(path, NULL, 0);
  xmlNode *cpu = xmlFirstElementChild(xmlDocGetRootElement(document));
  xmlNode *nic = xmlFirstElementChild(xmlFirstElementChild(cpu));
  xmlSetProp(xmlFirstElementChild(nic), (const xmlChar *)"speed",
             (const xmlChar *)"100000");
  xmlChar *text = NULL;
  int bytes = 0;
  xmlDocDumpMemory(document, &text, &bytes);
  ASSERT_OK(openText((const char *)text, &after));
  ck_assert(infoOf(before).machineKey != infoOf(after).machineKey);
  lrmoeTopologyDestroy(before);
  lrmoeTopologyDestroy(after);
  xmlFree(text);
  xmlFreeDoc(document);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("rewritten");
  TCase *tests = tcase_create("rewritten");
  tcase_set_timeout(tests, 120);
  tcase_add_loop_test(tests, rewrittenFiles, 0,
                      sizeof folders / sizeof *folders);
  tcase_add_test(tests, changedFile);
  suite_add_tcase(suite, tests);
  return suiteRun(suite);
}
