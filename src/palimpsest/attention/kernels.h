// The kernels of one format (cache/formats), compiled once per instruction set; the best that this machine has is
// chosen at run time. Those of keys and those of values know nothing of each other, so that a cache may keep keys in
// one format and values in another: attention meets in them block by block (attend-inl.h). One small file for each
// format (kernels_f16.cpp ...). Internal.
//
// Include it before anything of Highway: three sets on x86-64, SSE2 (what every machine has), AVX2 and AVX-512. The
// ones between bring nothing here. On Arm: NEON; vectors of unknown length are left out.
#pragma once

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | HWY_AVX10_2 | HWY_ALL_SVE | HWY_RVV)

#include "palimpsest/attention/unit.h"

namespace palimpsest {

struct KeyKernels {
  // Products of a unit's rows with a block's keys, which are read as they are stored, into UnitMemory::score; the
  // second rotates them by Block::rotate in registers (nullptr: not in this format).
  void (*dot)(const Unit& unit, const Block& block, const Prefetch& prefetch);
  void (*dot_rotating)(const Unit& unit, const Block& block, const Prefetch& prefetch);
  // A tile in f32, [dim][16]; the second rotates it. `half`: as Unit::half.
  void (*widen)(const std::byte* tile, int dim, float* out);
  void (*rotate)(const AttentionShape& shape, const std::byte* tile, std::ptrdiff_t half, const float* rope_tiles,
                 float* out);
  // The keys of the lanes in `lanes` (bit l): that of lane l is row l of rows [16][dim]. `scratch`: 2 * 16 * dim
  // floats.
  void (*store)(std::byte* tile, int dim, std::uint32_t lanes, const float* rows, float* scratch);
  // Of formats that round each number by itself, else nullptr: a tile of f32 into one of this format; and the first 2 *
  // pairs dimensions of lanes begin .. end - 1, rotated where they lie by one row of cosines and sines.
  void (*narrow)(const float* tile, int dim, std::byte* out);
  void (*rotate_lanes)(std::byte* tile, RopeKind rope, int pairs, int begin, int end, const float* cos_sin);
};

struct ValueKernels {
  // Adds a block's values, as they are stored, times the weights in UnitMemory::score, to UnitMemory::value, which is
  // scaled by UnitMemory::correction first.
  void (*add)(const Unit& unit, const Block& block, const Prefetch& prefetch);
  // The rows in `used` (bit s) of a tile in f32, `stride` floats apart.
  void (*widen)(const std::byte* tile, int dim, std::uint32_t used, float* out, int stride);
  void (*store)(std::byte* tile, int dim, int lane, const float* row);
};

struct FormatKernels {
  KeyKernels key;
  ValueKernels value;
};

const FormatKernels& f32_kernels();
const FormatKernels& f16_kernels();
const FormatKernels& bf16_kernels();
const FormatKernels& q8_0_kernels();
const FormatKernels& kernels_of(CacheType type);

}  // namespace palimpsest
