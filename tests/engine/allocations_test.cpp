#include "tests/engine/allocations.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long long> count = 0, failing = -1, bytes = 0, peak = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  const long long n = count.fetch_add(1, std::memory_order_relaxed);
  if (n == failing.load(std::memory_order_relaxed)) return nullptr;
  if (size == 0) size = 1;
  void* const memory = alignment == 0 ? std::malloc(size)
                                      : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) return nullptr;
  const long long now = bytes += static_cast<long long>(malloc_usable_size(memory));
  for (long long before = peak; now > before && !peak.compare_exchange_weak(before, now);) {
  }
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) bytes -= static_cast<long long>(malloc_usable_size(memory));
  std::free(memory);
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = allocate(size, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate_or_throw(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
// Also operator new(nothrow), which std::stable_sort uses: `delete` frees with free(), so all must use malloc.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size, 0);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  release(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  release(memory);
}

namespace palimpsest::testing {

long long allocations() {
  return count;
}

long long heap_bytes() {
  return bytes;
}

long long heap_peak() {
  return peak;
}

void begin_heap_peak() {
  peak = bytes.load();
}

void fail_allocation(long long n) {
  failing = count + n;
}

bool allocation_failed() {
  return failing >= 0 && count > failing;
}

void fail_no_allocation() {
  failing = -1;
}

TEST(Allocations, AreCountedAndFail) {
  const long long before = allocations();
  ::operator delete(::operator new(1));  // direct call: the compiler may remove a new-expression
  EXPECT_EQ(allocations(), before + 1);
  fail_allocation(0);
  EXPECT_FALSE(allocation_failed());
  EXPECT_THROW(::operator delete(::operator new(1)), std::bad_alloc);
  EXPECT_TRUE(allocation_failed());
  fail_no_allocation();
}

}  // namespace palimpsest::testing
