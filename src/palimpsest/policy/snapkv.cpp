// Attention from the last 32 queries, summed, then max-pooled over 7 tokens (SnapKV, arXiv 2404.14469, section 4;
// window and kernel of its LongBench configurations). Protect the queries' own tokens (method `snapkv`: recent=32).
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {
namespace {

class SnapKv final : public Policy {
 public:
  Signals signals() const override { return {.attention_window = AttentionWindow{.queries = 32}, .ordered = true}; }
  void score(const HeadView& head, std::span<float> score) const override { max_pool_7(head.attention, score); }
};

}  // namespace

PALIMPSEST_POLICY(snapkv, SnapKv, "attention from the last 32 queries, max-pooled (SnapKV, arXiv 2404.14469)")

}  // namespace palimpsest
