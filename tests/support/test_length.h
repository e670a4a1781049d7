// How long a test runs: the short form by default, the long one with PALIMPSEST_LONG=1 (`make test-long`), the shortest
// under a sanitizer.
#pragma once

#include <cstdlib>

namespace palimpsest::testing {

inline bool long_tests() {
  const char* const text = std::getenv("PALIMPSEST_LONG");
  return text != nullptr && *text != '\0' && *text != '0';
}

// Tokens, runs or steps of this run of the test.
template <typename Count>
Count test_length([[maybe_unused]] Count normal, Count of_long, [[maybe_unused]] Count sanitized) {
  if (long_tests()) return of_long;
#ifdef PALIMPSEST_SANITIZED
  return sanitized;
#else
  return normal;
#endif
}

}  // namespace palimpsest::testing
