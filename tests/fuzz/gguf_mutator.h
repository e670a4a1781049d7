// Damages a GGUF file where it hurts: knows where the lengths, counts, types and offsets are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace palimpsest::testing {

using Bytes = std::vector<std::byte>;

class GgufMutator {
 public:
  explicit GgufMutator(Bytes valid);  // a file without faults, little endian, version 2 or 3
  // The same for the same state of `random`, on every machine.
  Bytes damaged(std::mt19937_64& random) const;

 private:
  struct Field {
    std::size_t at, size;  // a number of 1, 2, 4 or 8 bytes
  };
  void find_fields();
  void damage_once(Bytes& bytes, std::mt19937_64& random) const;

  Bytes valid_;
  std::vector<Field> numbers_;      // lengths, counts, types, dimensions, offsets and values
  std::vector<Field> texts_;        // keys, names and string values: `size` is their length
  std::vector<std::size_t> edges_;  // where one thing ends and the next begins
  std::size_t header_ = 0;          // bytes before the tensors' data
};

}  // namespace palimpsest::testing
