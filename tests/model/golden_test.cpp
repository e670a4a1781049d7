// The whole path on a real trained model: its author's published greedy text, to the letter.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

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

TEST(GoldenTest, GreedyTextFromTheEmptyPromptIsThePublishedOne) {
  const auto shared = testing::shared_dir();
  if (!shared) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
  const auto dir = *shared / "models/stories260K";
  std::ifstream file(dir / "golden-greedy.txt", std::ios::binary);
  std::string golden((std::istreambuf_iterator<char>(file)), {});
  if (golden.ends_with('\n')) golden.pop_back();
  ASSERT_EQ(golden.size(), 565U);
  const auto model = Model::load((dir / "stories260K.gguf").string());
  const auto vocabulary = Vocabulary::load((dir / "stories260K.gguf").string());
  const std::string one = greedy(model, *vocabulary, 1, CacheType::kF32, 256);
  EXPECT_EQ(one, golden);
  EXPECT_EQ(greedy(model, *vocabulary, 2, CacheType::kF32, 256), one);
  EXPECT_EQ(greedy(model, *vocabulary, 3, CacheType::kF32, 256), one);
}

}  // namespace
}  // namespace palimpsest
