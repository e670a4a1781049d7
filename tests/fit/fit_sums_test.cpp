// Files recover known scorers from observations that these scorers made.
#include "palimpsest/fit/fit_sums.h"

#include <gtest/gtest.h>

#include <random>

#include "palimpsest/core/vectors.h"
#include "palimpsest/fit/fit_state.h"
#include "palimpsest/policy/temporal_inputs.h"
#include "tests/eval/six_heads.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

constexpr int kWidth = 16;

std::vector<float> normals(std::size_t count, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

// Scores of known scorers: `repeated` by one of 3 + 2 x 16 weights, later attention by one of 9 + 2 x 16.
struct Made {
  Observation of;
  std::vector<float> kvzap = normals(3 + 2 * kWidth, 5, 0.05F), temporal = normals(9 + 2 * kWidth, 6, 0.01F);
};

Made make(unsigned seed) {
  Made made;
  Observation& of = made.of;
  of.heads = kSixHeads, of.tokens = 1024, of.key_width = of.value_width = kWidth;
  const std::size_t rows = of.row(kSixHeads);
  of.keys = normals(rows * kWidth, seed, 1);
  of.values = normals(rows * kWidth, seed + 1, 2);
  of.repeated.resize(rows), of.end.resize(rows);
  made.kvzap[0] = -4;    // ln of a weight, between 1e-4 and 1
  made.temporal[0] = 1;  // the root of attention: positive
  const auto common = [&](const std::vector<float>& w, std::size_t beside, std::size_t row) {
    const auto key = std::span(of.keys).subspan(row * kWidth, kWidth);
    const auto value = std::span(of.values).subspan(row * kWidth, kWidth);
    return w[0] + w[1] * norm(key) + w[2] * norm(value) + dot(std::span(w).subspan(beside, kWidth), key) +
           dot(std::span(w).subspan(beside + kWidth), value);
  };
  for (std::size_t row = 0; row < rows; ++row) of.repeated[row] = std::exp(common(made.kvzap, 3, row));
  // One time; the attention before it is random, that after it is the scorer's.
  Observation::Sums time;
  time.tokens = 512;
  time.sum.resize(kSixHeads * 512), time.before.resize(kSixHeads * 512);
  const auto before = normals(time.sum.size(), seed + 2, 1), lately = normals(time.sum.size(), seed + 3, 1);
  for (std::size_t i = 0; i < time.sum.size(); ++i) {
    time.before[i] = std::abs(before[i]);
    time.sum[i] = time.before[i] + std::abs(lately[i]);
  }
  for (int head = 0; head < kSixHeads; ++head) {
    double all = 0;
    for (std::size_t i = 0; i < 512; ++i) {
      const std::size_t at_time = static_cast<std::size_t>(head) * 512 + i;
      all += double{time.sum[at_time] - time.before[at_time]};
    }
    for (int token = 0; token < 512; ++token) {
      const std::size_t at_time = static_cast<std::size_t>(head * 512 + token), row = of.row(head, token);
      const auto inputs = temporal_inputs(static_cast<float>(512 - token), time.sum[at_time],
                                          (time.sum[at_time] - time.before[at_time]) / static_cast<float>(all));
      float root = common(made.temporal, 9, row);
      for (std::size_t i = 0; i < inputs.size(); ++i) root += made.temporal[3 + i] * inputs[i];
      of.end[row] = time.sum[at_time] + root * root * 512;
    }
  }
  of.times.push_back(std::move(time));
  return made;
}

constexpr double kKeep = 0.125;

TEST(FitSums, RecoverKnownScorers) {
  const Decoder decoder = six_heads();
  FitSums sums(decoder.model());
  const Made made = make(1);
  for (unsigned text = 1; text <= 4; ++text) sums.add(make(10 * text).of, kKeep);
  const auto kvzap = sums.kvzap(), temporal = sums.temporal();
  ASSERT_EQ(kvzap.size(), kSixHeads * made.kvzap.size());
  ASSERT_EQ(temporal.size(), kSixHeads * made.temporal.size());
  // Those of key and value; a ridge moves the constant and norms, which go together, more.
  for (std::size_t head = 0; head < kSixHeads; ++head) {
    for (std::size_t i = 3; i < made.kvzap.size(); ++i)
      EXPECT_NEAR(kvzap[head * made.kvzap.size() + i], made.kvzap[i], 0.01) << head << " " << i;
    for (std::size_t i = 9; i < made.temporal.size(); ++i)
      EXPECT_NEAR(temporal[head * made.temporal.size() + i], made.temporal[i], 0.003) << head << " " << i;
  }
  EXPECT_EQ(sums.texts(), 4);
}

TEST(FitSums, SharesAreThoseOfHeadsThatRepetitionReads) {
  const Decoder decoder = six_heads();
  FitSums sums(decoder.model());
  Made made = make(1);
  for (int token = 0; token < made.of.tokens; ++token) made.of.repeated[made.of.row(2, token)] = 1;
  sums.add(made.of, kKeep);
  const auto shares = sums.shares();
  for (std::size_t head = 0; head < kSixHeads; ++head) {
    if (head != 2) {
      EXPECT_LT(shares[head], shares[2]);
    }
  }
}

TEST(FitSums, AStateIsOfItsModelAndSettings) {
  const Decoder decoder = six_heads();
  const Model& model = decoder.model();
  FitState state;
  state.sums = std::make_unique<FitSums>(model);
  state.sums->add(make(1).of, kKeep);
  state.texts = {{1, 2, 3}, {4, 5}};
  state.far = {1, 2, 3, 4, 5, 6};
  state.far_texts = 1;
  state.results["auto 1/4"] = {.asked = 8, .right = 3, .nll = 2.5};
  const FitStateFile file{own_file("state.fit"), "own 16"};
  file.save(model, state);
  std::string why;
  const auto loaded = file.load(model, why);
  ASSERT_TRUE(loaded.has_value()) << why;
  EXPECT_EQ(loaded->texts, state.texts);
  EXPECT_EQ(loaded->far, state.far);
  EXPECT_EQ(loaded->far_texts, 1);
  EXPECT_EQ(loaded->sums->kvzap(), state.sums->kvzap());
  EXPECT_EQ(loaded->results.at("auto 1/4").right, 3);

  EXPECT_FALSE((FitStateFile{file.path, "own 8"}.load(model, why)));
  EXPECT_EQ(why, "was made from another text, or with other options");
  const auto other = Model::from(make_synthetic({.vocabulary = 96,
                                                 .width = 64,
                                                 .layers = 2,
                                                 .feed_forward = 96,
                                                 .query_heads = 8,
                                                 .kv_heads = 2,
                                                 .head_dim = 16}));
  EXPECT_FALSE(file.load(*other, why = ""));
  EXPECT_EQ(why, "belongs to another model");
  {
    std::fstream bytes(file.path, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(5000);
    bytes.put('x');
  }
  EXPECT_NE(error_of([&] { file.load(model, why = ""); }).find("delete it and fit again"), std::string::npos);
  file.remove();
  EXPECT_FALSE(file.load(model, why = ""));
  EXPECT_EQ(why, "");
}

}  // namespace
}  // namespace palimpsest::testing
