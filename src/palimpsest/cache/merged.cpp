#include "palimpsest/cache/merged.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "palimpsest/core/score_order.h"

namespace palimpsest {
namespace {

// Rows of 16 for a tile whose slots have `counts` merged tokens: the first `level` of each slot are in the slot's lane
// of shared rows, the rest of a slot in rows of its own.
int rows_at(std::span<const int> counts, int level) {
  int rows = std::min(level, *std::ranges::max_element(counts));
  for (const int count : counts) rows += (std::max(0, count - level) + kTile - 1) / kTile;
  return rows;
}

}  // namespace

void MergedTokens::reserve(std::size_t tokens, std::size_t max, bool own_positions, int slots) {
  own_positions_ = own_positions;
  if (tokens == 0) return;
  tokens_.reserve(tokens + 1);  // a step adds one before it evicts another
  statistics_.reserve((tokens + 1) * width_);
  const std::size_t entries = max_entries(max, at(slots));
  factor_.reserve(entries);
  if (own_positions_) distance_.reserve(entries);
  lane_.reserve(entries / at(kTile));
}

void MergedTokens::add(const MergedToken& token, std::span<const float> statistics) {
  assert(statistics.size() == width_);
  tokens_.push_back(token);
  statistics_.insert(statistics_.end(), statistics.begin(), statistics.end());
}

void MergedTokens::merge(std::span<const Joining> joining) {
  for (MergedToken& token : tokens_) {
    if (!token.in_cluster()) continue;
    const auto [slot, factor] = joining[at(token.slot)];
    if (slot == Joining::kStays) continue;
    token.slot = slot;
    token.factor *= factor;
  }
}

template <typename Keep>
void MergedTokens::keep_if(Keep keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (!keep(i)) continue;
    tokens_[kept] = tokens_[i];
    std::copy_n(statistics_.begin() + static_cast<std::ptrdiff_t>(i * width_), width_,
                statistics_.begin() + static_cast<std::ptrdiff_t>(kept * width_));
    ++kept;
  }
  tokens_.resize(kept);
  statistics_.resize(kept * width_);
}

void MergedTokens::remove(const std::vector<bool>& slots) {
  const auto removed = [&](const MergedToken& token) { return token.in_cluster() && slots[at(token.slot)]; };
  if (std::ranges::any_of(tokens_, removed)) keep_if([&](std::size_t i) { return !removed(tokens_[i]); });
}

