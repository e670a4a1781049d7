// The layout of the keys or the values of 16 slots in a tile: all that differs between cache types. A format is one
// file of this folder; formats.h lists them. A tile of keys is [head_dim][16], so that a vector holds 16 slots; a tile
// of values is 16 rows. Scales are stored in the tile, too, and no byte belongs to two slots.
//
// These are scalar functions, one slot at a time: for tests, for rare operations, and for formats whose kernels store
// with them. The vector kernels are in attention/format-inl.h.
#pragma once

#include <cstddef>

namespace palimpsest {

inline constexpr int kTile = 16;  // slots of a tile
// The largest magnitude of a key or value in any format: sums of 2^20 products of two stay finite in f32.
inline constexpr float kLargestElement = 1e16F;

struct KvFormat {
  const char* name;
  int tile_bytes;  // bytes per dimension of a tile, including its share of scales
  int group;       // dimensions encoded together: head_dim and value_dim are multiples of it
  float largest;   // largest magnitude that stays finite, at most kLargestElement

  // Element `index` of an array of this format. nullptr unless elementwise().
  float (*load)(const std::byte* data, std::size_t index);
  void (*store)(std::byte* data, std::size_t index, float value);

  // The key or value of one slot of a tile; row [dim].
  void (*encode_key)(const float* row, int dim, std::byte* tile, int lane);
  void (*decode_key)(const std::byte* tile, int lane, int dim, float* row);
  void (*encode_value)(const float* row, int dim, std::byte* tile, int lane);
  void (*decode_value)(const std::byte* tile, int lane, int dim, float* row);

  bool (*fits)(const std::byte* tile, int dim);  // no element exceeds `largest`, and none is NaN

  // Copies slots from .. from + n - 1 of one tile to slots to .. to + n - 1 of another, or of the same if to < from.
  void (*relocate_keys)(const std::byte* source, int from, std::byte* target, int to, int n, int dim);
  void (*relocate_values)(const std::byte* source, int from, std::byte* target, int to, int n, int dim);

  double bits() const { return tile_bytes * 8.0 / kTile; }  // per element
  // Each element is rounded by itself, so storing a loaded value again does not change it.
  bool elementwise() const { return group == 1; }
};

}  // namespace palimpsest
