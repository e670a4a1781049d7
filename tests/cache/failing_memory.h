// Injected allocation failures: operator new of this test program counts its calls and throws std::bad_alloc at the
// n-th. Only calls of the counting thread count.
#pragma once

namespace palimpsest::testing {

// During its lifetime the `n`-th acquisition (1: the next) and all later ones fail. 0: none fails. PagePool's hook may
// call acquire(), so that pages and slabs count, too.
class FailingMemory {
 public:
  explicit FailingMemory(long long n);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  long long acquisitions() const;  // so far
  static bool acquire();           // counts one acquisition; false: it fails
};

}  // namespace palimpsest::testing
