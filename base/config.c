/* Versioned structs of the public header: see config.h. */
#include "base/config.h"

#include <string.h>

struct header {
  size_t size;
  uint32_t magic;
  uint32_t version;
};

static lrmoeResult_t readHeader(const char *name, const void *given,
                                struct header *header) {
  LRMOE_REQUIRE(given, "%s is NULL", name);
  memcpy(header, given, sizeof *header);
  LRMOE_REQUIRE(header->magic == LRMOE_MAGIC,
                "%s has no magic: begin with its INITIALIZER", name);
  LRMOE_REQUIRE(header->size >= sizeof *header && header->size < 4096,
                "%s says that it is %zu B long", name, header->size);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeConfigRead(const char *name, const void *given,
                              size_t knownBytes, void *copy) {
  struct header header = {0};
  LRMOE_CHECK(readHeader(name, given, &header));
  const unsigned char *bytes = given;
  for (size_t i = knownBytes; i < header.size; i++)
    if (bytes[i])
      return LRMOE_FAIL(lrmoeUnsupported,
                        "%s of version %u sets a field that this library "
                        "(version %d) does not know",
                        name, header.version, LRMOE_VERSION);
  memcpy(copy, given, header.size < knownBytes ? header.size : knownBytes);
  return lrmoeSuccess;
}

lrmoeResult_t lrmoeViewWrite(const char *name, const void *full,
                             size_t knownBytes, void *given) {
  struct header header = {0};
  LRMOE_CHECK(readHeader(name, given, &header));
  size_t bytes = header.size < knownBytes ? header.size : knownBytes;
  memcpy((char *)given + sizeof header, (const char *)full + sizeof header,
         bytes - sizeof header);
  return lrmoeSuccess;
}
