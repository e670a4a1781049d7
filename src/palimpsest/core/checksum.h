// A guard against damage, not against an enemy: in the manner of FNV-1a, over words of eight bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace palimpsest {

class Checksum {
 public:
  void add(std::span<const std::byte> data) {
    for (const std::byte b : data) {
      word_ |= static_cast<std::uint64_t>(b) << (8 * filled_);
      if (++filled_ == 8) mix();
    }
  }
  std::uint64_t value() {
    if (filled_ > 0) mix();
    return hash_;
  }

 private:
  void mix() {
    hash_ = (hash_ ^ word_) * 0x100000001B3u;
    hash_ ^= hash_ >> 29;
    word_ = 0;
    filled_ = 0;
  }
  std::uint64_t hash_ = 0xCBF29CE484222325u, word_ = 0;
  int filled_ = 0;
};

}  // namespace palimpsest
