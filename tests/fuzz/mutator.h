// Damages a file at its lengths, counts, types, offsets and values, which a Layout lists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace palimpsest::testing {

using Bytes = std::vector<std::byte>;

struct Layout {
  struct Field {
    std::size_t at, size;
  };
  std::vector<Field> numbers = {};      // of 1, 2, 4 or 8 bytes, little endian
  std::vector<Field> texts = {};        // `size` is their length
  std::vector<std::size_t> edges = {};  // boundaries between fields or sections
  std::size_t header = 0;               // bytes before the bulk of data
};

class Mutator {
 public:
  Mutator(Bytes valid, Layout layout);  // a valid file
  // Depends only on the state of `random`, on every machine.
  Bytes damaged(std::mt19937_64& random) const;

 private:
  void damage_once(Bytes& bytes, std::mt19937_64& random) const;

  Bytes valid_;
  Layout layout_;
};

}  // namespace palimpsest::testing
