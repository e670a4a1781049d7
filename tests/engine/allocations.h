// Counts all calls of operator new of this program; one of them can be made to fail. ggml's C code calls malloc, which
// is not counted.
#pragma once

namespace palimpsest::testing {

long long allocations();  // so far, of all threads
long long heap_bytes();   // allocated and not freed
long long heap_peak();    // their maximum since begin_heap_peak()
void begin_heap_peak();

// The n-th allocation from now on (0: the next one) throws std::bad_alloc, once.
void fail_allocation(long long n);
bool allocation_failed();  // since fail_allocation()
void fail_no_allocation();

}  // namespace palimpsest::testing
