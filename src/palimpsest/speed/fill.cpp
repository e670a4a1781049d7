#include "palimpsest/speed/fill.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace palimpsest {
namespace {

// A page of standard normal noise.
std::vector<std::byte> noise(const LayerView& view, std::mt19937& generator) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<std::byte> page(page_bytes(view));
  std::vector<float> key(static_cast<std::size_t>(view.head_dim)), value(static_cast<std::size_t>(view.value_dim));
  for (int slot = 0; slot < view.page_size; ++slot) {
    for (float& x : key) x = normal(generator);
    for (float& x : value) x = normal(generator);
    store_key(view, page.data(), slot, key.data());
    if (view.rotated_half) store_key(view, page.data() + half_offset(view), slot, key.data());
    store_value(view, page.data(), slot, value.data());
  }
  return page;
}

}  // namespace

void fill_pages_with_noise(const Cache& cache, std::uint32_t seed) {
  constexpr std::size_t kDifferent = 16;  // pages; the others are copies
  std::mt19937 generator(seed);
  std::map<std::pair<int, int>, std::vector<std::vector<std::byte>>> pages_of;  // by widths of keys and values
  std::size_t next = 0;
  for (int l = 0; l < cache.geometry().layers(); ++l) {
    const LayerView view = cache.view(l);
    std::vector<std::vector<std::byte>>& pages = pages_of[{view.head_dim, view.value_dim}];
    while (pages.size() < kDifferent) pages.push_back(noise(view, generator));
    for (int h = 0; h < view.kv_heads; ++h) {
      const HeadPages& head = view.head[h];
      if (head.page.id == nullptr) continue;  // the portable path has no host pages
      for (int page = 0; page < head.slots->slots / view.page_size; ++page) {
        if (head.page[page] == nullptr) continue;
        std::ranges::copy(pages[next++ % kDifferent], head.page[page]);
      }
    }
  }
}

}  // namespace palimpsest
