// Memory that can be made to fail: operator new of this test program counts its calls and throws std::bad_alloc at the
// n-th. Only calls of the thread that counts are counted.
#pragma once

namespace palimpsest::testing {

// Within its lifetime the `n`-th acquisition from now (1: the next) fails, and so does each that follows. 0: none
// fails. PagePool's hook may call acquire() too, so that pages and slabs are counted with the rest.
class FailingMemory {
 public:
  explicit FailingMemory(long long n);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;

  long long acquisitions() const;  // so far
  static bool acquire();           // counts one; false: it fails
};

}  // namespace palimpsest::testing
