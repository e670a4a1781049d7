// Attention weights of the last queries, summed per token, for policies with an AttentionWindow. They are stored in
// columns of the slot table, which move with their tokens. Each column holds a part of the queries:
//
//   prompt of 18, then 3 tokens              a window of 12 in parts of 4
//   . . . . . . 6 7 8 9 | 0 1 2 3 | 4 5 6 7 | 8 9 0 .
//   column      0       |    1    |    2    |    3           (the oldest part was forgotten at token 18)
//
// A part begins when the one before is full, and before the last `queries` of a prompt and of a long step. The oldest
// parts are forgotten as soon as more than `queries` count: so after a prompt exactly its last `queries` count,
// whatever its chunks, and in decode up to a part fewer.
//
// AttentionWindow::past has two parts (EMS, arXiv 2412.08521, section 3.3): the past one is forgotten when the current
// one is full, which then is the past one. At the prompt's end its last `queries` are the past: queries to
// 2 * queries - 1 count.
//
// The sum over all queries (Signals::sums) is one more column, after the parts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// Which queries are in which column: the same for all tables of a sequence.
class WindowParts {
 public:
  explicit WindowParts(const Signals& signals);

  // A step of `count` queries. `left`: tokens of the prompt after them; -1: it is no part of a prompt.
  void add(int count, long long left);
  // The state after `tokens` tokens of a prompt, read in steps of `chunk`, that has as many left as the window has
  // queries, or more.
  void repeat(long long tokens, int chunk);
  void clear();  // no query counts
  // The state of columns in snapshots without it: parts began at multiples of their size.
  void assume(Position next);

  // What the last step adds: its last queries(), in rows oldest first; the columns of the rows; which of the columns
  // are cleared before.
  int queries() const;
  std::span<const int> rows() const { return std::span(rows_).first(at(row_count_)); }
  int column(int row) const { return columns_[at(row)]; }
  bool cleared(int column) const { return (cleared_ >> column & 1U) != 0; }
  // Queries of a column's part.
  int size(int column) const { return size_[at(column)]; }

  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  int total() const;
  void forget(int column);
  void begin_part();
  void limit();

  int parts_ = 0, part_size_ = 0, queries_ = 0;
  bool past_ = false;
  int newest_ = 0;
  std::array<int, AttentionWindow::kMaxParts> size_{}, rows_{}, columns_{};
  int row_count_ = 0;
  std::uint32_t cleared_ = 0;
};

// Adds this step's weights (parts.rows()): row i has those of each slot. `sums`: over all of the step's queries, if
// signals.sums().
void add_to_window(const Signals& signals, const WindowParts& parts, SlotTable& table, const Rows& weights,
                   std::span<const float> sums = {});
// The same for merged tokens; their weights are at [slots + entry].
void add_to_window(const Signals& signals, const WindowParts& parts, const SlotTable& table, MergedTokens& merged,
                   const Rows& weights, std::span<const float> sums);
// The sum over the window, [slots]; if AttentionWindow::whole_layer, its mean over the heads of the table's layer.
void window_sum(const Signals& signals, const Cache& cache, int table, std::vector<float>& sum);

}  // namespace palimpsest
