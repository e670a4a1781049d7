// Policy temporal against its formula in double precision and plain loops; the default model's scorer.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "palimpsest/engine/sequence/session.h"
#include "tests/policy/random_head.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/scorer_file.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

TEST(Temporal, ScoresAddTimeAndAttentionToAScoreOfKeyAndValue) {
  const PolicyModel model{.path = "none.gguf",
                          .fingerprint = 7,
                          .layers = 3,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .value_dim = 24,
                          .heads = 6,
                          .scorer = own_file("temporal.temporal")};
  const std::vector<float> weights = write_scorer(model.scorer, model, 1, "temporal");
  const auto policy = make_policy("temporal");
  EXPECT_TRUE(policy->signals().insert_score && policy->signals().sums() && policy->signals().model);
  policy->prepare(model);
  constexpr std::size_t kTokens = 40, kEmpty = 11;
  for (int table = 0; table < 6; ++table) {
    RandomHead head(kTokens, 8, 24, static_cast<unsigned>(table));
    const auto weight = [&](int i) { return static_cast<double>(weights[static_cast<std::size_t>(table * 41 + i)]); };
    HeadView view = head.view();
    view.table = table;
    std::vector<float> inserted(kTokens), score(kTokens, 0), sums;
    policy->score_inserted(view, inserted);
    for (std::size_t t = 0; t < kTokens; ++t) sums.push_back(static_cast<float>(3 * head.w[(t * 7) % kTokens]));
    head.position[kEmpty] = kNoPosition;
    head.attention[kEmpty] = 5;
    view = head.view();
    view.table = table;
    view.attention_sum = sums;
    view.insert_score = inserted;
    view.keys = view.values = {};
    policy->score(view, score);
    double all = 0;
    for (std::size_t t = 0; t < kTokens; ++t) all += t == kEmpty ? 0 : static_cast<double>(head.attention[t]);
    for (std::size_t t = 0; t < kTokens; ++t) {
      if (t == kEmpty) continue;
      double key = 0, value = 0, product = 0;
      for (std::size_t d = 0; d < 8; ++d) {
        key += head.k[t][d] * head.k[t][d];
        product += head.k[t][d] * weight(9 + static_cast<int>(d));
      }
      for (std::size_t d = 0; d < 24; ++d) {
        value += head.v[t][d] * head.v[t][d];
        product += head.v[t][d] * weight(17 + static_cast<int>(d));
      }
      const double base = weight(0) + weight(1) * std::sqrt(key) + weight(2) * std::sqrt(value) + product;
      EXPECT_NEAR(inserted[t], base, 1e-5 * (1 + std::abs(base))) << table << " " << t;
      const double age = static_cast<double>(kTokens - t), sum = static_cast<double>(sums[t]);
      const double lately = static_cast<double>(head.attention[t]) / all;
      const double expected = base + weight(3) * std::log(age) + weight(4) / std::sqrt(age) +
                              weight(5) * std::log(sum + 1e-4) + weight(6) * std::log(lately + 1e-4) +
                              weight(7) * std::sqrt(sum / age) + weight(8) * std::sqrt(lately);
      EXPECT_NEAR(score[t], expected, 1e-4 * (1 + std::abs(expected))) << table << " " << t;
    }
  }
  EXPECT_NE(error_of([&] { make_policy("learned")->prepare(model); }).find("is no scorer for policy learned"),
            std::string::npos);
  std::remove(model.scorer.c_str());
}

TEST(Temporal, ABudgetedStreamOfTheDefaultModel) {
  const auto path = std::filesystem::path(default_model());
  const auto decoder = std::make_shared<Decoder>(Model::load(path.string()), 1);
  SessionOptions options;
  options.method = parse_method("temporal:budget=64");
  Session session(decoder, options);
  for (TokenId token = 300; token < 500; ++token) session.decode(token);
  EXPECT_EQ(session.cache().occupied(), 64);
  EXPECT_EQ(session.cache().evicted(), 136);
}

}  // namespace
}  // namespace palimpsest::testing
