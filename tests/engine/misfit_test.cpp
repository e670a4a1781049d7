// Keys or values that do not fit the cache's type: an error of that sequence that names the tensor; no wrong result, no
// invalid victim.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/text/sampler.h"
#include "tests/engine/scheduler_fixture.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

constexpr int kMisfitWidth = 64, kHeadDim = 16;
constexpr TokenId kBad = 7;

float* numbers(const GgufFile& file, const std::string& tensor) {  // in a memory image, before it is loaded
  const GgufTensor* const found = file.find(tensor);
  EXPECT_NE(found, nullptr) << tensor;
  return reinterpret_cast<float*>(const_cast<std::byte*>(found->data));
}

GgufFile small_file() {
  return make_synthetic({.architecture = "qwen2",
                         .vocabulary = kVocabulary,
                         .width = kMisfitWidth,
                         .layers = 2,
                         .feed_forward = 96,
                         .query_heads = 4,
                         .kv_heads = 2,
                         .head_dim = kHeadDim});
}

// The keys (values) of layer 1, head 1, have this size for every token.
std::shared_ptr<Model> with_bias(const std::string& name, float bias, bool portable = false) {
  GgufFile file = small_file();
  float* const at = numbers(file, "blk.1." + name + ".bias");
  for (int d = 0; d < kHeadDim; ++d) at[kHeadDim + d] = bias;
  ModelOptions options;
  options.portable = portable;
  return Model::from(std::move(file), options);
}

// The keys of layer 0, head 1, have this size for token kBad and are small for others: only its embedding is not 0 in
// dimension 0.
std::shared_ptr<Model> with_bad_token() {
  GgufFile file = small_file();
  float* const embedding = numbers(file, "token_embd.weight");
  for (int token = 0; token < kVocabulary; ++token)
    for (int d = 0; d < kMisfitWidth; ++d) {
      float& x = embedding[token * kMisfitWidth + d];
      if (token == kBad)
        x = d == 0 ? 1.0F : 0.0F;
      else if (d == 0)
        x = 0;
    }
  float* const keys = numbers(file, "blk.0.attn_k.weight");
  for (int row = kHeadDim; row < 2 * kHeadDim; ++row) keys[row * kMisfitWidth] = 1e5F;
  return Model::from(std::move(file));
}

std::vector<TokenId> tokens_but_bad(int count, unsigned seed) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    const auto token = static_cast<TokenId>(seed >> 16) % kVocabulary;
    tokens.push_back(token == kBad ? kBad + 1 : token);
  }
  return tokens;
}

SessionOptions keydiff_options(CacheTypes type) {
  SessionOptions options;
  options.method = parse_method("keydiff:budget=40");
  options.cache_type = type;
  options.page_size = 16;
  options.chunk = 32;
  return options;
}

std::string error_with(const std::shared_ptr<const Model>& model, CacheTypes type, int threads) {
  Session session(std::make_shared<Decoder>(model, threads), keydiff_options(type));
  try {
    session.prefill(tokens_but_bad(100, 1));
    for (int i = 0; i < 30; ++i)
      for (const float x : session.decode(i)) EXPECT_TRUE(std::isfinite(x));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Misfit, ABiasThatF16CannotHoldIsAnErrorThatNamesIt) {
  for (const int threads : {1, 3}) {
    EXPECT_EQ(error_with(with_bias("attn_k", 1e5F), CacheType::kF16, threads).substr(0, 28),
              "layer 1, head 1: a key of 1.");
    for (const auto& [tensor, what] : {std::pair{"attn_k", "a key of "}, std::pair{"attn_v", "a value of "}}) {
      const std::string said = error_with(with_bias(tensor, 1e5F), CacheType::kF16, threads);
      EXPECT_NE(said.find(what), std::string::npos) << said;
      EXPECT_NE(said.find("does not fit cache type f16 (blk.1." + std::string(tensor) + ")"), std::string::npos)
          << said;
      EXPECT_NE(said.find(fmt::format("use --cache-type-{} bf16 or f32", tensor[5])), std::string::npos) << said;
    }
  }
  for (const CacheType type : {CacheType::kF32, CacheType::kBF16})
    EXPECT_EQ(error_with(with_bias("attn_k", 1e5F), type, 2), "");
}

// In f32 such a key is stored, but its scores and norms would overflow.
TEST(Misfit, AKeyThatIsTooLargeToComputeWithIsAnErrorOfAnyType) {
  for (const CacheType type : {CacheType::kF32, CacheType::kBF16}) {
    const std::string said = error_with(with_bias("attn_k", 1e20F), type, 1);
    EXPECT_NE(said.find("layer 1, head 1: a key is too large, 1."), std::string::npos) << said;
  }
}

// The portable path does not test keys: they become infinite, and the sampler refuses the output.
TEST(Misfit, OnThePortablePathTheSamplerRefusesTheOutput) {
  Session session(std::make_shared<Decoder>(with_bias("attn_k", 1e5F, true), 1),
                  SessionOptions{.method = parse_method("streaming:budget=40"), .cache_type = CacheType::kF16});
  SamplerOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy, nullptr, kVocabulary);
  const std::string said = error_of([&] { sampler.sample(session.decode(1)); });
  EXPECT_NE(said.find("--cache-type bf16"), std::string::npos) << said;
}

