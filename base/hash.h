/* Hashing: SipHash-2-4 (Aumasson and Bernstein, 2012) with a 128-bit key and a
 * 64-bit result.  With a secret key it proves knowledge of the key; with the
 * zero key it is a check sum. */
#ifndef LRMOE_BASE_HASH_H
#define LRMOE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t lrmoeSipHash(const uint64_t key[2], const void *data, size_t bytes);

/* Check sum of data, chained from `seed`. */
uint64_t lrmoeHash(uint64_t seed, const void *data, size_t bytes);

/* The same in a fraction of the time, for megabytes that no adversary made:
 * eight lanes of multiply and rotate. */
uint64_t lrmoeHashFast(uint64_t seed, const void *data, size_t bytes);

/* Mixes a 64-bit value into a well-spread one (a finaliser: bijective). */
uint64_t lrmoeMix(uint64_t value);

#endif
