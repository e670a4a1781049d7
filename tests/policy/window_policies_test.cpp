// Policies with an attention window, against double precision and plain loops: the next victims and their scores.
// Weights are averaged over query groups before a policy gets them (tests/attention, tests/exactness).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/pool.h"
#include "tests/policy/random_head.h"

namespace palimpsest::testing {
namespace {

// Beyond the row's ends are zeros.
std::vector<double> pooled(const std::vector<double>& in, WindowPooling how = WindowPooling::kMax, int kernel = 7) {
  std::vector<double> out;
  for (int i = 0; i < static_cast<int>(in.size()); ++i) {
    double max = 0, sum = 0;
    for (int j = i - kernel / 2; j <= i + kernel / 2; ++j)
      if (j >= 0 && j < static_cast<int>(in.size())) {
        max = std::max(max, in[static_cast<std::size_t>(j)]);
        sum += in[static_cast<std::size_t>(j)];
      }
    out.push_back(how == WindowPooling::kMax       ? max
                  : how == WindowPooling::kAverage ? sum / kernel
                                                   : in[static_cast<std::size_t>(i)]);
  }
  return out;
}

// The window's own tokens apart from those before it.
std::vector<double> pooled_apart(const std::vector<double>& in, int window, WindowPooling how = WindowPooling::kMax,
                                 int kernel = 7) {
  const auto middle = in.begin() + std::max<std::ptrdiff_t>(0, std::ssize(in) - window);
  std::vector<double> out = pooled({in.begin(), middle}, how, kernel);
  const std::vector<double> own = pooled({middle, in.end()}, how, kernel);
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

void expect_near(const std::vector<float>& score, const std::vector<double>& golden) {
  ASSERT_EQ(score.size(), golden.size());
  for (std::size_t i = 0; i < score.size(); ++i)
    EXPECT_NEAR(score[i], golden[i], 1e-6 * std::max(1.0, std::abs(golden[i]))) << i;
}

TEST(Tova, ScoreIsTheLastQuerysAttention) {
  const RandomHead head(50, 4, 4, 1);
  std::vector<float> score(50, 9);
  const auto tova = make_policy("tova");
  tova->score(head.view(), score);
  expect_near(score, head.w);
  EXPECT_EQ(tova->signals().attention_window->queries, 1);
  EXPECT_TRUE(tova->signals().whole_layer() && tova->signals().at_decision());
}

constexpr std::pair<const char*, WindowPooling> kPoolings[] = {
    {"max", WindowPooling::kMax}, {"avg", WindowPooling::kAverage}, {"none", WindowPooling::kNone}};

TEST(SnapKv, ScoreIsTheWindowsAttentionPooledOverNeighbours) {
  for (const int tokens : {1, 2, 3, 6, 7, 8, 100}) {
    const RandomHead head(tokens, 4, 4, 2);
    std::vector<float> score(static_cast<std::size_t>(tokens), 9);
    make_policy("snapkv")->score(head.view(), score);
    expect_near(score, pooled_apart(head.w, 32));
    for (const auto& [name, how] : kPoolings)
      for (const int window : {1, 8, 50})
        for (const int kernel : {1, 3, 7, 15}) {
          const PolicyOptions options = {
              {"window", std::to_string(window)}, {"pooling", name}, {"kernel", std::to_string(kernel)}};
          make_policy("snapkv", options)->score(head.view(), score);
          expect_near(score, pooled_apart(head.w, window, how, kernel));
        }
  }
  EXPECT_EQ(make_policy("snapkv")->signals().attention_window->queries, 32);
  EXPECT_EQ(make_policy("snapkv", {{"window", "9"}})->signals().attention_window->queries, 9);
  EXPECT_TRUE(make_policy("snapkv")->signals().ordered);
}

TEST(Critical, ScoreIsThePooledAttentionTimesTheNormOfTheValue) {
  for (const int tokens : {1, 6, 100}) {
    const RandomHead head(tokens, 4, 8, 5);
    const auto policy = make_policy("critical");
    EXPECT_TRUE(policy->signals().insert_score && policy->signals().ordered);
    std::vector<float> norms(static_cast<std::size_t>(tokens)), score(norms.size(), 9);
    policy->score_inserted(head.view(), norms);
    HeadView view = head.view();
    view.insert_score = norms;
    policy->score(view, score);
    std::vector<double> golden = pooled_apart(head.w, tokens);
    for (std::size_t i = 0; i < golden.size(); ++i) {
      double square = 0;
      for (const double x : head.v[i]) square += x * x;
      golden[i] = (golden[i] + 32e-4) * std::sqrt(square);
    }
    expect_near(score, golden);
  }
}

TEST(SnapKv, NanIsIgnoredAmongItsNeighbours) {
  for (int bad = 0; bad < 12; ++bad) {
    RandomHead head(12, 4, 4, 3);
    head.attention[static_cast<std::size_t>(bad)] = NAN;
    head.w[static_cast<std::size_t>(bad)] = 0;
    std::vector<float> score(12);
    make_policy("snapkv")->score(head.view(), score);
    expect_near(score, pooled(head.w));
  }
}

// Attention of random queries over random keys: mean over the group, of all queries and of the last 32 (the paper's
// equation 2); the kept set follows from the scores.
TEST(GlobalLocal, ScoreIsTheGreaterOfBothAtOneScalePooledOverNeighbours) {
  const auto policy = make_policy("global-local");
  EXPECT_EQ(make_policy("global-local", {{"window", "16"}})->signals().attention_window->queries, 16);
  const Signals signals = policy->signals();
  EXPECT_TRUE(signals.attention_window == (AttentionWindow{.queries = 32, .past = true}) && signals.sums() &&
              signals.ordered);
  for (const int group : {1, 4, 8})
    for (const int tokens : {1, 5, 33, 150}) {
      std::mt19937 random(static_cast<unsigned>(group * 1000 + tokens));
      std::normal_distribution<double> normal;
      constexpr int kDim = 16;
      const RandomHead head(tokens, kDim, 4, static_cast<unsigned>(tokens));
      std::vector<double> global(static_cast<std::size_t>(tokens), 0), local = global;
      for (int query = 0; query < tokens; ++query)
        for (int g = 0; g < group; ++g) {
          std::vector<double> p;
          double sum = 0;
          std::vector<double> q;
          for (int d = 0; d < kDim; ++d) q.push_back(normal(random));
          for (int j = 0; j <= query; ++j) {
            double product = 0;
            for (int d = 0; d < kDim; ++d)
              product +=
                  q[static_cast<std::size_t>(d)] * head.k[static_cast<std::size_t>(j)][static_cast<std::size_t>(d)];
            p.push_back(std::exp(product / 4));
            sum += p.back();
          }
          for (std::size_t j = 0; j < p.size(); ++j) {
            global[j] += p[j] / sum / group;
            if (query >= tokens - 32) local[j] += p[j] / sum / group;
          }
        }
      double mean_global = 0, mean_local = 0;
      for (std::size_t j = 0; j < global.size(); ++j) {
        mean_global += global[j] / tokens;
        mean_local += local[j] / tokens;
      }
      std::vector<double> golden;
      for (std::size_t j = 0; j < global.size(); ++j)
        golden.push_back(std::max(global[j] * mean_local / mean_global, local[j]));
      const std::vector<double> both = golden;
      golden = pooled(golden, WindowPooling::kAverage);

      const std::vector<float> sums(global.begin(), global.end()), window(local.begin(), local.end());
      std::vector<float> score(static_cast<std::size_t>(tokens), 9);
      policy->score({.position = head.position, .attention = window, .attention_sum = sums, .inserted = 1}, score);
      expect_near(score, golden);
      const HeadView view = {.position = head.position, .attention = window, .attention_sum = sums, .inserted = 1};
      for (const auto& [name, how] : kPoolings)
        for (const int kernel : {3, 7})
          for (const auto& [by, expected] : std::initializer_list<std::pair<const char*, const std::vector<double>*>>{
                   {"global", &global}, {"local", &local}, {"both", &both}}) {
            std::vector<float> other(score.size(), 9);
            const PolicyOptions options = {{"score", by}, {"pooling", name}, {"kernel", std::to_string(kernel)}};
            make_policy("global-local", options)->score(view, other);
            expect_near(other, pooled(*expected, how, kernel));
          }
      const auto order = [&](const auto& by) {
        std::vector<std::size_t> all(static_cast<std::size_t>(tokens));
        std::iota(all.begin(), all.end(), std::size_t{0});
        std::ranges::stable_sort(all, std::greater(), [&](std::size_t i) { return by[i]; });
        all.resize((all.size() + 1) / 2);
        std::ranges::sort(all);
        return all;
      };
      EXPECT_EQ(order(score), order(golden)) << group << " " << tokens;
    }
}

TEST(Scissorhands, CountsQueriesOfAnEvenShareWhichFade) {
  const auto policy = make_policy("scissorhands");
  std::vector<float> score(40, 0);
  std::vector<double> golden(40, 0);
  for (unsigned query = 0; query < 300; ++query) {
    const RandomHead head(40, 4, 4, 10 + query);
    policy->score(head.view(), score);
    for (std::size_t i = 0; i < golden.size(); ++i)
      golden[i] = golden[i] * (1 - 1 / 400.0) + (head.w[i] >= 1 / 40.0 ? 1 : 0);
  }
  for (std::size_t i = 0; i < golden.size(); ++i) EXPECT_NEAR(score[i], golden[i], 1e-5 * golden[i]);
}

// Empty slots do not count.
TEST(Scissorhands, EmptySlotsDoNotCount) {
  const std::vector<Position> position = {0, kNoPosition, 1, kNoPosition};
  const std::vector<float> attention = {0.6F, 0, 0.4F, 0};
  std::vector<float> score(4, 0);
  make_policy("scissorhands")->score({.position = position, .attention = attention, .inserted = 1}, score);
  EXPECT_EQ(score[0], 1);
  EXPECT_EQ(score[2], 0);  // an even share of two tokens is a half
}

TEST(RKv, ScoreIsAttentionLessWhatLaterKeysRepeat) {
  const auto policy = make_policy("r-kv");
  // Two dimensions: most keys are similar to many. 64: to few or none.
  for (const auto& [tokens, dim] : {std::pair{60, 64}, {33, 80}, {5, 3}, {200, 2}, {130, 6}, {1, 4}}) {
    RandomHead head(tokens, dim, 4, 77 + static_cast<unsigned>(dim));
    std::vector<float> score(static_cast<std::size_t>(tokens), 0);
    policy->score(head.view(), score);

    const std::size_t n = head.k.size();
    Matrix cosine(n, std::vector<double>(n, 0));
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        double product = 0, a = 0, b = 0;
        for (int d = 0; d < dim; ++d) {
          const auto at = static_cast<std::size_t>(d);
          product += head.k[i][at] * head.k[j][at];
          a += head.k[i][at] * head.k[i][at];
          b += head.k[j][at] * head.k[j][at];
        }
        if (i != j) cosine[i][j] = product / std::sqrt(a * b);
      }
    for (auto& row : cosine)
      for (std::size_t j = n; j-- > 0;)
        if (row[j] > 0.5) {
          row[j] = 0;
          break;
        }
    std::vector<double> share(n, 0);
    double sum = 0;
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t i = 0; i < n; ++i) share[j] += cosine[i][j] / static_cast<double>(n);
      sum += std::exp(share[j]);
    }
    const std::vector<double> attention = pooled(head.w);
    std::vector<double> golden;
    for (std::size_t j = 0; j < n; ++j)
      golden.push_back(0.07 * attention[j] / 8 - (1 - 0.07) * std::exp(share[j]) / sum);
    expect_near(score, golden);
  }
}

