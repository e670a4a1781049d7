// The whole path on trained models: the greedy text that stories260K's author published, to the letter; stored greedy
// texts of the default model, token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "palimpsest/engine/session.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/shared_dir.h"

namespace palimpsest {
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
  const auto shared = testing::shared_dir();
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

// Texts that the default model wrote (`palimpsest run --temp 0 -n 400 -t 1 --cache-type f32`), read token by token:
// each stored token has the highest logit, or one that is lower by no more than rounding. Another CPU sums in another
// order, so that a free-running greedy text would leave the stored one at the first near-tie; the tokens that are read
// here are the same on all.
struct Golden {
  const char *file, *method;
  CacheType type;
  float rounding;  // of a logit; they span 30
};

class DefaultModelTest : public ::testing::TestWithParam<Golden> {};

TEST_P(DefaultModelTest, EveryStoredTokenIsTheLikeliest) {
  const auto path = testing::source_dir() / "models/palimpsest-stories.gguf";
  const auto vocabulary = Vocabulary::load(path.string());
  const std::string golden = content_of(testing::source_dir() / "tests/model/golden" / GetParam().file);
  const std::vector<TokenId> tokens = vocabulary->tokenize(golden, /*add_bos=*/true, /*special=*/false);
  ASSERT_EQ(tokens.size(), 401U);  // BOS and what was written

  const auto model = Model::load(path.string());
  std::vector<std::vector<float>> logits_of_one;
  for (const int threads : {1, 2}) {
    SessionOptions options;
    options.method = parse_method(GetParam().method);
    options.cache_type = GetParam().type;
    Session session(std::make_shared<Decoder>(model, threads), options);
    int likeliest = 0;
    float worst = 0;
    std::string where;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto logits = session.decode(tokens[i]);
      if (threads == 1)
        logits_of_one.emplace_back(logits.begin(), logits.end());
      else
        EXPECT_TRUE(std::ranges::equal(logits, logits_of_one[i])) << "two threads, token " << i;
      const float best = *std::ranges::max_element(logits), stored = logits[static_cast<std::size_t>(tokens[i + 1])];
      likeliest += best == stored ? 1 : 0;
      if (best - stored <= worst) continue;
      worst = best - stored;
      where = std::to_string(i + 1) + ", '" + vocabulary->piece(tokens[i + 1]) + "'";
    }
    EXPECT_LE(worst, GetParam().rounding) << "token " << where;
    EXPECT_GE(likeliest, 390);
  }
}

INSTANTIATE_TEST_SUITE_P(
    GoldenTest, DefaultModelTest,
    ::testing::Values(Golden{"stories-full.txt", "full", CacheType::kF32, 0.05F},
                      Golden{"stories-full.txt", "full", CacheType::kF16, 0.1F},
                      Golden{"stories-streaming-64.txt", "streaming:budget=64", CacheType::kF32, 0.05F},
                      Golden{"stories-streaming-64.txt", "streaming:budget=64,mechanism=shift,rerotate=fused",
                             CacheType::kF16, 0.1F}));

}  // namespace
}  // namespace palimpsest
