// The oracle of Cache: for each slot table a list of tokens in the order in which they were read.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest::testing {

struct NaiveToken {
  Position position;
  std::uint32_t id;  // the bytes of its key and value are derived from it
  float score = 0;
  static float column(float score, int c) { return score == 0 ? 0 : score + static_cast<float>(c + 1); }
  int page = 0;  // block: tokens of one page have the same number
  Position ordinal = 0;
};

// A token that was merged into another.
struct NaiveMerged {
  Position position, into;
  float factor, score;
};

class NaiveCache {
 public:
  // page_size: of mechanism block; else 0.
  explicit NaiveCache(int tables, int page_size = 0)
      : tables_(static_cast<std::size_t>(tables)),
        merged_(tables_.size()),
        page_size_(page_size),
        closed_up_(tables_.size(), 0) {}

  std::vector<NaiveToken>& table(int t) { return tables_[static_cast<std::size_t>(t)]; }
  std::vector<NaiveMerged>& merged(int t) { return merged_[static_cast<std::size_t>(t)]; }
  Position next() const { return next_; }
  Position tokens_read() const { return read_; }

  // At position `at` and following, in the middle of the text or beyond its end.
  void insert(int count, Position at) {
    next_before_ = next_;
    if (at > next_) set_next(at);
    if (at < next_) edited_ = true;
    for (int i = 0; i < count; ++i, ++next_id_, ++read_)
      for (auto& table : tables_) table.push_back({at + i, next_id_, 0, page_of_next(table), read_});
    next_ = std::max(next_, at + count);
  }
  void insert(int count) { insert(count, next_); }
  // Tokens of a table by their page.
  static std::map<int, int> pages(const std::vector<NaiveToken>& table) {
    std::map<int, int> count;
    for (const NaiveToken& token : table) ++count[token.page];
    return count;
  }
  void drop(int t, const std::vector<Position>& gone) {
    std::map<int, int> going;
    std::erase_if(merged(t), [&](const NaiveMerged& each) { return std::ranges::count(gone, each.into) > 0; });
    std::erase_if(table(t), [&](const NaiveToken& token) {
      const bool goes = std::ranges::count(gone, token.position) > 0;
      if (goes) ++going[token.page];
      return goes;
    });
    for (const auto& [page, count] : going)
      if (count != page_size_) closed_up_[static_cast<std::size_t>(t)] = page_size_ > 0 ? 1 : 0;
  }
  // After a drop that was not of full pages, the cache decides which tokens share a page; all pages but one are full.
  bool closed_up(int t) { return std::exchange(closed_up_[static_cast<std::size_t>(t)], 0) != 0; }
  int new_page() { return next_page_++; }
  // `reaches`: the drop shortens the text.
  void drop_range(PositionRange range, bool reaches_end) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      std::vector<Position> gone;
      for (const NaiveToken& token : tables_[t])
        if (range.contains(token.position)) gone.push_back(token.position);
      drop(static_cast<int>(t), gone);
    }
    if (!reaches_end || range.first >= next_) return;
    if (next_ >= Position{1} << 30) edited_ = true;
    next_ = range.first;
    if (!edited_) read_ = next_;  // as if what was behind had never been read
  }
  void shift(PositionRange range, Position by) {
    for (auto& table : tables_)
      for (NaiveToken& token : table)
        if (range.contains(token.position)) token.position += by;
    if (range.contains(next_)) next_ += by;
    edited_ = edited_ || !range.empty();
  }
  void undo(int count) {
    if (count == 0) return;
    Position first = next_;
    for (int i = 0; i < count; ++i) {
      for (auto& table : tables_) {
        first = table.back().position;
        table.pop_back();
      }
      --read_;
    }
    next_ = std::max(next_before_, first);
  }
  void set_next(Position position) {
    read_ += position - next_;
    next_ = position;
  }
  // The token at `victim` is merged into the one at `into`, and so are the tokens that were merged into it.
  void merge(int t, Position victim, Position into, float factor) {
    for (NaiveMerged& each : merged(t))
      if (each.into == victim) each.into = into, each.factor *= factor;
    for (const NaiveToken& token : table(t))
      if (token.position == victim) merged(t).push_back({victim, into, factor, token.score});
  }
  // Takes over the tokens of `other`, which has evicted none.
  void take_in(NaiveCache& other, bool scores) {
    clear();
    insert(static_cast<int>(other.next_));
    for (std::size_t t = 0; t < tables_.size(); ++t)
      for (std::size_t i = 0; i < tables_[t].size(); ++i) {
        const NaiveToken& token = other.tables_[t % other.tables_.size()][i];
        tables_[t][i].id = token.id;
        if (scores) tables_[t][i].score = token.score;
      }
  }
  void clear() {
    for (auto& table : tables_) table.clear();
    for (auto& merged : merged_) merged.clear();
    next_ = next_before_ = read_ = 0;
    edited_ = false;
    std::ranges::fill(closed_up_, 0);
  }

 private:
  // The page that is not full.
  int page_of_next(const std::vector<NaiveToken>& table) {
    if (page_size_ == 0) return 0;
    const std::map<int, int> counts = pages(table);
    const auto open = std::ranges::find_if(counts, [&](const auto& count) { return count.second < page_size_; });
    return open == counts.end() ? new_page() : open->first;
  }

  std::vector<std::vector<NaiveToken>> tables_;
  std::vector<std::vector<NaiveMerged>> merged_;
  int page_size_, next_page_ = 0;
  std::vector<char> closed_up_;  // [table]
  bool edited_ = false;
  Position next_ = 0, next_before_ = 0, read_ = 0;
  inline static std::uint32_t next_id_ = 1;  // unique in the process
};

}  // namespace palimpsest::testing
