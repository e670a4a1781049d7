// The eviction decision and bookkeeping of a decode step allocate nothing. Counts all allocations of this program.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "palimpsest/evict/evictor.h"
#include "tests/support/evictor_of.h"

namespace palimpsest::testing {
namespace {

std::atomic<long long> heap_allocations = 0;

void* counted(std::size_t size) noexcept {
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory != nullptr) ++heap_allocations;
  return memory;
}

}  // namespace
}  // namespace palimpsest::testing

void* operator new(std::size_t size) {
  if (void* memory = palimpsest::testing::counted(size)) return memory;
  throw std::bad_alloc();
}
// Also operator new(nothrow), which std::stable_sort uses: `delete` frees with free(), so all must use malloc.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return palimpsest::testing::counted(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace palimpsest::testing {
namespace {

struct PlanCase {
  const char* method;
  bool shared, track_rank;
  int tokens_a_step;
};

TEST(Allocation, NoneInTheSteadyState) {
  for (const PlanCase& c :
       {PlanCase{"streaming:budget=256", true, false, 1}, PlanCase{"streaming:budget=250", true, true, 1},
        PlanCase{"streaming:budget=256,mechanism=shift", true, true, 1},
        PlanCase{"streaming:budget=100", false, true, 1}, PlanCase{"streaming:budget=256,every=64", true, true, 1},
        PlanCase{"streaming:budget=300", true, true, 5}}) {
    const Method method = parse_method(c.method);
    Cache cache({.geometry = HeadGeometry::uniform(2, 2, 8, 8),
                 .page_size = 64,
                 .mechanism = method.mechanism,
                 .shared = c.shared,
                 .track_rank = c.track_rank});
    Evictor evictor = evictor_of(method);
    const auto step = [&] {
      cache.apply(evictor.plan(cache, c.tokens_a_step));
      cache.insert(c.tokens_a_step);
    };
    for (int i = 0; i < 1000; ++i) step();
    const long long before = heap_allocations;
    for (int i = 0; i < 1000; ++i) step();
    EXPECT_EQ(heap_allocations - before, 0) << c.method;
  }
}

}  // namespace
}  // namespace palimpsest::testing
