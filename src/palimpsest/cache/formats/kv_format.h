// How the keys or the values of 16 slots lie in a tile: all that differs between cache types. A format is one file of
// this folder; formats.h lists them. A tile of keys is [head_dim][16], so that vectors take 16 slots at a time; a tile
// of values is 16 rows. What else a format keeps (scales) lies in the tile, too, and no byte belongs to two slots.
//
// These are the plain functions, one slot at a time: for tests, for what happens rarely, and for formats whose kernels
// store by them. The vector kernels are in attention/format-inl.h.
#pragma once

#include <cstddef>

namespace palimpsest {

inline constexpr int kTile = 16;  // slots of a tile

struct KvFormat {
  const char* name;
  int tile_bytes;  // of one dimension of a tile, its share of scales included
  int group;       // dimensions that are encoded together: head_dim and value_dim are multiples of it
  float largest;   // magnitudes up to it are numbers after encoding

  // Number `index` of an array of this format. nullptr unless each number is encoded by itself.
  float (*load)(const std::byte* data, std::size_t index);
  void (*store)(std::byte* data, std::size_t index, float value);

  // The key or value of one slot of a tile; row [dim].
  void (*encode_key)(const float* row, int dim, std::byte* tile, int lane);
  void (*decode_key)(const std::byte* tile, int lane, int dim, float* row);
  void (*encode_value)(const float* row, int dim, std::byte* tile, int lane);
  void (*decode_value)(const std::byte* tile, int lane, int dim, float* row);

  // Slots from .. from + n - 1 of one tile to slots to .. to + n - 1 of another, or of the same: to < from then.
  void (*relocate_keys)(const std::byte* source, int from, std::byte* target, int to, int n, int dim);
  void (*relocate_values)(const std::byte* source, int from, std::byte* target, int to, int n, int dim);

  double bits() const { return tile_bytes * 8.0 / kTile; }  // of a number
  // Each number is rounded by itself, so that storing once more what was loaded changes nothing.
  bool elementwise() const { return group == 1; }
};

}  // namespace palimpsest
