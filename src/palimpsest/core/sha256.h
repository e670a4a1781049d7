// SHA-256 (FIPS 180-4), of a text or of bytes that arrive in pieces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace palimpsest {

class Sha256 {
 public:
  void add(std::string_view data);
  std::string hex() const;  // of all bytes so far: 64 lower-case hexadecimal digits

 private:
  using State = std::array<std::uint32_t, 8>;
  static void add_block(State& state, std::string_view block);
  State state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string rest_;  // shorter than a block
  std::uint64_t bytes_ = 0;
};

std::string sha256_hex(std::string_view data);

}  // namespace palimpsest
