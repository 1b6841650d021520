/* Bus addresses, and what links move by the documents of their makers. */
#include "topo/machine.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Hex digits up to a stop character, at most `max`; NULL if there are none. */
static const char *parseHex(const char *text, int max, int64_t *value) {
  int digits = 0;
  *value = 0;
  for (; isxdigit((unsigned char)*text); text++, digits++) {
    if (digits == max) return NULL;
    int digit = isdigit((unsigned char)*text)
                    ? *text - '0'
                    : tolower((unsigned char)*text) - 'a' + 10;
    *value = *value * 16 + digit;
  }
  return digits ? text : NULL;
}

int64_t lrmoeBusParse(const char *text) {
  int64_t parts[4] = {0}; /* domain, bus, device, function */
  const char *next = parseHex(text, 8, &parts[1]);
  if (!next || *next != ':') return LRMOE_NO_BUS;
  next = parseHex(next + 1, 2, &parts[2]);
  if (next && *next == ':') {
    parts[0] = parts[1];
    parts[1] = parts[2];
    next = parseHex(next + 1, 2, &parts[2]);
  }
  if (next && *next == '.') next = parseHex(next + 1, 1, &parts[3]);
  if (!next || *next || parts[1] > 0xff || parts[2] > 0x1f || parts[3] > 7)
    return LRMOE_NO_BUS;
  return parts[0] << 16 | parts[1] << 8 | parts[2] << 3 | parts[3];
}

void lrmoeBusPrint(int64_t bus, char *text) {
  if (bus == LRMOE_NO_BUS)
    *text = '\0';
  else
    snprintf(text, lrmoeBusBytes, "%04x:%02x:%02x.%x",
             (unsigned)((uint64_t)bus >> 16 & 0xffffffff),
             (unsigned)(bus >> 8 & 0xff), (unsigned)(bus >> 3 & 0x1f),
             (unsigned)(bus & 7));
}

/* PCI Express base specifications: 8b/10b up to 5 GT/s, 128b/130b up to 32,
 * flits of 236 payload bytes in 256 from 64 on. */
int64_t lrmoePciRate(int32_t tenthsOfGt, int32_t width) {
  if (tenthsOfGt <= 0 || width <= 0 || width > 32) return 0;
  int64_t bits = (int64_t)tenthsOfGt * 100000000 * width;
  if (tenthsOfGt <= 50) return bits / 10;
  if (tenthsOfGt <= 320) return bits / 8 * 128 / 130;
  return bits / 8 * 236 / 256;
}

/* NVIDIA's architecture papers: NVLink 1 (P100) 20 GB/s, 2 (V100) and 3 (A100)
 * 25, on GA102 14.0625 (four links make 112.5 both ways), 4 (H100) 25, 5
 * (B200) 50; later ones are not public. */
int64_t lrmoeNvlinkRate(int32_t arch) {
  if (arch >= 60 && arch < 70) return 20000000000;
  if (arch == 86) return 14062500000;
  if (arch >= 70 && arch < 100) return 25000000000;
  if (arch >= 100 && arch < 120) return 50000000000;
  return 0;
}

/* AMD's data sheets, one direction: MI50/MI60 and MI100 92 GB/s both ways a
 * link, MI200 100, MI300 128. */
int64_t lrmoeXgmiRate(int32_t arch) {
  switch (arch) {
  case 0x906:
  case 0x908:
    return 46000000000;
  case 0x90a:
    return 50000000000;
  case 0x940:
  case 0x941:
  case 0x942:
  case 0x950:
    return 64000000000;
  default:
    return 0;
  }
}

static bool is(const char *text, const char *wanted) {
  return text && strcmp(text, wanted) == 0;
}

/* The figures that NCCL works with (GB/s between two sockets). */
int64_t lrmoeCpuRate(const struct lrmoeCpu *cpu) {
  static const int64_t gb = 1000000000;
  if (is(cpu->arch, "ppc64") || is(cpu->arch, "ppc64le")) return 32 * gb;
  if (is(cpu->arch, "arm64") || is(cpu->arch, "aarch64")) return 6 * gb;
  if (is(cpu->vendor, "AuthenticAMD")) return 16 * gb;
  if (!is(cpu->vendor, "GenuineIntel") || cpu->family != 6) return 0;
  if (cpu->model >= 173) return 40 * gb; /* Granite and Emerald Rapids */
  if (cpu->model >= 143) return 22 * gb; /* Sapphire Rapids */
  return cpu->model >= 85 ? 10 * gb : 6 * gb;
}
