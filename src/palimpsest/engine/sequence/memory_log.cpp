#include "palimpsest/engine/sequence/memory_log.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "palimpsest/cache/merged.h"

namespace palimpsest {
namespace {

bool before(const MergedInto& a, const MergedInto& b) {
  return std::tie(a.table, a.position) < std::tie(b.table, b.position);
}

// The merged tokens of all tables, sorted.
std::vector<MergedInto> merged_tokens(const Cache& cache) {
  std::vector<MergedInto> all;
  for (int t = 0; t < cache.tables(); ++t) {
    const MergedTokens* const merged = cache.merged(t);
    if (merged == nullptr) continue;
    for (const MergedToken& token : merged->tokens())
      if (token.in_cluster()) all.push_back({t, token.position, cache.table(t).position(token.slot)});
  }
  std::ranges::sort(all, before);
  return all;
}

const MergedInto* find(const std::vector<MergedInto>& merged, std::int32_t table, Position position) {
  const MergedInto wanted{table, position, 0};
  const auto it = std::ranges::lower_bound(merged, wanted, before);
  return it == merged.end() || it->table != table || it->position != position ? nullptr : &*it;
}

}  // namespace

MemoryState memory_state(const Cache& cache) {
  MemoryState state{.at = cache.next(), .kept = {}, .merged = merged_tokens(cache)};
  std::vector<Position> positions;
  for (int t = 0; t < cache.tables(); ++t) {
    const PositionView all = cache.table(t).position();
    positions.assign(all.begin(), all.end());
    std::erase(positions, kNoPosition);
    std::ranges::sort(positions);
    auto& ranges = state.kept.emplace_back();
    for (const Position position : positions) {
      if (ranges.empty() || ranges.back().last != position) ranges.push_back({position, position});
      ranges.back().last = position + 1;
    }
  }
  return state;
}

void MemoryLog::add(const MemoryChange& change) {
  if (changes_.size() >= max_) {
    changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>((changes_.size() + 1) / 2));
    incomplete_ = true;
  }
  changes_.push_back(change);
}

void MemoryLog::begin_drop(const Cache& cache, const Victims& outside, const Victims& victims) {
  dropped_ = 0;
  for (const Victims* const of : {&outside, &victims})
    for (std::size_t t = 0; t < of->drop.size(); ++t)
      for (const int slot : of->drop[t]) {
        const auto table = static_cast<std::int32_t>(t);
        add({.table = table, .position = cache.table(table).position(slot), .at = cache.next()});
        ++dropped_;
      }
  if (cache.merged(0) != nullptr) merged_ = merged_tokens(cache);
}

void MemoryLog::end_drop(const Cache& cache) {
  if (cache.merged(0) == nullptr) return;
  const std::vector<MergedInto> now = merged_tokens(cache);
  for (std::size_t i = changes_.size() - std::min(dropped_, changes_.size()); i < changes_.size(); ++i)
    if (const MergedInto* const merged = find(now, changes_[i].table, changes_[i].position))
      changes_[i].into = merged->into;
  for (const MergedInto& was : merged_) {  // merged before: evicted now, or merged into another slot
    const MergedInto* const is = find(now, was.table, was.position);
    if (is != nullptr && is->into == was.into) continue;
    add({.table = was.table,
         .position = was.position,
         .at = cache.next(),
         .into = is == nullptr ? kNoPosition : is->into});
  }
}

void MemoryLog::restart(const Cache& cache) {
  changes_.clear();
  incomplete_ = false;
  start_.reset();
  if (cache.next() > 0) start_ = memory_state(cache);
}

void MemoryLog::rewind(Position position) {
  std::erase_if(changes_, [position](const MemoryChange& change) { return change.position >= position; });
  for (MemoryChange& change : changes_) change.at = std::min(change.at, position);
}

MemoryLog::Taken MemoryLog::take(const Cache& cache) {
  if (incomplete_) restart(cache);
  Taken taken{std::exchange(start_, std::nullopt), std::move(changes_)};
  changes_.clear();
  return taken;
}

}  // namespace palimpsest
