// A decode step's decision and bookkeeping allocate nothing: every allocation of this program is counted.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "palimpsest/evict/evictor.h"

namespace {
std::atomic<long long> allocations = 0;
}

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// Also the one that std::stable_sort asks for its buffer: all that meet in `delete` must come from malloc.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace palimpsest::testing {
namespace {

struct Case {
  const char* method;
  bool shared, track_rank;
  int tokens_a_step;
};

TEST(Allocation, NoneInTheSteadyState) {
  for (const Case& c :
       {Case{"streaming:budget=256", true, false, 1}, Case{"streaming:budget=250", true, true, 1},
        Case{"streaming:budget=256,mechanism=shift", true, true, 1}, Case{"streaming:budget=100", false, true, 1},
        Case{"streaming:budget=256,every=64", true, true, 1}, Case{"streaming:budget=300", true, true, 5}}) {
    const Method method = parse_method(c.method);
    Cache cache({.layers = 2,
                 .kv_heads = 2,
                 .head_dim = 8,
                 .value_dim = 8,
                 .page_size = 64,
                 .mechanism = method.mechanism,
                 .shared = c.shared,
                 .track_rank = c.track_rank});
    Evictor evictor(method);
    const auto step = [&] {
      cache.apply(evictor.plan(cache, c.tokens_a_step));
      cache.insert(c.tokens_a_step);
    };
    for (int i = 0; i < 1000; ++i) step();
    const long long before = allocations;
    for (int i = 0; i < 1000; ++i) step();
    EXPECT_EQ(allocations - before, 0) << c.method;
  }
}

}  // namespace
}  // namespace palimpsest::testing
