/* Random bytes and proofs: see secret.h. */
#include "collectives/cpu/secret.h"

#include "base/hash.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

lrmoeResult_t lrmoeSecretRandom(void *data, size_t bytes) {
  char *next = data;
  while (bytes) {
    ssize_t got = getrandom(next, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return LRMOE_FAIL(lrmoeSystemError, "getrandom: %s", strerror(errno));
    next += got;
    bytes -= (size_t)got;
  }
  return lrmoeSuccess;
}

/* A key for each use and word: hashes of the whole id, whose first words are
 * themselves the key. */
static void deriveKey(const lrmoeUniqueId *id, uint64_t use, uint64_t key[2]) {
  uint64_t root[2];
  memcpy(root, id->internal, sizeof root);
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t tweaked[2] = {root[0] ^ use, root[1] ^ (i + 1)};
    key[i] = lrmoeSipHash(tweaked, id->internal, sizeof id->internal);
  }
}

void lrmoeSecretProof(const lrmoeUniqueId *id, uint64_t purpose,
                      const void *data, size_t bytes, uint64_t proof[2]) {
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t key[2];
    deriveKey(id, purpose * 2 + i, key);
    proof[i] = lrmoeSipHash(key, data, bytes);
  }
}