void MergedTokens::keep_best(std::size_t max) {
  const auto better = [](const MergedToken& x, const MergedToken& y) {
    if (score_above(x.score, y.score)) return true;
    return !score_above(y.score, x.score) && x.position > y.position;
  };
  if (tokens_.size() == max + 1) {  // the case of decoding
    const auto worst = static_cast<std::size_t>(std::ranges::max_element(tokens_, better) - tokens_.begin());
    keep_if([&](std::size_t i) { return i != worst; });
  } else if (tokens_.size() > max) {
    thread_local std::vector<std::size_t> order;
    thread_local std::vector<bool> best;
    order.resize(tokens_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::nth_element(order, order.begin() + static_cast<std::ptrdiff_t>(max),
                             [&](std::size_t a, std::size_t b) { return better(tokens_[a], tokens_[b]); });
    best.assign(tokens_.size(), false);
    for (std::size_t i = 0; i < max; ++i) best[order[i]] = true;
    keep_if([&](std::size_t i) { return best[i]; });
  }
  if (tokens_.capacity() <= max + 1) return;
  tokens_.shrink_to_fit();  // after an insert of many tokens
  statistics_.shrink_to_fit();
  tokens_.reserve(max + 1);
  statistics_.reserve((max + 1) * width_);
}

void MergedTokens::apply_moves(std::span<const Move> moves) {
  for (MergedToken& token : tokens_)
    for (const Move& move : moves)
      if (token.slot == move.from) {
        token.slot = move.to;
        break;
      }
}

void MergedTokens::clear() {
  *this = MergedTokens(static_cast<int>(width_));
}

// Chooses each tile's `level` (see rows_at) that needs the fewest rows.
void MergedTokens::build_layout(const SlotTable& table) {
  if (tokens_.empty()) return lane_.clear();  // the view is not used
  const int slots = table.slots();
  thread_local std::vector<int> begin, order, next, by_entry;
  begin.assign(at(slots) + 1, 0);
  order.resize(tokens_.size());
  const auto zero = [](const MergedToken& token) { return !token.in_cluster(); };
  for (const MergedToken& token : tokens_)
    if (!zero(token)) ++begin[at(token.slot) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  next.assign(begin.begin(), begin.end() - 1);
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (!zero(tokens_[i])) order[at(next[at(tokens_[i].slot)]++)] = static_cast<int>(i);

  factor_.clear();
  lane_.clear();
  distance_.clear();
  max_distance_ = 0;
  first_.clear();
  for (auto* of_slots : {&max_, &min_})
    if (of_slots->capacity() > at(slots)) std::vector<float>().swap(*of_slots);
  if (first_.capacity() > at(slots / kTile + 1)) std::vector<std::int32_t>().swap(first_);
  first_.reserve(at(slots / kTile + 1));
  first_.push_back(0);
  max_.assign(at(slots), 1);
  min_.assign(at(slots), 1);
  for (const MergedToken& token : tokens_) {
    if (zero(token)) continue;
    max_[at(token.slot)] = std::max(max_[at(token.slot)], token.factor);
    min_[at(token.slot)] = std::min(min_[at(token.slot)], token.factor);
  }
  by_entry.clear();
  const auto put = [&](int lane, int slot, int token) {
    factor_[factor_.size() - at(kTile) + at(lane)] = tokens_[at(order[at(token)])].factor;
    MergedToken& placed = tokens_[at(order[at(token)])];
    placed.entry = static_cast<int>(lane_.size() - 1) * kTile + lane;
    assert(placed.slot == slot);
    if (own_positions_) {
      const auto distance = static_cast<std::int32_t>(placed.position - table.position(slot));
      distance_[distance_.size() - at(kTile) + at(lane)] = distance;
      max_distance_ = std::max(max_distance_, std::abs(distance));
    }
    by_entry.push_back(order[at(token)]);
  };
  const auto begin_row = [&](int lane) {
    factor_.resize(factor_.size() + at(kTile), 0);
    if (own_positions_) distance_.resize(distance_.size() + at(kTile), 0);
    lane_.push_back(static_cast<std::int8_t>(lane));
  };
  thread_local std::vector<int> levels;
  levels.clear();
  int rows = 0;
  std::array<int, kTile> counts{};
  const auto count_tile = [&](int tile) {
    for (int lane = 0; lane < kTile; ++lane) counts[at(lane)] = begin[at(tile + lane) + 1] - begin[at(tile + lane)];
  };
  for (int tile = 0; tile < slots; tile += kTile) {
    count_tile(tile);
    int level = 0, min = rows_at(counts, 0);
    for (int other = 1; other <= *std::ranges::max_element(counts); ++other)
      if (const int at_other = rows_at(counts, other); at_other < min) min = at_other, level = other;
    levels.push_back(level);
    rows += min;
  }
  factor_.reserve(at(rows * kTile));
  if (own_positions_) distance_.reserve(at(rows * kTile));
  lane_.reserve(at(rows));
  for (int tile = 0; tile < slots; tile += kTile) {
    const int level = levels[at(tile / kTile)];
    count_tile(tile);
    for (int n = 0; n < level; ++n) {
      begin_row(-1);
      for (int lane = 0; lane < kTile; ++lane)
        if (n < counts[at(lane)]) put(lane, tile + lane, begin[at(tile + lane)] + n);
    }
    for (int lane = 0; lane < kTile; ++lane)
      for (int n = level; n < counts[at(lane)]; ++n) {
        if ((n - level) % kTile == 0) begin_row(lane);
        put((n - level) % kTile, tile + lane, begin[at(tile + lane)] + n);
      }
    first_.push_back(static_cast<std::int32_t>(lane_.size()));
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (zero(tokens_[i])) by_entry.push_back(static_cast<int>(i));
  reorder(by_entry);
}

void MergedTokens::reserve_slots(int slots) {
  if (tokens_.empty()) return;
  max_.reserve(at(slots));
  min_.reserve(at(slots));
  first_.reserve(at(slots / kTile + 1));
}

void MergedTokens::extend(int slots) noexcept {
  if (tokens_.empty()) return;
  max_.resize(std::max(max_.size(), at(slots)), 1);
  min_.resize(std::max(min_.size(), at(slots)), 1);
  first_.resize(std::max(first_.size(), at(slots / kTile + 1)), static_cast<std::int32_t>(lane_.size()));
}

void MergedTokens::reorder(const std::vector<int>& order) {
  thread_local std::vector<MergedToken> tokens;
  thread_local std::vector<float> statistics;
  tokens.clear();
  statistics.clear();
  for (const int i : order) {
    tokens.push_back(tokens_[at(i)]);
    const auto row = this->statistics(at(i));
    statistics.insert(statistics.end(), row.begin(), row.end());
  }
  tokens_.assign(tokens.begin(), tokens.end());
  statistics_.assign(statistics.begin(), statistics.end());
}

MergedView MergedTokens::view() const {
  return {.factor = factor_.data(),
          .lane = lane_.data(),
          .first = first_.data(),
          .distance = own_positions_ ? distance_.data() : nullptr,
          .max = max_.data(),
          .min = min_.data(),
          .max_distance = max_distance_,
          .rows = static_cast<int>(lane_.size()),
          .max_rows = static_cast<int>(lane_.capacity())};
}

void MergedTokens::save(ByteWriter& out) const {
  out.array(std::span<const MergedToken>(tokens_));
  out.array(std::span<const float>(statistics_));
  out.put(static_cast<std::uint8_t>(own_positions_));
}

void MergedTokens::load(ByteReader& in, const SlotTable& table) {
  tokens_ = in.array<MergedToken>();
  statistics_ = in.array<float>();
  own_positions_ = in.get<std::uint8_t>() != 0;
  if (const char* const found = fault(table)) in.damaged(found);
  build_layout(table);
}

const char* MergedTokens::fault(const SlotTable& table) const {
  if (statistics_.size() != tokens_.size() * width_) return "statistics of merged tokens that do not add up";
  for (const MergedToken& token : tokens_) {
    const bool zero = !token.in_cluster();
    if (!zero && (token.slot < 0 || token.slot >= table.slots() || table.position(token.slot) == kNoPosition))
      return "a merged token without a slot";
    if (token.position < 0 || token.position >= table.next()) return "a merged token after the last";
    if (own_positions_ && !zero && std::abs(token.position - table.position(token.slot)) > kMaxDistance)
      return "a merged token too far from its slot's";
    if (!(token.factor > 0 && token.factor < 1e30F)) return "a merged token without a norm";
    if (!std::isfinite(token.score)) return "a score that is not a number";
  }
  if (!std::ranges::all_of(statistics_, [](float x) { return std::isfinite(x); }))
    return "a score that is not a number";
  std::vector<Position> positions;
  for (const MergedToken& token : tokens_) positions.push_back(token.position);
  for (const Position position : table.position())
    if (position != kNoPosition && !tokens_.empty()) positions.push_back(position);
  std::ranges::sort(positions);
  return std::ranges::adjacent_find(positions) == positions.end() ? nullptr : "a merged token that is there twice";
}

std::size_t MergedTokens::bytes() const {
  return tokens_.capacity() * sizeof(MergedToken) + statistics_.capacity() * sizeof(float) +
         (factor_.capacity() + max_.capacity() + min_.capacity()) * sizeof(float) + lane_.capacity() +
         (first_.capacity() + distance_.capacity()) * sizeof(std::int32_t);
}

// A tile of T merged tokens at level L (see rows_at) has at most L + (slots of more than L tokens) + T / 16 rows. At
// the best L the first two terms sum to at most R, where R (R + 1) / 2 <= T. The sum of R over all tiles is at most
// sqrt(2 tokens x tiles).
std::size_t MergedTokens::max_entries(std::size_t tokens, std::size_t slots) {
  if (tokens == 0) return 0;
  const std::size_t tile = at(kTile);
  const auto extra_rows = static_cast<std::size_t>(std::sqrt(2.0 * static_cast<double>(tokens * (slots / tile)))) + 1;
  return tile * std::min(tokens, tokens / tile + extra_rows);
}

std::size_t MergedTokens::max_bytes(std::size_t tokens, std::size_t slots, int statistics) {
  if (tokens == 0) return 0;
  const std::size_t tile = at(kTile), rows = max_entries(tokens, slots) / tile;
  return (tokens + 1) * (sizeof(MergedToken) + at(statistics) * sizeof(float)) +
         rows * (tile * (sizeof(float) + sizeof(std::int32_t)) + 1) + (slots / tile + 1) * sizeof(std::int32_t) +
         2 * slots * sizeof(float);
}

}  // namespace palimpsest
