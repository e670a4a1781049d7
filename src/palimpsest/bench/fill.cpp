#include "palimpsest/bench/fill.h"

#include <bit>
#include <cstring>
#include <random>
#include <vector>

namespace palimpsest {
namespace {

// Bits of `value` in a 16-bit float, rounded towards zero: enough for noise of ordinary size.
std::uint16_t half_bits(float value, CacheType type) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (type == CacheType::kBF16) return static_cast<std::uint16_t>(bits >> 16);
  const int exponent = static_cast<int>((bits >> 23) & 0xFF) - 127 + 15;
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  if (exponent <= 0) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(exponent) << 10) | ((bits >> 13) & 0x3FFU));
}

std::vector<std::byte> noise(CacheType type, std::size_t bytes, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::byte> out(bytes);
  const auto width = static_cast<std::size_t>(bytes_per_element(type));
  if (type == CacheType::kQ8_0) {  // any bytes do that are small scales, too
    for (auto& byte : out) byte = static_cast<std::byte>(0x20 + generator() % 16);
    return out;
  }
  for (std::size_t at = 0; at + width <= bytes; at += width) {
    const float value = normal(generator);
    const std::uint16_t half = half_bits(value, type);
    std::memcpy(out.data() + at, type == CacheType::kF32 ? static_cast<const void*>(&value) : &half, width);
  }
  return out;
}

}  // namespace

void fill_pages_with_noise(const Cache& cache, std::uint32_t seed) {
  constexpr std::size_t kStep = 64;  // pages take their noise from different places of one block
  std::vector<std::byte> block;
  std::size_t shift = 0;
  for (int l = 0; l < cache.options().layers; ++l) {
    const LayerView view = cache.view(l);
    const std::size_t bytes = page_bytes(view);
    if (block.empty()) block = noise(view.type, bytes + 256 * kStep, seed);
    for (int h = 0; h < view.kv_heads; ++h) {
      const HeadPages& head = view.head[h];
      if (head.page == nullptr) continue;  // the portable path keeps its rows elsewhere
      for (int page = 0; page < head.slots->slots / view.page_size; ++page)
        if (head.page[page] != nullptr) std::memcpy(head.page[page], block.data() + (shift++ % 256) * kStep, bytes);
    }
  }
}

}  // namespace palimpsest
