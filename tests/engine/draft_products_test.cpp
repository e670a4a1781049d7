// Drafts of weights of every type and layout: in panels or not, vocabularies that fill no panel, no repacking, other
// CPUs (PALIMPSEST_SIMD=SSE4). ggml chooses some kernels by the number of rows; a step with drafts has the bits of
// steps of one token nevertheless.
#include <gtest/gtest.h>

#include <algorithm>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

SyntheticShape products_shape(ggml_type type, int vocabulary = 96) {
  return {.vocabulary = vocabulary,
          .width = 256,
          .layers = 1,
          .feed_forward = 256,
          .query_heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .type = type};
}

// Steps of 1 to 8 tokens, all right, against one by one.
void expect_equal_with_drafts(const SyntheticShape& shape, bool repack, int threads) {
  const auto model = Model::from(make_synthetic(shape), {.repack = repack});
  const auto width = static_cast<std::size_t>(shape.vocabulary);
  SessionOptions options = session_options("full");
  options.page_size = 64;  // all tokens in one page: the number of drafts is that of a page's free slots
  Session plain(std::make_shared<Decoder>(model, threads), options);
  options.draft_max = 7;
  Session drafted(std::make_shared<Decoder>(model, threads), options);
  const auto text = random_tokens(64, 3, shape.vocabulary);
  plain.prefill(std::span(text).first(20));
  drafted.prefill(std::span(text).first(20));
  std::size_t next = 20;
  for (const std::size_t count : {1, 2, 3, 4, 5, 8}) {
    const auto logits = drafted.decode(text[next], std::span(text).subspan(next + 1, count - 1));
    ASSERT_EQ(logits.size(), count * width);
    for (std::size_t i = 0; i < count; ++i, ++next)
      ASSERT_TRUE(std::ranges::equal(plain.decode(text[next]), logits.subspan(i * width, width)))
          << "token " << i << " of " << count;
    drafted.accept(static_cast<int>(count) - 1);
  }
}

TEST(DraftProducts, EveryTypeOfWeights) {
  for (const ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
        GGML_TYPE_Q8_0, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
        GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4}) {
    for (const bool repack : {true, false}) {
      SCOPED_TRACE(std::string(ggml_type_name(type)) + (repack ? "" : ", not repacked"));
      expect_equal_with_drafts(products_shape(type), repack, 1);
    }
  }
}

TEST(DraftProducts, VocabulariesThatFillNoPanel) {
  for (const int vocabulary : {32'001, 50'257}) {
    for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
      SCOPED_TRACE(std::string(ggml_type_name(type)) + ", " + std::to_string(vocabulary));
      SyntheticShape shape = products_shape(type, vocabulary);
      shape.width = 64;
      shape.feed_forward = 64;
      expect_equal_with_drafts(shape, true, 2);
    }
  }
}

TEST(DraftProducts, Experts) {
  for (const ggml_type type : {GGML_TYPE_Q5_0, GGML_TYPE_Q4_0, GGML_TYPE_F16}) {
    SCOPED_TRACE(ggml_type_name(type));
    SyntheticShape shape = products_shape(type);
    shape.experts = 3;
    shape.experts_used = 2;
    expect_equal_with_drafts(shape, true, 2);
  }
}

}  // namespace
}  // namespace palimpsest::testing
