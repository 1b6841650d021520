/* The unique id as a shared secret.
 *
 * The id is random bytes that a program gives to its ranks by its own means.
 * It never crosses the socket: the socket's name is a hash keyed by it, and
 * both sides prove that they know it by hashing what they have just told each
 * other (SipHash-2-4, two words). */
#ifndef LRMOE_COLLECTIVES_CPU_SECRET_H
#define LRMOE_COLLECTIVES_CPU_SECRET_H

#include "base/result.h"

lrmoeResult_t lrmoeSecretRandom(void *data, size_t bytes);

/* Two words that only who knows the id can make; `purpose` keeps proofs for
 * different uses apart. */
void lrmoeSecretProof(const lrmoeUniqueId *id, uint64_t purpose,
                      const void *data, size_t bytes, uint64_t proof[2]);

#endif
