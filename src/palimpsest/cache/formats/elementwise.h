// Elementwise formats, which encode each number by itself: f32, f16, bf16.
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>

#include "palimpsest/cache/formats/kv_format.h"
#include "palimpsest/cache/formats/lanes.h"

namespace palimpsest {

// Codec: Bits (an unsigned integer, the sign first), Bits encode(float), float decode(Bits), float kLargest.
template <typename Codec>
struct Elementwise {
  using Bits = typename Codec::Bits;

  static float load(const std::byte* data, std::size_t index) {
    Bits bits;
    std::memcpy(&bits, data + index * sizeof bits, sizeof bits);
    return Codec::decode(bits);
  }
  static void store(std::byte* data, std::size_t index, float value) {
    const Bits bits = Codec::encode(value);
    std::memcpy(data + index * sizeof bits, &bits, sizeof bits);
  }
  static std::size_t at_key(int lane, int d) { return static_cast<std::size_t>(d * kTile + lane); }
  static std::size_t at_value(int lane, int dim, int d) { return static_cast<std::size_t>(lane * dim + d); }

  static void encode_key(const float* row, int dim, std::byte* tile, int lane) {
    for (int d = 0; d < dim; ++d) store(tile, at_key(lane, d), row[d]);
  }
  static void decode_key(const std::byte* tile, int lane, int dim, float* row) {
    for (int d = 0; d < dim; ++d) row[d] = load(tile, at_key(lane, d));
  }
  static void encode_value(const float* row, int dim, std::byte* tile, int lane) {
    for (int d = 0; d < dim; ++d) store(tile, at_value(lane, dim, d), row[d]);
  }
  static void decode_value(const std::byte* tile, int lane, int dim, float* row) {
    for (int d = 0; d < dim; ++d) row[d] = load(tile, at_value(lane, dim, d));
  }
  static bool fits(const std::byte* tile, int dim) {
    constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() >> 1;  // without the sign
    const Bits max = Codec::encode(Codec::kLargest);
    bool all = true;
    for (std::size_t i = 0; i < static_cast<std::size_t>(dim * kTile); ++i) {
      Bits bits;
      std::memcpy(&bits, tile + i * sizeof bits, sizeof bits);
      all &= (bits & kMagnitude) <= max;
    }
    return all;
  }
  static void relocate_values(const std::byte* source, int from, std::byte* target, int to, int n, int dim) {
    std::memmove(target + at_value(to, dim, 0) * sizeof(Bits), source + at_value(from, dim, 0) * sizeof(Bits),
                 at_value(n, dim, 0) * sizeof(Bits));
  }

  static constexpr KvFormat format(const char* name) {
    return {.name = name,
            .tile_bytes = kTile * static_cast<int>(sizeof(Bits)),
            .group = 1,
            .largest = Codec::kLargest,
            .load = load,
            .store = store,
            .encode_key = encode_key,
            .decode_key = decode_key,
            .encode_value = encode_value,
            .decode_value = decode_value,
            .fits = fits,
            .relocate_keys = move_lanes<Bits>,
            .relocate_values = relocate_values};
  }
};

}  // namespace palimpsest
