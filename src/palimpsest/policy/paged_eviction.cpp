// S_i = ||v_i||_2 / ||k_i||_2 (PagedEviction, algorithm 1). With mechanism `block` the evictor takes the mean over a
// page. RoPE changes neither norm.
#include <algorithm>
#include <limits>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

class PagedEviction final : public Policy {
 public:
  Signals signals() const override { return {.keys = Keys{}, .values = Values{}, .score_on_insert = true}; }
  void score(const HeadView& head, std::span<float> score) const override {
    for (std::size_t i = 0; i < score.size(); ++i) {
      const int token = static_cast<int>(i);
      score[i] = norm(head.values[token]) / std::max(norm(head.keys[token]), std::numeric_limits<float>::min());
    }
  }
};

}  // namespace

PALIMPSEST_POLICY(paged_eviction, PagedEviction, "ratio of value norm to key norm (PagedEviction)")

}  // namespace palimpsest
