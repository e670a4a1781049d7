// Tokens of one head that were merged into other slots. A merged token has the direction of its slot's key, its slot's
// value, and its own norm and statistics. A slot and its merged tokens form a cluster; the slot's own token is the
// representative. (EMS, arXiv 2412.08521: the look-up table. Tokens of its zero class are in no slot, and no query
// attends to them.)
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
  static constexpr int kZeroClass = -1;

  Position position = 0;
  int slot = 0;      // or kZeroClass
  int entry = 0;     // index in the rows of MergedView, after build_layout()
  float factor = 1;  // norm of its key / norm of its slot's
  float score = 0;   // the policy's

  bool in_cluster() const { return slot != kZeroClass; }
};

class MergedTokens {
 public:
  // With own positions, the max distance between a token and its slot's: rotations by distance are a table.
  static constexpr Position kMaxDistance = 1 << 15;

  // `statistics`: a policy's floats per token, besides its score (CacheOptions::columns).
  explicit MergedTokens(int statistics) : width_(static_cast<std::size_t>(statistics)) {}

  bool own_positions() const { return own_positions_; }
  std::span<MergedToken> tokens() { return tokens_; }
  std::span<const MergedToken> tokens() const { return tokens_; }
  std::span<float> statistics(std::size_t token) { return std::span(statistics_).subspan(token * width_, width_); }
  std::span<const float> statistics(std::size_t token) const {
    return std::span(statistics_).subspan(token * width_, width_);
  }

  // After changes call build_layout(), before the next view().
  // Reserves memory for `tokens`, and for every layout of `max` of them in a table of `slots`, so that a steady decode
  // step allocates nothing. `own_positions`: the view has distances.
  void reserve(std::size_t tokens, std::size_t max, bool own_positions, int slots);
  void add(const MergedToken& token, std::span<const float> statistics);
  struct Joining {
    static constexpr int kStays = -2;
    int slot = kStays;
    float factor = 1;
  };
  // Merges the cluster of each slot s into that of joining[s].slot, which stays, or into the zero class; its factors
  // *= joining[s].factor.
  void merge(std::span<const Joining> joining);
  void remove(const std::vector<bool>& slots);    // removes the merged tokens of these slots
  void keep_best(std::size_t max);                // evicts the lowest scores, of equal ones the older token
  void apply_moves(std::span<const Move> moves);  // updates slots after moves, in the order given
  void clear();
  void build_layout(const SlotTable& table);  // builds the layout of view(); the head's table
  // The head has more slots now, which have no merged tokens. reserve_slots() takes the memory before.
  void reserve_slots(int slots);
  void extend(int slots) noexcept;

  bool attended() const { return !lane_.empty(); }  // any token but the zero class; after build_layout()
  MergedView view() const;

  void save(ByteWriter& out) const;
  void load(ByteReader& in, const SlotTable& table);  // throws Error for bytes inconsistent with the table
  const char* fault(const SlotTable& table) const;    // nullptr: consistent with the table

  std::size_t bytes() const;
  static std::size_t max_entries(std::size_t tokens, std::size_t slots);  // of the views of so many tokens
  static std::size_t max_bytes(std::size_t tokens, std::size_t slots, int statistics);  // of so many tokens

 private:
  template <typename Keep>
  void keep_if(Keep keep);
  void reorder(const std::vector<int>& order);

  std::size_t width_;
  std::vector<MergedToken> tokens_;        // in the order of their entries
  std::vector<float> statistics_;          // [tokens][width]
  std::vector<float> factor_, max_, min_;  // the arrays of view()
  std::vector<std::int8_t> lane_;
  std::vector<std::int32_t> first_, distance_;
  bool own_positions_ = false;
  int max_distance_ = 0;
};

}  // namespace palimpsest