// Keys and values of different types: the error names the one that does not fit, and its type.
TEST(Misfit, NamesTheTypeOfKeysOrOfValues) {
  const auto keys = with_bias("attn_k", 1e5F), values = with_bias("attn_v", 1e5F);
  EXPECT_EQ(error_with(keys, {CacheType::kF32, CacheType::kF16}, 1), "");
  EXPECT_EQ(error_with(values, {CacheType::kF16, CacheType::kBF16}, 1), "");
  for (const auto& [model, types] : {std::pair{keys, CacheTypes(CacheType::kF16, CacheType::kF32)},
                                     std::pair{values, CacheTypes(CacheType::kBF16, CacheType::kF16)}}) {
    const std::string said = error_with(model, types, 1);
    EXPECT_NE(said.find("does not fit cache type f16"), std::string::npos) << said;
    EXPECT_NE(said.find(model == keys ? "--cache-type-k" : "--cache-type-v"), std::string::npos) << said;
  }
}

TEST(Misfit, NoNumberIsAnErrorOfAnyType) {
  for (const CacheType type : {CacheType::kF32, CacheType::kBF16}) {
    const std::string said = error_with(with_bias("attn_v", std::nanf("")), type, 1);
    EXPECT_NE(said.find("layer 1, head 1: a value is not a finite number (blk.1.attn_v"), std::string::npos) << said;
  }
}

// The misfit of one sequence does not change the logits of the others.
TEST(Misfit, OthersInTheStepAreUnharmed) {
  const auto model = with_bad_token();
  const auto decoder = std::make_shared<Decoder>(model, 2);
  std::vector<TokenId> good = tokens_but_bad(20, 2), bad = tokens_but_bad(20, 3);
  bad[10] = kBad;
  Session alone(decoder, keydiff_options(CacheType::kF16));
  const auto logits = alone.prefill(good);
  const std::vector<float> expected(logits.begin(), logits.end());

  CacheOptions shape = decoder->cache_options();
  shape.geometry = shape.geometry.with_types(CacheType::kF16, CacheType::kF16);
  Cache caches[2] = {Cache(shape), Cache(shape)};
  std::vector<SequenceStep> steps;
  for (int i = 0; i < 2; ++i) {
    caches[i].insert(20);
    steps.push_back({.cache = &caches[i], .tokens = i == 0 ? bad : good});
  }
  EXPECT_THROW(decoder->step(steps), Error);
  EXPECT_THROW(decoder->check(0), Error);
  EXPECT_NO_THROW(decoder->check(1));
  Session after(decoder, keydiff_options(CacheType::kF16));
  const auto again = after.prefill(good);
  EXPECT_EQ(expected, std::vector<float>(again.begin(), again.end()));
  EXPECT_NO_THROW(decoder->check(0));
}

// A draft that does not fit is not read: the text goes on unless the sampler wants that token.
TEST(Misfit, ADraftThatDoesNotFitIsRejected) {
  const auto model = with_bad_token();
  for (const char* method : {"full", "h2o:budget=40,every=8", "streaming:budget=40"}) {
    SCOPED_TRACE(method);
    SessionOptions options = keydiff_options(CacheType::kF16);
    options.method = parse_method(method);
    options.page_size = 64;
    options.draft_max = 4;
    Session plain(std::make_shared<Decoder>(model, 1), options), drafted(std::make_shared<Decoder>(model, 1), options);
    const auto prompt = tokens_but_bad(20, 2);
    plain.prefill(prompt);
    drafted.prefill(prompt);
    for (std::size_t bad = 0; bad < 4; ++bad) {
      std::vector<TokenId> text = tokens_but_bad(5, static_cast<unsigned>(bad)), drafts(text.begin() + 1, text.end());
      drafts[bad] = kBad;
      const auto logits = drafted.decode(text[0], drafts);
      ASSERT_EQ(logits.size(), (bad + 1) * kVocabulary);
      for (std::size_t i = 0; i <= bad; ++i)
        EXPECT_TRUE(std::ranges::equal(plain.decode(text[i]), logits.subspan(i * kVocabulary, kVocabulary))) << i;
      drafted.accept(static_cast<int>(bad));
    }
    EXPECT_EQ(plain.position(), drafted.position());
    EXPECT_THROW(drafted.decode(kBad, std::vector<TokenId>{1, 2}), Error) << "the token itself";
  }
}

// A request with a misfit fails; requests in the same steps get the same as alone.
TEST(Misfit, ARequestFailsAndOthersGoOn) {
  const auto decoder = std::make_shared<Decoder>(with_bad_token(), 2);
  SchedulerOptions options = small_options();
  options.cache_type = CacheType::kF16;
  Request good, bad;
  good.prompt = tokens_but_bad(20, 2);
  good.max_tokens = 12;
  good.method = bad.method = parse_method("streaming:budget=40");
  auto prompt = tokens_but_bad(20, 3);
  bad.prompt = prompt;
  bad.max_tokens = 12;
  good.sampler.temperature = bad.sampler.temperature = 0;
  const auto answers = [&](std::vector<Request> requests) {
    std::vector<std::shared_ptr<testing::Answer>> all;
    Scheduler scheduler(decoder, nullptr, options);
    for (Request& request : requests) {
      all.push_back(std::make_shared<testing::Answer>());
      scheduler.submit(std::move(request), all.back());
    }
    while (scheduler.step()) continue;
    return all;
  };
  const auto alone = answers({good})[0]->tokens;
  prompt[10] = kBad;
  bad.prompt = prompt;
  const auto both = answers({bad, good});
  EXPECT_EQ(both[0]->how, Finish::kFailed);
  EXPECT_FALSE(both[0]->usage.invalid_request);
  EXPECT_NE(both[0]->usage.error.find("(blk.0.attn_k)"), std::string::npos) << both[0]->usage.error;
  EXPECT_EQ(both[1]->how, Finish::kLength);
  EXPECT_EQ(both[1]->tokens, alone);
}

}  // namespace
}  // namespace palimpsest::testing
