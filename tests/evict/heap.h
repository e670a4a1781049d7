// Counters of operator new in this program (allocation_test.cpp).
#pragma once

#include <atomic>

namespace palimpsest::testing {

extern std::atomic<long long> heap_allocations;  // so far
extern std::atomic<long long> heap_bytes;        // now
extern std::atomic<long long> heap_peak;         // maximum since it was last set

}  // namespace palimpsest::testing
