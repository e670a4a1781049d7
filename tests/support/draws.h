// Draws of the short forms of tests. They are the same at each run, so that a change fails by its own faults only, and
// other ones with another PALIMPSEST_SEED, or "random". The seed is printed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/test_length.h"

namespace palimpsest::testing {

// Of the running test.
std::mt19937& draws();

// Chooses for consecutive items: choice(i) is drawn for the first item; the next items take the next choices, so that
// every choice has its share of them.
class Interleaved {
 public:
  explicit Interleaved(int choices) : choices_(choices), next_(static_cast<int>(draws()() % choices)) {}
  int next() { return next_++ % choices_; }

 private:
  int choices_, next_;
};

// All in the long form; else `count` of them, drawn, in their order.
template <typename T>
std::vector<T> some_of(const std::vector<T>& all, std::size_t count) {
  if (long_tests() || count >= all.size()) return all;
  std::vector<std::size_t> index(all.size());
  std::iota(index.begin(), index.end(), std::size_t{0});
  std::shuffle(index.begin(), index.end(), draws());
  index.resize(count);
  std::ranges::sort(index);
  std::vector<T> some;
  for (const std::size_t i : index) some.push_back(all[i]);
  return some;
}

// Under a sanitizer (test_length.h) `count` of them, drawn; else all.
template <typename T>
std::vector<T> some_if_sanitized(const std::vector<T>& all, std::size_t count) {
  return some_of(all, test_length(all.size(), all.size(), count));
}

}  // namespace palimpsest::testing
