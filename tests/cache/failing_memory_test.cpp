#include "tests/cache/failing_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

namespace {

thread_local bool counting = false;
thread_local long long count = 0, fails_from = 0;

void* allocate(std::size_t size) noexcept {
  return palimpsest::testing::FailingMemory::acquire() ? std::malloc(size == 0 ? 1 : size) : nullptr;
}

}  // namespace

void* operator new(std::size_t size) {
  if (void* memory = allocate(size)) return memory;
  throw std::bad_alloc();
}
// Also operator new(nothrow), which std::stable_sort uses: `delete` frees with free(), so all must use malloc.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
// Not inlined: GCC would warn that free() gets what operator new returned.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace palimpsest::testing {

FailingMemory::FailingMemory(long long n) {
  count = 0;
  fails_from = n;
  counting = true;
}

FailingMemory::~FailingMemory() {
  counting = false;
}

long long FailingMemory::acquisitions() const {
  return count;
}

bool FailingMemory::acquire() {
  if (!counting) return true;
  ++count;
  return fails_from == 0 || count < fails_from;
}

namespace {

TEST(FailingMemory, FailsFromTheNthOn) {
  const FailingMemory memory(2);
  void* const first = ::operator new(8);
  EXPECT_THROW(static_cast<void>(::operator new(8)), std::bad_alloc);
  EXPECT_EQ(memory.acquisitions(), 2);
  ::operator delete(first);
}

}  // namespace
}  // namespace palimpsest::testing
