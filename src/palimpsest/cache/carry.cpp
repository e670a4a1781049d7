#include "palimpsest/cache/carry.h"

#include <cstring>

namespace palimpsest {
namespace {

// How many of `moves` are neighbours that stay inside one K tile on both sides: they are carried together, because a
// tile keeps neighbouring slots' elements side by side.
std::size_t run_length(std::span<const Move> moves) {
  std::size_t n = 1;
  while (n < moves.size() && moves[n].from == moves[n - 1].from + 1 && moves[n].to == moves[n - 1].to + 1 &&
         moves[n].from % kTile != 0 && moves[n].to % kTile != 0)
    ++n;
  return n;
}

}  // namespace

void carry(const LayerView& shape, std::byte* const* page, std::span<const Move> moves) {
  const auto element = static_cast<std::size_t>(bytes_per_element(shape.type));
  const std::size_t values = value_offset(shape);
  const std::size_t row = static_cast<std::size_t>(shape.value_dim) * element;
  while (!moves.empty()) {
    const std::size_t n = run_length(moves);
    const Move first = moves.front();
    const std::byte* from = page[first.from / shape.page_size];
    std::byte* to = page[first.to / shape.page_size];
    const int from_offset = first.from % shape.page_size, to_offset = first.to % shape.page_size;
    for (int d = 0; d < shape.head_dim; ++d)
      std::memmove(to + key_index(shape, to_offset, d) * element, from + key_index(shape, from_offset, d) * element,
                   n * element);
    std::memmove(to + values + value_index(shape, to_offset) * element,
                 from + values + value_index(shape, from_offset) * element, n * row);
    moves = moves.subspan(n);
  }
}

}  // namespace palimpsest
