// A checksum against accidental damage, not against attacks: similar to FNV-1a, over little-endian 8-byte words, the
// last one padded with zeros. Its values are part of the file formats of snapshots and scorers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace palimpsest {

class Checksum {
 public:
  void add(std::span<const std::byte> data) {
    static_assert(std::endian::native == std::endian::little);
    while (filled_ > 0 && !data.empty()) data = take_byte(data);
    std::uint64_t hash = hash_;  // in a register
    for (; data.size() >= 8; data = data.subspan(8)) {
      std::uint64_t word = 0;
      std::memcpy(&word, data.data(), 8);
      hash = mixed(hash, word);
    }
    hash_ = hash;
    while (!data.empty()) data = take_byte(data);
  }
  // The checksum of all bytes so far. More bytes may be added only if their number is a multiple of 8.
  std::uint64_t value() {
    if (filled_ > 0) mix();
    return hash_;
  }

 private:
  static std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
    hash = (hash ^ word) * 0x100000001B3u;
    return hash ^ (hash >> 29);
  }
  void mix() {
    hash_ = mixed(hash_, word_);
    word_ = 0;
    filled_ = 0;
  }
  std::span<const std::byte> take_byte(std::span<const std::byte> data) {
    word_ |= static_cast<std::uint64_t>(data.front()) << (8 * filled_);
    if (++filled_ == 8) mix();
    return data.subspan(1);
  }
  std::uint64_t hash_ = 0xCBF29CE484222325u, word_ = 0;
  int filled_ = 0;
};

}  // namespace palimpsest
