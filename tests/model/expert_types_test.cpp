// The matrices of a layer's experts may have different types and shapes, of which only some can be repacked into
// panels; also if there is only one expert. The oracle is the same file without repacking.
#include <gtest/gtest.h>

#include <algorithm>

#include "palimpsest/model/model.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/random_tokens.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest::testing {
namespace {

SyntheticShape mixture_of(int experts) {
  return {.vocabulary = 96,
          .width = 256,
          .layers = 2,
          .feed_forward = 256,
          .query_heads = 2,
          .kv_heads = 1,
          .experts = experts,
          .experts_used = std::min(experts, 2)};
}

void expect_as_without_repacking(const SyntheticShape& shape) {
  const auto tokens = random_tokens(12, 3, shape.vocabulary);
  const auto logits_of = [&](bool repack, int chunk) {
    const TeacherForced how{.name = "full", .chunk = chunk};
    return run(Model::from(make_synthetic(shape), {.repack = repack}), how, tokens).logits;
  };
  const auto plain = logits_of(false, 1);
  for (const int chunk : {1, 12}) {
    // Both round activations to 8 bits, ggml's K-quants in larger groups.
    EXPECT_LT(max_relative_error(logits_of(true, chunk), plain, shape.vocabulary), 0.05) << "chunk " << chunk;
  }
}

TEST(ExpertTypes, EveryMixture) {
  const char* const names[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
  for (const int experts : {1, 3}) {
    for (unsigned mask = 0; mask < 8; ++mask) {
      SyntheticShape shape = mixture_of(experts);
      for (unsigned i = 0; i < 3; ++i) shape.type_of[names[i]] = mask >> i & 1 ? GGML_TYPE_Q8_0 : GGML_TYPE_TQ2_0;
      SCOPED_TRACE(std::to_string(experts) + " experts, q8_0: " + std::to_string(mask));
      expect_as_without_repacking(shape);
    }
  }
}

TEST(ExpertTypes, RowsThatFillNoPanel) {
  for (const int experts : {1, 3}) {
    for (const int own : {40, 48, 96}) {  // neither, gate and up, or all can be in panels
      SyntheticShape shape = mixture_of(experts);
      shape.expert_feed_forward = own;
      SCOPED_TRACE(std::to_string(experts) + " experts of " + std::to_string(own));
      expect_as_without_repacking(shape);
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
