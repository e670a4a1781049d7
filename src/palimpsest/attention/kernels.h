// The kernels of one format (cache/formats), compiled once per instruction set; the best set of this machine is chosen
// at run time. Kernels of keys and of values are independent, so a cache may store keys in one format and values in
// another: attention combines them block by block (attend-inl.h). One small file per format (kernels_f16.cpp ...).
// Internal.
//
// Include it before any Highway header.
#pragma once

#include "palimpsest/core/vector_targets.h"  // first

#include "palimpsest/attention/unit.h"

namespace palimpsest {

struct KeyKernels {
  // Encodes the query of one row, which is in UnitMemory::row, rotated and scaled; nullptr: nothing to do.
  void (*encode_query)(const Unit& unit, int row, bool of_sinks);
  // Dot products of a unit's rows with a block's keys, read in the stored format, into UnitMemory::score; the second
  // rotates the keys by Block::rope_tile in registers (nullptr: not in this format).
  void (*dot)(const Unit& unit, const Block& block, const Prefetch& prefetch);
  void (*dot_rotating)(const Unit& unit, const Block& block, const Prefetch& prefetch);
  // Converts a tile to f32, [dim][16]; the second rotates it too. `half`: see Unit::half.
  void (*widen)(const std::byte* tile, int dim, float* out);
  void (*rotate)(const AttentionShape& shape, const std::byte* tile, std::ptrdiff_t half, const float* rope_tiles,
                 float* out);
  // Stores the keys of the lanes in `lanes` (bit l): lane l is row l of rows [16][dim]. `scratch`: 2 * 16 * dim floats.
  void (*store)(std::byte* tile, int dim, std::uint32_t lanes, const float* rows, float* scratch);
  // For elementwise formats, else nullptr: converts a tile from f32; rotates the first 2 * pairs dimensions of lanes
  // begin .. end - 1 in place by one row of cosines and sines.
  void (*narrow)(const float* tile, int dim, std::byte* out);
  void (*rotate_lanes)(std::byte* tile, RopeKind rope, int pairs, int begin, int end, const float* cos_sin);
};

struct ValueKernels {
  // Multiplies UnitMemory::value by UnitMemory::correction and adds a block's values, read in the stored format, times
  // the weights in UnitMemory::score.
  void (*add)(const Unit& unit, const Block& block, const Prefetch& prefetch);
  // Converts the rows in `used` (bit s) of a tile to f32, `stride` floats apart.
  void (*widen)(const std::byte* tile, int dim, std::uint32_t used, float* out, int stride);
  void (*store)(std::byte* tile, int dim, int lane, const float* row);
  // A weighted sum of what `add` and `widen` give becomes one of values; nullptr: it is one.
  void (*finish)(float* row, int dim);
};

struct FormatKernels {
  KeyKernels key;
  ValueKernels value;
};

#define PALIMPSEST_TYPE(enumerator, name) const FormatKernels& name##_kernels();
PALIMPSEST_CACHE_TYPES(PALIMPSEST_TYPE)
#undef PALIMPSEST_TYPE
const FormatKernels& kernels_of(CacheType type);

}  // namespace palimpsest
