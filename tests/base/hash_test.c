/* SipHash-2-4 against its published test vectors, and what is built on it. */
#include "base/hash.h"
#include "support/suite.h"

#include <stdlib.h>
#include <string.h>

/* Key 00 01 .. 0f, message 00 01 .. (length - 1): the values that Aumasson
 * and Bernstein publish with the algorithm, as little-endian numbers. */
static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
static const uint64_t vectors[64] = {
    0x726fdb47dd0e0e31u, 0x74f839c593dc67fdu, 0x0d6c8009d9a94f5au,
    0x85676696d7fb7e2du, 0xcf2794e0277187b7u, 0x18765564cd99a68du,
    0xcbc9466e58fee3ceu, 0xab0200f58b01d137u, 0x93f5f5799a932462u,
    0x9e0082df0ba9e4b0u, 0x7a5dbbc594ddb9f3u, 0xf4b32f46226bada7u,
    0x751e8fbc860ee5fbu, 0x14ea5627c0843d90u, 0xf723ca908e7af2eeu,
    0xa129ca6149be45e5u, 0x3f2acc7f57c29bdbu, 0x699ae9f52cbe4794u,
    0x4bc1b3f0968dd39cu, 0xbb6dc91da77961bdu, 0xbed65cf21aa2ee98u,
    0xd0f2cbb02e3b67c7u, 0x93536795e3a33e88u, 0xa80c038ccd5ccec8u,
    0xb8ad50c6f649af94u, 0xbce192de8a85b8eau, 0x17d835b85bbb15f3u,
    0x2f2e6163076bcfadu, 0xde4daaaca71dc9a5u, 0xa6a2506687956571u,
    0xad87a3535c49ef28u, 0x32d892fad841c342u, 0x7127512f72f27cceu,
    0xa7f32346f95978e3u, 0x12e0b01abb051238u, 0x15e034d40fa197aeu,
    0x314dffbe0815a3b4u, 0x027990f029623981u, 0xcadcd4e59ef40c4du,
    0x9abfd8766a33735cu, 0x0e3ea96b5304a7d0u, 0xad0c42d6fc585992u,
    0x187306c89bc215a9u, 0xd4a60abcf3792b95u, 0xf935451de4f21df2u,
    0xa9538f0419755787u, 0xdb9acddff56ca510u, 0xd06c98cd5c0975ebu,
    0xe612a3cb9ecba951u, 0xc766e62cfcadaf96u, 0xee64435a9752fe72u,
    0xa192d576b245165au, 0x0a8787bf8ecb74b2u, 0x81b3e73d20b49b6fu,
    0x7fa8220ba3b2eceau, 0x245731c13ca42499u, 0xb78dbfaf3a8d83bdu,
    0xea1ad565322a1a0bu, 0x60e61c23a3795013u, 0x6606d7e446282b93u,
    0x6ca4ecb15c5f91e1u, 0x9f626da15c9625f3u, 0xe51b38608ef25f57u,
    0x958a324ceb064572u};

START_TEST(publishedVectors) {
  for (size_t length = 0; length < 64; length++) {
    /* A block of exactly that length, so that ASan sees a read past it. */
    unsigned char *message = malloc(length ? length : 1);
    ck_assert_ptr_nonnull(message);
    for (size_t i = 0; i < length; i++)
      message[i] = (unsigned char)i;
    ck_assert_msg(lrmoeSipHash(key, message, length) == vectors[length],
                  "length %zu", length);
    free(message);
  }
}
END_TEST

START_TEST(alignmentDoesNotMatter) {
  unsigned char block[80];
  for (size_t offset = 0; offset < 8; offset++) {
    for (size_t i = 0; i < 63; i++)
      block[offset + i] = (unsigned char)i;
    ck_assert_uint_eq(lrmoeSipHash(key, block + offset, 63), vectors[63]);
  }
}
END_TEST

/* Every bit of every byte counts, at every length and alignment, and so does
 * the order of words. */
START_TEST(fastHashSeesEveryBit) {
  unsigned char data[108] = {0};
  for (size_t length = 0; length < 100; length++) {
    unsigned char *text = data + length % 8;
    for (size_t i = 0; i < length; i++)
      text[i] = (unsigned char)(3 * i);
    uint64_t hash = lrmoeHashFast(1, text, length);
    ck_assert_uint_ne(hash, lrmoeHashFast(2, text, length));
    if (length) ck_assert_uint_ne(hash, lrmoeHashFast(1, text, length - 1));
    for (size_t bit = 0; bit < 8 * length; bit++) {
      text[bit / 8] ^= (unsigned char)(1 << bit % 8);
      ck_assert_uint_ne(hash, lrmoeHashFast(1, text, length));
      text[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ck_assert_uint_eq(hash, lrmoeHashFast(1, text, length));
  }
  const uint64_t words[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const uint64_t swapped[] = {2, 1, 3, 4, 5, 6, 7, 8};
  const uint64_t turned[] = {5, 6, 7, 8, 1, 2, 3, 4};
  uint64_t hash = lrmoeHashFast(0, words, sizeof words);
  ck_assert_uint_ne(hash, lrmoeHashFast(0, swapped, sizeof words));
  ck_assert_uint_ne(hash, lrmoeHashFast(0, turned, sizeof words));
}
END_TEST

START_TEST(hashChains) {
  static const char text[] = "what is hashed";
  uint64_t once = lrmoeHash(0, text, sizeof text);
  ck_assert_uint_eq(once, lrmoeHash(0, text, sizeof text));
  ck_assert_uint_ne(once, lrmoeHash(1, text, sizeof text));
  ck_assert_uint_ne(once, lrmoeHash(0, text, sizeof text - 1));
  ck_assert_uint_ne(lrmoeHash(once, text, 4), lrmoeHash(0, text, 4));
}
END_TEST

/* Bijective: no two of many values collide; every input bit moves about half
 * of the output bits. */
START_TEST(mixSpreads) {
  ck_assert_uint_eq(lrmoeMix(0), 0);
  for (int bit = 0; bit < 64; bit++) {
    int numChanged = 0;
    for (uint64_t i = 1; i <= 64; i++) {
      uint64_t value = i * 0x9e3779b97f4a7c15u;
      uint64_t change = lrmoeMix(value) ^ lrmoeMix(value ^ UINT64_C(1) << bit);
      ck_assert_uint_ne(change, 0);
      numChanged += __builtin_popcountll(change);
    }
    ck_assert_int_gt(numChanged, 64 * 26);
    ck_assert_int_lt(numChanged, 64 * 38);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("hash");
  TCase *tcase = tcase_create("hash");
  tcase_add_test(tcase, publishedVectors);
  tcase_add_test(tcase, alignmentDoesNotMatter);
  tcase_add_test(tcase, fastHashSeesEveryBit);
  tcase_add_test(tcase, hashChains);
  tcase_add_test(tcase, mixSpreads);
  suite_add_tcase(suite, tcase);
  return suiteRun(suite);
}
