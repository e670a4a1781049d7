// Tokens of one head that were merged into those of other slots: each has the direction of its slot's key and its
// slot's value, a norm of its own, and statistics of its own. A slot with merged tokens is a class, its own token the
// centre. (EMS, arXiv 2412.08521: the look-up table. A token of the zero class is in no table: it is gone.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/cache/slots.h"
#include "palimpsest/cache/view.h"
#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

struct MergedToken {
  Position position = 0;
  int slot = 0;
  int entry = 0;     // in the rows of MergedView, after lay()
  float factor = 1;  // norm of its key / norm of its slot's
  float score = 0;   // the policy's
};

class MergedTokens {
 public:
  // With places of their own, tokens are merged no farther than this: rotations by distance are a table.
  static constexpr Position kFarthest = 1 << 15;

  // `statistics`: floats of a policy that travel with each token besides its score (CacheOptions::columns).
  explicit MergedTokens(int statistics) : width_(static_cast<std::size_t>(statistics)) {}

  bool own_positions() const { return own_positions_; }
  std::span<MergedToken> tokens() { return tokens_; }
  std::span<const MergedToken> tokens() const { return tokens_; }
  std::span<float> statistics(std::size_t token) { return std::span(statistics_).subspan(token * width_, width_); }
  std::span<const float> statistics(std::size_t token) const {
    return std::span(statistics_).subspan(token * width_, width_);
  }

  // Changes. lay() after them, before the next view().
  // Memory for so many, once and for all; `own_places`: the view has distances.
  void reserve(std::size_t tokens, bool own_positions);
  void add(const MergedToken& token, std::span<const float> statistics);
  void merge(int slot, int other, float factor);  // a class goes over into another, its factors times `factor`
  void remove(const std::vector<bool>& slots);    // whole classes are given up
  void keep_best(std::size_t max);                // the lowest scores leave; of equal ones the older token
  void moved(std::span<const Move> moves);        // slots moved, in the order given
  void clear();
  void lay(const SlotTable& table);  // the head's
  // For a head that has more slots now, without merged tokens in them. reserve_slots() takes the memory before.
  void reserve_slots(int slots);
  void extend(int slots) noexcept;

  MergedView view() const;

  void save(ByteWriter& out) const;
  void load(ByteReader& in, const SlotTable& table);  // throws Error for what does not fit the table

  std::size_t bytes() const;
  static std::size_t max_entries(std::size_t tokens, std::size_t slots);                // in the rows of their views
  static std::size_t max_bytes(std::size_t tokens, std::size_t slots, int statistics);  // of any so many

 private:
  template <typename Stays>
  void keep_if(Stays stays);
  void reorder(const std::vector<int>& order);

  std::size_t width_;
  std::vector<MergedToken> tokens_;        // in the order of their places
  std::vector<float> statistics_;          // [tokens][width]
  std::vector<float> factor_, max_, min_;  // what view() shows
  std::vector<std::int8_t> lane_;
  std::vector<std::int32_t> first_, distance_;
  bool own_positions_ = false;
  int farthest_ = 0;
};

}  // namespace palimpsest
