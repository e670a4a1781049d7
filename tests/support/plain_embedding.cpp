#include "tests/support/plain_embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "palimpsest/cache/cache.h"

namespace palimpsest::testing {

std::vector<double> plain_embedding(Decoder& decoder, const std::vector<TokenId>& tokens, Pooling pooling) {
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  Cache cache(options);
  cache.insert(static_cast<int>(tokens.size()));
  const SequenceStep step{.cache = &cache, .tokens = tokens, .all_logits = true, .result = StepResult::kHidden};
  const auto rows = decoder.step({&step, 1});
  const auto width = static_cast<std::size_t>(decoder.model().hyper().width);
  EXPECT_EQ(rows.size(), tokens.size() * width);
  std::vector<double> out(width);
  for (std::size_t t = pooling == Pooling::kLast ? tokens.size() - 1 : 0; t < tokens.size(); ++t)
    for (std::size_t i = 0; i < width; ++i) out[i] += rows[t * width + i];
  double length = 0;
  for (const double x : out) length += x * x;
  for (double& x : out) x /= std::sqrt(length);
  return out;
}

}  // namespace palimpsest::testing
