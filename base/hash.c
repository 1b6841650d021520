/* Hashing: see hash.h. */
#include "base/hash.h"

#include <string.h>

static uint64_t rotate(uint64_t x, int bits) {
  return x << bits | x >> (64 - bits);
}

static void sipRounds(uint64_t v[4], int rounds) {
  for (int i = 0; i < rounds; i++) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
  }
}

static uint64_t loadLittle(const unsigned char *bytes, size_t count) {
  uint64_t word = 0;
  for (size_t i = 0; i < count; i++)
    word |= (uint64_t)bytes[i] << (8 * i);
  return word;
}

uint64_t lrmoeSipHash(const uint64_t key[2], const void *data, size_t bytes) {
  uint64_t v[4] = {key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
                   key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u};
  const unsigned char *next = data;
  for (size_t left = bytes / 8; left > 0; left--, next += 8) {
    uint64_t word = loadLittle(next, 8);
    v[3] ^= word;
    sipRounds(v, 2);
    v[0] ^= word;
  }
  uint64_t tail = loadLittle(next, bytes % 8) | (uint64_t)bytes << 56;
  v[3] ^= tail;
  sipRounds(v, 2);
  v[0] ^= tail;
  v[2] ^= 0xff;
  sipRounds(v, 4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t lrmoeHash(uint64_t seed, const void *data, size_t bytes) {
  const uint64_t key[2] = {seed, 0};
  return lrmoeSipHash(key, data, bytes);
}

static uint64_t loadWord(const unsigned char *bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

static const uint64_t odd = 0x9e3779b97f4a7c15u;

/* A bijection of the lane, and of the word. */
static uint64_t take(uint64_t lane, uint64_t word) {
  return rotate((lane ^ word) * odd, 29);
}

/* Lanes differ in their first value, so that words which change places are
 * seen.  They are variables, not an array, to stay in registers: eight hide how
 * long a product takes. */
uint64_t lrmoeHashFast(uint64_t seed, const void *data, size_t bytes) {
  const unsigned char *next = data;
  uint64_t a = lrmoeMix(seed), b = a + odd, c = b + odd, d = c + odd;
  uint64_t e = d + odd, f = e + odd, g = f + odd, h = g + odd;
  size_t left = bytes;
  for (; left >= 64; left -= 64, next += 64) {
    a = take(a, loadWord(next));
    b = take(b, loadWord(next + 8));
    c = take(c, loadWord(next + 16));
    d = take(d, loadWord(next + 24));
    e = take(e, loadWord(next + 32));
    f = take(f, loadWord(next + 40));
    g = take(g, loadWord(next + 48));
    h = take(h, loadWord(next + 56));
  }
  uint64_t hash = take(take(take(take(seed ^ bytes, a), b), c), d);
  hash = take(take(take(take(hash, e), f), g), h);
  for (; left >= 8; left -= 8, next += 8)
    hash = take(hash, loadWord(next));
  for (; left > 0; left--, next++)
    hash = take(hash, *next);
  return lrmoeMix(hash);
}

uint64_t lrmoeMix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdu;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53u;
  return value ^ value >> 33;
}
