// critical in two stages and with projected values, vase, qfilter and chunkkv's spiky chunks, against their formulas in
// double precision and plain loops.
#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>

#include "palimpsest/policy/of_budget.h"
#include "tests/policy/random_head.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/split_gguf.h"

namespace palimpsest::testing {
namespace {

std::vector<double> max_of_neighbours(const std::vector<double>& in) {
  std::vector<double> out;
  for (int i = 0; i < static_cast<int>(in.size()); ++i) {
    double max = 0;
    for (int j = std::max(0, i - 3); j <= std::min(static_cast<int>(in.size()) - 1, i + 3); ++j)
      max = std::max(max, in[at(j)]);
    out.push_back(max);
  }
  return out;
}

// The first half of the budget: the window's tokens, then the highest weights; the second: by the products.
TEST(CriticalStages, TheFirstShareOfTheBudgetGoesByTheWeightsAlone) {
  for (const int budget : {0, 20, 50, 90, 400}) {
    const RandomHead head(100, 4, 8, 31);
    const auto policy = make_policy("critical", {{"first", "0.5"}, {"pooling", "none"}, {"window", "12"}});
    set_budgets(*policy, {}, budget);
    std::vector<float> norms(100), score(100, 9);
    policy->score_inserted(head.view(), norms);
    HeadView view = head.view();
    view.insert_score = norms;
    policy->score(view, score);

    std::vector<std::size_t> by_weight(100);
    std::iota(by_weight.begin(), by_weight.end(), std::size_t{0});
    std::ranges::sort(by_weight, std::greater(), [&](std::size_t i) { return std::pair(i >= 88, head.w[i]); });
    const std::size_t first = std::min<std::size_t>(100, at(budget / 2));
    const std::set<std::size_t> chosen(by_weight.begin(), by_weight.begin() + static_cast<std::ptrdiff_t>(first));
    float least = INFINITY, most = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      if (chosen.contains(i)) {
        least = std::min(least, score[i]);
        continue;
      }
      most = std::max(most, score[i]);
      double square = 0;
      for (const double x : head.v[i]) square += x * x;
      EXPECT_NEAR(score[i], (head.w[i] + 12e-4) * std::sqrt(square), 1e-6) << i << " of " << budget;
    }
    EXPECT_GT(least, most) << budget;
    for (const std::size_t a : chosen)  // ordered by their weights
      for (const std::size_t b : chosen)
        if (head.w[a] > head.w[b] + 1e-5) {
          EXPECT_GT(score[a], score[b]);
        }
  }
}

TEST(CriticalStages, EachHeadHasItsOwnBudget) {
  const RandomHead head(80, 4, 4, 32);
  const auto policy = make_policy("critical", {{"first", "0.25"}});
  const std::vector<int> budgets = {40, 8};
  set_budgets(*policy, budgets, 60);
  const std::vector<float> ones(80, 1);
  for (const auto& [table, count] : {std::pair{0, 10}, {1, 2}, {2, 15}}) {
    HeadView view = head.view();
    view.insert_score = ones;
    view.table = table;
    std::vector<float> score(80);
    policy->score(view, score);
    EXPECT_EQ(std::ranges::count_if(score, [](float x) { return x > 1e29F; }), count) << table;
  }
}

// A model file of two attention layers (blk.1 has none), 2 KV heads of 3 query heads, 16 values each.
class ProjectionFile {
 public:
  static constexpr int kHidden = 70, kWidth = 16, kGroup = 3, kHeads = 2, kRow = kWidth * kGroup * kHeads;

  explicit ProjectionFile(ggml_type type) : path_(own_file(std::string("projection-") + ggml_type_name(type))) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<NewTensor> tensors;
    std::vector<std::vector<char>> bytes;
    for (const int layer : {0, 2}) {
      std::vector<float> weights(std::size_t{kHidden} * kRow);
      for (float& w : weights) w = normal(random);
      auto& data = bytes.emplace_back(ggml_row_size(type, kRow) * kHidden);
      if (type == GGML_TYPE_F32)
        std::copy_n(reinterpret_cast<const char*>(weights.data()), data.size(), data.data());
      else
        ggml_quantize_chunk(type, weights.data(), data.data(), 0, kHidden, kRow, nullptr);
      if (type != GGML_TYPE_F32)
        ggml_get_type_traits(type)->to_float(data.data(), weights.data(), std::int64_t{kHidden} * kRow);
      weights_.push_back(weights);
      tensors.push_back({"blk." + std::to_string(layer) + ".attn_output.weight", type, {kRow, kHidden, 1, 1}, nullptr});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = bytes[i].data();
    const gguf_context_ptr out(gguf_init_empty());
    gguf_set_val_str(out.get(), "general.architecture", "llama");
    write_gguf(out, tensors, path_);
  }
  ~ProjectionFile() { std::remove(path_.c_str()); }

