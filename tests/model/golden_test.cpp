// Trained models end to end: the greedy text published with stories260K, exactly; stored greedy texts of the default
// model, token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/in_type.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

std::string greedy(const std::shared_ptr<const Model>& model, const Vocabulary& vocabulary, int threads, CacheType type,
                   int limit) {
  Decoder decoder(model, threads);
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(type, type);
  Cache cache(options);
  std::vector<TokenId> tokens;
  TokenId next = vocabulary.bos();
  for (int i = 0; i < limit; ++i) {
    cache.insert(1);
    const SequenceStep step{.cache = &cache, .tokens = {&next, 1}};
    const auto logits = decoder.step({&step, 1});
    next = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (next == vocabulary.bos() || vocabulary.is_end(next)) break;
    tokens.push_back(next);
  }
  return vocabulary.detokenize(tokens);
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

TEST(GoldenTest, GreedyTextFromTheEmptyPromptIsThePublishedOne) {
  const auto shared = shared_dir();
  if (!shared) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
  const auto dir = *shared / "models/stories260K";
  const std::string golden = content_of(dir / "golden-greedy.txt");
  ASSERT_EQ(golden.size(), 565U);
  const auto model = Model::load((dir / "stories260K.gguf").string());
  const auto vocabulary = Vocabulary::load((dir / "stories260K.gguf").string());
  const std::string one = greedy(model, *vocabulary, 1, CacheType::kF32, 256);
  EXPECT_EQ(one, golden);
  EXPECT_EQ(greedy(model, *vocabulary, 2, CacheType::kF32, 256), one);
  EXPECT_EQ(greedy(model, *vocabulary, 3, CacheType::kF32, 256), one);
}

// Texts that the default model generates with f32 weights, greedily, teacher-forced: each stored token has the highest
// logit, to rounding. CPUs sum in different orders, so free-running greedy texts would diverge at the first near-tie.
// f32 weights: products with 8-bit weights round the activations, so that a difference in the last bit of an
// activation may become one of a step of its 8-bit code, and 0.1 of a logit.
//   PALIMPSEST_UPDATE_GOLDEN=1 build/test_model --gtest_filter='*StoredTexts*'     regenerates them
struct Golden {
  const char *file, *method;
};
constexpr int kStored = 400;         // tokens
constexpr float kRounding = 0.005F;  // of a logit; logits span 30

std::filesystem::path path_of(const std::string& file) {
  return source_dir() / "tests/model/golden" / file;
}

struct Teacher {
  std::string path = default_model();
  std::shared_ptr<const Vocabulary> vocabulary = Vocabulary::load(path);
  std::shared_ptr<const Model> model = Model::load(in_f32(path));

  Session session(const std::string& method, CacheType type, int threads) const {
    SessionOptions options;
    options.method = parse_method(method);
    options.cache_type = type;
    return Session(std::make_shared<Decoder>(model, threads), options);
  }
  std::vector<TokenId> stored(const std::string& file) const {
    return vocabulary->tokenize(content_of(path_of(file)), /*add_bos=*/true, /*special=*/false);
  }
  void store(const Golden& golden) const {
    Session session = this->session(golden.method, CacheType::kF32, 1);
    std::vector<TokenId> tokens;
    for (TokenId next = vocabulary->bos(); static_cast<int>(tokens.size()) < kStored; tokens.push_back(next)) {
      const auto logits = session.decode(next);
      next = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    }
    std::ofstream(path_of(golden.file)) << vocabulary->detokenize(tokens) << '\n';
  }
};

class StoredTexts : public ::testing::TestWithParam<Golden> {};

TEST_P(StoredTexts, EveryStoredTokenIsTheLikeliest) {
  const Teacher teacher;
  if (std::getenv("PALIMPSEST_UPDATE_GOLDEN") != nullptr) teacher.store(GetParam());
  const std::vector<TokenId> tokens = teacher.stored(GetParam().file);
  ASSERT_EQ(tokens.size(), kStored + 1U);  // BOS and the generated tokens

  std::vector<std::vector<float>> logits_of_one;
  for (const int threads : {1, 2}) {
    Session session = teacher.session(GetParam().method, CacheType::kF32, threads);
    float worst = 0;
    std::string where;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto logits = session.decode(tokens[i]);
      if (threads == 1)
        logits_of_one.emplace_back(logits.begin(), logits.end());
      else
        EXPECT_TRUE(std::ranges::equal(logits, logits_of_one[i])) << "two threads, token " << i;
      const float best = *std::ranges::max_element(logits), stored = logits[static_cast<std::size_t>(tokens[i + 1])];
      if (best - stored <= worst) continue;
      worst = best - stored;
      where = std::to_string(i + 1) + ", '" + teacher.vocabulary->piece(tokens[i + 1]) + "'";
    }
    EXPECT_LE(worst, kRounding) << "token " << where;
  }
}

INSTANTIATE_TEST_SUITE_P(GoldenTest, StoredTexts,
                         ::testing::Values(Golden{"stories-full.txt", "full"},
                                           Golden{"stories-streaming-64.txt", "streaming:budget=64"}));

std::vector<float> logits_of(const std::string& file, const std::string& method, CacheType type) {
  const Teacher teacher;
  Session session = teacher.session(method, type, 1);
  std::vector<float> out;
  for (const TokenId token : teacher.stored(file)) {
    const auto logits = session.decode(token);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

float max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(a[i] - b[i]));
  return out;
}

// Logits span 30; keys are rotated 340 times.
TEST(DefaultModelTest, RotatedKeysGiveTheLogitsOfKeysThatAreRotatedWhenRead) {
  const std::string file = "stories-streaming-64.txt", method = "streaming:budget=64";
  const auto read = logits_of(file, method, CacheType::kF32);
  for (const auto& [type, bound] : {std::pair{CacheType::kF32, 0.01F}, std::pair{CacheType::kF16, 0.25F}})
    EXPECT_LE(max_difference(logits_of(file, method + ",mechanism=shift,rerotate=fused", type), read), bound);
}

TEST(DefaultModelTest, CachesInF16GiveTheLogitsOfF32) {
  EXPECT_LE(max_difference(logits_of("stories-full.txt", "full", CacheType::kF16),
                           logits_of("stories-full.txt", "full", CacheType::kF32)),
            0.1F);
}

}  // namespace
}  // namespace palimpsest::testing
