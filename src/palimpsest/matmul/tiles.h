// Tile registers of AMX, by assembler: callers need no compiler target. The kernel's thread must have the permission of
// may_use_amx (core/cpu_level.h). Source: Intel's manual, volume 1, chapter 18. Internal.
#pragma once

#include <cstddef>
#include <cstdint>

namespace palimpsest {

// Rows and bytes per row of the eight tiles, at most 16 and 64.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void set(int tile, int count, int bytes) {
    rows[tile] = static_cast<std::uint8_t>(count);
    row_bytes[tile] = static_cast<std::uint16_t>(bytes);
  }
};
static_assert(sizeof(TileShapes) == 64);

#if defined(__x86_64__)

// Leaves the thread's shapes as they were: ggml's kernels set them once per thread.
class TileUse {
 public:
  TileUse() { __asm__ volatile("sttilecfg %0" : "=m"(before_)); }
  ~TileUse() { set(before_); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;

  // All tiles are 0 then.
  void set(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }

 private:
  TileShapes before_;
};

template <int kTile>
inline void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Rows are `stride` bytes apart.
template <int kTile>
inline void load_tile(const void* from, std::size_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void store_tile(void* to, std::size_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
// sum[row][n] += the products of a[row] and the four numbers n of each row of b: signed bytes, 32-bit sums.
template <int kSum, int kA, int kB>
inline void add_byte_products() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}
// Likewise of two bf16 numbers; f32 sums.
template <int kSum, int kA, int kB>
inline void add_bf16_products() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

#endif

}  // namespace palimpsest
