// The key and the value in one slot of a page, as rows.
#pragma once

#include <vector>

#include "palimpsest/cache/view.h"

namespace palimpsest {

inline std::vector<float> key_in(const LayerView& view, const std::byte* page, int offset) {
  std::vector<float> row(static_cast<std::size_t>(view.head_dim));
  load_key(view, page, offset, row.data());
  return row;
}
inline std::vector<float> value_in(const LayerView& view, const std::byte* page, int offset) {
  std::vector<float> row(static_cast<std::size_t>(view.value_dim));
  load_value(view, page, offset, row.data());
  return row;
}
// A row after encoding and decoding in a format.
inline std::vector<float> rounded_to(CacheType type, std::vector<float> row) {
  const KvFormat& format = kv_format(type);
  const int dim = static_cast<int>(row.size());
  std::vector<std::byte> tile(static_cast<std::size_t>(dim * format.tile_bytes));
  format.encode_value(row.data(), dim, tile.data(), 3);
  format.decode_value(tile.data(), 3, dim, row.data());
  return row;
}

}  // namespace palimpsest
