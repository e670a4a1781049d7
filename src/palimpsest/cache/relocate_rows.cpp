#include "palimpsest/cache/relocate_rows.h"

#include <cstddef>

namespace palimpsest {
namespace {

// Number of leading `moves` of neighbouring slots within one K tile on both sides: they move together, because a tile
// stores neighbouring slots' elements next to each other.
int run_length(std::span<const Move> moves) {
  std::size_t n = 1;
  while (n < moves.size() && moves[n].from == moves[n - 1].from + 1 && moves[n].to == moves[n - 1].to + 1 &&
         moves[n].from % kTile != 0 && moves[n].to % kTile != 0)
    ++n;
  return static_cast<int>(n);
}

}  // namespace

void relocate_rows(const LayerView& shape, const BlockTable& source, const BlockTable& target,
                   std::span<const Move> moves) {
  const KvFormat &keys = kv_format(shape.key_type), &values = kv_format(shape.value_type);
  while (!moves.empty()) {
    const int n = run_length(moves), from = moves.front().from, to = moves.front().to;
    const std::byte* const source_page = source[from / shape.page_size];
    std::byte* const target_page = target[to / shape.page_size];
    const int from_lane = from % kTile, to_lane = to % kTile;
    const auto relocate = [&](auto how, std::size_t at, std::size_t then, int dim) {
      how(source_page + at, from_lane, target_page + then, to_lane, n, dim);
    };
    const std::size_t key = key_tile(shape, from % shape.page_size), new_key = key_tile(shape, to % shape.page_size);
    relocate(keys.relocate_keys, key, new_key, shape.head_dim);
    if (shape.rotated_half)
      relocate(keys.relocate_keys, half_offset(shape) + key, half_offset(shape) + new_key, shape.head_dim);
    relocate(values.relocate_values, value_tile(shape, from % shape.page_size), value_tile(shape, to % shape.page_size),
             shape.value_dim);
    moves = moves.subspan(static_cast<std::size_t>(n));
  }
}

}  // namespace palimpsest
