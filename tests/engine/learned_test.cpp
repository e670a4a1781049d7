// Policy learned: against its formula in double precision and plain loops; scorer files that are missing, damaged or of
// another model; the default model's scorer.
#include <gtest/gtest.h>

#include <cstdio>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "tests/policy/random_head.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/scorer_file.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

PolicyModel model_of(int dim, int value_dim) {
  return {.path = "none.gguf",
          .fingerprint = 0xABCDEF0123456789u,
          .layers = 3,
          .kv_heads = 2,
          .head_dim = dim,
          .value_dim = value_dim,
          .heads = 6,
          .scorer = own_file("learned.scorer")};
}

TEST(Learned, ScoresAreLinearInKeyValueAndTheirNorms) {
  for (const auto& [dim, value_dim] : {std::pair{64, 64}, {8, 24}, {5, 3}}) {
    const PolicyModel model = model_of(dim, value_dim);
    const std::vector<float> weights = write_scorer(model.scorer, model, 1);
    const auto policy = make_policy("learned");
    EXPECT_TRUE(policy->signals().score_on_insert && policy->signals().model);
    policy->prepare(model);
    for (int table = 0; table < 6; ++table) {
      const RandomHead head(40, dim, value_dim, static_cast<unsigned>(table));
      HeadView view = head.view();
      view.table = table;
      std::vector<float> score(40, 0);
      policy->score(view, score);
      const float* w = &weights[static_cast<std::size_t>(table * (3 + dim + value_dim))];
      for (std::size_t t = 0; t < 40; ++t) {
        double key = 0, value = 0, product = 0;
        for (int d = 0; d < dim; ++d) {
          const double x = head.k[t][static_cast<std::size_t>(d)];
          key += x * x;
          product += x * static_cast<double>(w[3 + d]);
        }
        for (int d = 0; d < value_dim; ++d) {
          const double x = head.v[t][static_cast<std::size_t>(d)];
          value += x * x;
          product += x * static_cast<double>(w[3 + dim + d]);
        }
        const double expected = static_cast<double>(w[0]) + static_cast<double>(w[1]) * std::sqrt(key) +
                                static_cast<double>(w[2]) * std::sqrt(value) + product;
        EXPECT_NEAR(score[t], expected, 1e-5 * (1 + std::abs(expected))) << table << " " << t;
      }
    }
    std::remove(model.scorer.c_str());
  }
}

TEST(Learned, FilesThatAreNotItsOwnAreRefused) {
  const PolicyModel model = model_of(8, 8);
  const auto refusal = [&](const PolicyModel& asked) {
    const auto policy = make_policy("learned");
    return error_of([&] { policy->prepare(asked); });
  };
  EXPECT_NE(refusal(model).find("there is no scorer"), std::string::npos);
  PolicyModel other = model;
  other.scorer = "auto";
  EXPECT_NE(refusal(other).find("policy learned needs none.scorer beside the model: "), std::string::npos);
  other.path = "";
  EXPECT_NE(refusal(other).find("random weights"), std::string::npos);

  const std::vector<float> weights = write_scorer(model.scorer, model, 2);
  EXPECT_NO_THROW(make_policy("learned")->prepare(model));
  other = model;
  other.fingerprint ^= 1;
  EXPECT_NE(refusal(other).find("another model"), std::string::npos);
  for (int PolicyModel::*size :
       {&PolicyModel::layers, &PolicyModel::kv_heads, &PolicyModel::head_dim, &PolicyModel::value_dim}) {
    other = model;
    other.*size += 1;
    EXPECT_NE(refusal(other).find("shape"), std::string::npos);
  }

  const auto whole = scorer_bytes(model, weights);
  for (std::size_t length = 1; length < whole.size(); length += 7) {
    write_bytes(model.scorer, std::span(whole).first(length));
    EXPECT_NE(refusal(model), "") << length;
  }
  for (std::size_t at = 0; at < whole.size(); at += 5) {
    auto damaged = whole;
    damaged[at] ^= std::byte{4};
    write_bytes(model.scorer, damaged);
    EXPECT_NE(refusal(model), "") << at;
  }
  auto few = weights, infinite = weights;
  few.pop_back();
  infinite[3] = INFINITY;
  write_bytes(model.scorer, scorer_bytes(model, few));
  EXPECT_NE(refusal(model).find("number of weights"), std::string::npos);
  write_bytes(model.scorer, scorer_bytes(model, infinite));
  EXPECT_NE(refusal(model).find("not a number"), std::string::npos);
  std::remove(model.scorer.c_str());
}

TEST(Learned, ABudgetedStreamOfTheDefaultModel) {
  const auto path = std::filesystem::path(default_model());
  const auto decoder = std::make_shared<Decoder>(Model::load(path.string()), 1);
  SessionOptions options;
  options.method = parse_method("learned:budget=64");
  Session session(decoder, options);
  for (TokenId token = 300; token < 500; ++token) session.decode(token);
  EXPECT_EQ(session.cache().occupied(), 64);
  EXPECT_EQ(session.cache().evicted(), 136);

  options.method = parse_method("knorm:scorer=other.scorer");
  EXPECT_NE(error_of([&] { Session(decoder, options); }).find("scorer other.scorer with policy knorm"),
            std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