  PolicyModel model() const {
    PolicyModel out;
    out.path = path_;
    out.layers = 3, out.kv_heads = kHeads, out.value_dim = kWidth, out.heads = 2 * kHeads, out.group = kGroup;
    return out;
  }
  double size_of(int table, const std::vector<double>& v) const {
    const auto& weights = weights_[at(table / kHeads)];
    double sum = 0;
    for (int member = 0; member < kGroup; ++member)
      for (int row = 0; row < kHidden; ++row) {
        double product = 0;
        for (int d = 0; d < kWidth; ++d)
          product += double{weights[at(row * kRow + ((table % kHeads) * kGroup + member) * kWidth + d)]} * v[at(d)];
        sum += std::abs(product) / kGroup;
      }
    return sum;
  }

 private:
  std::string path_;
  std::vector<std::vector<float>> weights_;  // [layers with attention][hidden][row], as converted from the type
};

TEST(CriticalProjected, SizeIsTheMeanL1NormOfTheProjectedValue) {
  // Q8_0 has blocks of 32: the second head begins at 48, within one.
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    const ProjectionFile file(type);
    const auto policy = make_policy("critical", {{"size", "projected"}});
    EXPECT_TRUE(policy->signals().model && policy->signals().insert_score);
    policy->prepare(file.model());
    const RandomHead head(9, 4, ProjectionFile::kWidth, 33);
    for (int table = 0; table < 4; ++table) {
      HeadView view = head.view();
      view.table = table;
      std::vector<float> size(9);
      policy->score_inserted(view, size);
      for (std::size_t i = 0; i < 9; ++i) {
        const double wanted = file.size_of(table, head.v[i]);
        EXPECT_NEAR(size[i], wanted, 1e-5 * wanted) << ggml_type_name(type) << " " << table << " " << i;
      }
    }
  }
  EXPECT_FALSE(make_policy("critical")->signals().model);
}

TEST(CriticalProjected, AModelWithoutSuchWeightsIsAnError) {
  const ProjectionFile file(GGML_TYPE_F32);
  const auto refusal = [](const PolicyModel& model) {
    return error_of([&] { make_policy("critical", {{"size", "projected"}})->prepare(model); });
  };
  PolicyModel model = file.model();
  model.path.clear();
  EXPECT_EQ(refusal(model),
            "policy critical: size=projected needs the model's output projections: this model has no file; use "
            "size=value");
  for (int PolicyModel::*const size : {&PolicyModel::value_dim, &PolicyModel::heads, &PolicyModel::group}) {
    model = file.model();
    ++(model.*size);
    EXPECT_NE(refusal(model).find("its layers have heads of different shapes"), std::string::npos);
  }
  model = file.model();
  model.path.clear();
  EXPECT_NO_THROW(make_policy("critical", {{"first", "0.5"}})->prepare(model));
}

TEST(Vase, ValuesOfTheLargestRangeRankAboveAllOthers) {
  const RandomHead head(60, 4, 8, 34);
  const auto policy = make_policy("vase", {{"large", "0.25"}});
  set_budgets(*policy, {}, 40);
  std::vector<float> range(60), score(60);
  policy->score_inserted(head.view(), range);
  for (std::size_t i = 0; i < 60; ++i) {
    const auto [min, max] = std::ranges::minmax(head.v[i]);
    EXPECT_NEAR(range[i], max - min, 1e-6);
  }
  HeadView view = head.view();
  view.insert_score = range;
  policy->score(view, score);
  std::vector<std::size_t> by_score(60), by_range(60);
  std::iota(by_score.begin(), by_score.end(), std::size_t{0});
  by_range = by_score;
  std::ranges::sort(by_score, std::greater(), [&](std::size_t i) { return score[i]; });
  std::ranges::sort(by_range, std::greater(), [&](std::size_t i) { return range[i]; });
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(by_score[i], by_range[i]) << i;
  EXPECT_LT(score[by_score[10]], 1e29F);
  std::vector<float> again(60);
  policy->score(view, again);
  EXPECT_EQ(score, again);
  view.table = 5;
  policy->score(view, again);
  EXPECT_NE(score, again);
}

// The highest score is a draw in proportion to the weights, over many newest positions and heads.
TEST(Vase, OthersAreDrawnByTheirAttention) {
  RandomHead head(12, 4, 4, 35);
  head.w.assign(12, 0);
  head.w[0] = 2, head.w[11] = 1;  // pooled over 7: tokens 0 to 3 and 8 to 11
  head.attention.assign(head.w.begin(), head.w.end());
  const auto policy = make_policy("vase", {{"large", "0"}});
  set_budgets(*policy, {}, 12);
  const std::vector<double> pooled = max_of_neighbours(head.w);
  double sum = 0;
  for (const double w : pooled) sum += w + 32e-4;
  std::vector<int> won(12, 0);
  constexpr int kDraws = 8000;
  for (int draw = 0; draw < kDraws; ++draw) {
    head.position[11] = 11 + draw % 2000;
    HeadView view = head.view();
    view.table = draw / 2000;
    const std::vector<float> range(12, 0);
    view.insert_score = range;
    std::vector<float> score(12);
    policy->score(view, score);
    ++won[static_cast<std::size_t>(std::ranges::max_element(score) - score.begin())];
  }
  for (std::size_t i = 0; i < 12; ++i) {
    const double chance = (pooled[i] + 32e-4) / sum;
    EXPECT_NEAR(won[i], kDraws * chance, 5 * std::sqrt(kDraws * chance) + 1) << i;
  }
}

