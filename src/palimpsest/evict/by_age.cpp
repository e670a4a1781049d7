#include "palimpsest/evict/by_age.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace palimpsest {

void order_by_age(const PositionView& position, std::vector<int>& order) {
  struct Token {
    std::uint64_t age;
    int slot;
  };
  thread_local std::vector<Token> tokens, sorted;
  tokens.clear();
  Position min = std::numeric_limits<Position>::max(), greatest = 0;
  for (std::size_t slot = 0; slot < position.size(); ++slot) {
    const Position p = position[slot];
    if (p == kNoPosition) continue;
    tokens.push_back({static_cast<std::uint64_t>(p), static_cast<int>(slot)});
    min = std::min(min, p);
    greatest = std::max(greatest, p);
  }
  for (Token& token : tokens) token.age -= static_cast<std::uint64_t>(min);
  sorted.resize(tokens.size());
  for (int bit = 0; !tokens.empty() && static_cast<std::uint64_t>(greatest - min) >> bit != 0; bit += 8) {
    std::array<std::size_t, 257> first{};
    for (const Token& token : tokens) ++first[(token.age >> bit & 0xff) + 1];
    for (std::size_t digit = 1; digit < first.size(); ++digit) first[digit] += first[digit - 1];
    for (const Token& token : tokens) sorted[first[token.age >> bit & 0xff]++] = token;
    tokens.swap(sorted);
    if (bit == 56) break;
  }
  order.resize(tokens.size());
  std::ranges::transform(tokens, order.begin(), &Token::slot);
}

}  // namespace palimpsest
