#include "palimpsest/attention/store_token.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "palimpsest/attention/kernels.h"

namespace palimpsest {

void store_token(const LayerView& cache, const HeadPages& head, int slot, const float* key, const float* value) {
  assert(!cache.rotated_half);
  const int lane = slot % kTile, offset = slot % cache.page_size;
  std::byte* const page = head.page[slot / cache.page_size];
  thread_local std::vector<float> rows;  // [16][head_dim], then scratch
  const auto dim = static_cast<std::size_t>(cache.head_dim);
  rows.resize(3 * kTile * dim);
  std::copy_n(key, dim, rows.begin() + static_cast<std::ptrdiff_t>(lane * dim));
  key_kernels_of(cache.key_type)
      .store(page + key_tile(cache, offset), cache.head_dim, 1u << lane, rows.data(), rows.data() + kTile * dim);
  value_kernels_of(cache.value_type).store(page + value_tile(cache, offset), cache.value_dim, lane, value);
}

}  // namespace palimpsest