// The eigenvector of the largest eigenvalue of a symmetric matrix, by Jacobi's rotations.
std::vector<double> first_eigenvector(Matrix a) {
  const std::size_t n = a.size();
  Matrix vectors(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i) vectors[i][i] = 1;
  for (int sweep = 0; sweep < 60; ++sweep)
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        const double angle = 0.5 * std::atan2(2 * a[p][q], a[p][p] - a[q][q]);
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[k][p], y = a[k][q];
          a[k][p] = c * x + s * y, a[k][q] = c * y - s * x;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a[p][k], y = a[q][k];
          a[p][k] = c * x + s * y, a[q][k] = c * y - s * x;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = vectors[k][p], y = vectors[k][q];
          vectors[k][p] = c * x + s * y, vectors[k][q] = c * y - s * x;
        }
      }
  std::size_t best = 0;
  for (std::size_t i = 0; i < n; ++i)
    if (a[i][i] > a[best][best]) best = i;
  std::vector<double> out;
  for (std::size_t k = 0; k < n; ++k) out.push_back(vectors[k][best]);
  return out;
}

TEST(QFilter, ScoreIsTheKeyAlongTheMainDirectionOfTheQueries) {
  constexpr std::size_t kDim = 10;
  for (const int group : {1, 3}) {
    const RandomHead head(40, kDim, 4, 36), means(group, kDim, 1, 37);
    std::vector<float> covariances;
    std::vector<double> filter(kDim, 0);
    for (int h = 0; h < group; ++h) {
      const RandomHead spread(20, kDim, 1, 38 + static_cast<unsigned>(h));
      Matrix moment(kDim, std::vector<double>(kDim, 0));
      for (std::size_t a = 0; a < kDim; ++a)
        for (std::size_t b = 0; b < kDim; ++b) {
          double sum = 0;
          for (const auto& row : spread.k) sum += row[a] * row[b] / 20;
          covariances.push_back(static_cast<float>(sum));
          moment[a][b] = double{covariances.back()} + means.k[at(h)][a] * means.k[at(h)][b];
        }
      const std::vector<double> u = first_eigenvector(moment);
      double along = 0;
      for (std::size_t d = 0; d < kDim; ++d) along += u[d] * means.k[at(h)][d];
      for (std::size_t d = 0; d < kDim; ++d) filter[d] += (along < 0 ? -u[d] : u[d]) / group;
    }
    HeadView view = head.view();
    view.queries.mean = {means.keys.data(), group, kDim, kDim};
    view.queries.covariance = {covariances.data(), group * static_cast<int>(kDim), kDim, kDim};
    std::vector<float> score(40);
    make_policy("qfilter")->score(view, score);
    for (std::size_t i = 0; i < 40; ++i) {
      double wanted = 0;
      for (std::size_t d = 0; d < kDim; ++d) wanted += filter[d] * head.k[i][d];
      EXPECT_NEAR(score[i], wanted, 1e-4) << i << " of group " << group;
    }
  }
  // No query so far: all keys are alike.
  const RandomHead head(5, 4, 4, 39);
  const std::vector<float> zeros(4 + 16, 0);
  HeadView view = head.view();
  view.queries.mean = {zeros.data(), 1, 4, 4};
  view.queries.covariance = {zeros.data() + 4, 4, 4, 4};
  std::vector<float> score(5, 9);
  make_policy("qfilter")->score(view, score);
  EXPECT_EQ(score, std::vector<float>(5, 0));
}

TEST(ChunkKvSpiky, OfAnImportantChunkOfFewHighWeightsOnlyTheBestStay) {
  RandomHead head(24, 4, 4, 40);
  // Chunks of 6: even and low; one high weight; even and high; even and lowest.
  head.w = {2, 2, 2, 2, 2, 2, 1, 30, 1, 4, 1, 1, 5, 5, 5, 5, 5, 5, 1, 1, 1, 1, 1, 1};
  head.attention.assign(head.w.begin(), head.w.end());
  const auto score = [&](const PolicyOptions& more) {
    PolicyOptions options = {{"pooling", "none"}, {"chunk", "6"}};
    options.insert(more.begin(), more.end());
    std::vector<float> out(24);
    make_policy("chunkkv", options)->score(head.view(), out);
    return out;
  };
  const std::vector<float> plain = score({}), spiky = score({{"spiky", "2"}});
  for (std::size_t i = 0; i < 24; ++i) {
    if (i < 6 || i > 11 || i == 7 || i == 9) {
      EXPECT_EQ(spiky[i], plain[i]) << i;
    } else {
      EXPECT_LT(spiky[i], *std::ranges::min_element(plain)) << i;
    }
  }
  EXPECT_GT(spiky[7], spiky[12]);  // its mean is the highest
}

}  // namespace
}  // namespace palimpsest::testing