// Similar keys are found without a comparison of all pairs, and the mean of all cosines needs none.
TEST(RKv, ComparesFewPairsOfSimilarKeys) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "compares times";
#endif
  constexpr int kTokens = 4000, kDim = 64;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> keys(std::size_t{kTokens} * kDim), score(kTokens, 0), products(kTokens);
  for (float& x : keys) x = 2 + normal(random);  // cosines of about 0.8
  const std::vector<float> attention(kTokens, 0.5F);
  std::vector<Position> position(kTokens);
  std::iota(position.begin(), position.end(), Position{0});
  const Rows rows{keys.data(), kTokens, kDim, kDim};
  const auto seconds = [](auto action) {
    double best = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto start = std::chrono::steady_clock::now();
      action();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  const auto policy = make_policy("r-kv");
  const double scoring =
      seconds([&] { policy->score({.position = position, .attention = attention, .keys = rows}, score); });
  const double pairs = seconds([&] {
    for (int i = 1; i < kTokens; ++i)
      dot_rows(rows.rows(0, i), rows[i], std::span(products).first(static_cast<std::size_t>(i)));
  });
  EXPECT_LT(scoring, pairs / 4);
}

// Among equal keys, each row spares the newest other one.
TEST(RKv, TheNewestOfRepeatedTokensIsSpared) {
  std::vector<float> keys(20 * 20, 0), score(20, 0);
  const std::vector<float> attention(20, 0.05F);
  for (std::size_t i = 0; i < 20; ++i) keys[20 * i + (i == 9 || i == 17 ? 3 : i)] = 1;
  std::vector<Position> position(20);
  std::iota(position.begin(), position.end(), Position{0});
  make_policy("r-kv")->score({.position = position, .attention = attention, .keys = {keys.data(), 20, 20, 20}}, score);
  EXPECT_LT(score[3], score[9]);
  EXPECT_LT(score[9], score[17]);
  EXPECT_EQ(score[17], score[0]);
}

}  // namespace
}  // namespace palimpsest::testing
