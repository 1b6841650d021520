/* Device memory: mappings that only kernels and copies can touch.
 *
 * Every allocation has pages of its own between two that are never mapped,
 * and ends as near to the second as 256-byte alignment allows; the bytes
 * between, at most 255, are poison for ASan and are looked at when the
 * allocation is freed.  It starts as 0xA5.  What is freed is unmapped, and its
 * addresses are not used again for long. */
#ifndef LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_MEMORY_H
#define LRMOE_TESTS_SUPPORT_SIMT_RUNTIME_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace simt {

constexpr int pinnedHost = -1; /* in the place of a device */

/* Gives nullptr when the device is full.  Flat memory: devices that allocate
 * the same sequence of sizes get addresses that lie 4 GiB apart, as long as
 * there are such. */
void *memoryAllocate(size_t bytes, int device, bool isFlat = false);

/* False when start is no live allocation of that kind. */
bool memoryFree(void *start, bool isPinned);

/* The device of an address, or pinnedHost; false for the host's own memory. */
bool memoryOwner(const void *address, int *device);

/* Whether all bytes lie in one live allocation. */
bool memoryIsLive(const void *address, size_t bytes);

/* "" when all bytes lie in one live allocation, or what is wrong. */
std::string memoryCheck(const void *address, size_t bytes);

/* What an address is to device memory: "4 bytes past the end of ..."; "" when
 * it is nothing to it. */
std::string memoryDescribe(const void *address);

/* Of the live allocation that starts there; 0 when there is none. */
size_t memoryBytes(const void *start);

/* "byte 4 of device memory of 256 bytes". */
std::string memoryPlace(const void *address);

/* The shadow (order.h) of the page at an address, of what is alive there;
 * nullptr for other memory. */
void *memoryShadowOfPage(uintptr_t page);

void memoryInfo(int device, size_t *freeBytes, size_t *totalBytes);

/* Frees all of a device; its memory is gone. */
void memoryReset(int device);

} // namespace simt

#endif
