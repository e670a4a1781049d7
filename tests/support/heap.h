#pragma once

#include <cstddef>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace palimpsest::testing {

// Bytes of the heap that are in use; 0 where the C library does not count them.
inline std::size_t heap_in_use() {
#if defined(__GLIBC__) && !defined(PALIMPSEST_SANITIZED)
  const auto counts = mallinfo2();
  return counts.uordblks + counts.hblkhd;
#else
  return 0;
#endif
}

}  // namespace palimpsest::testing
