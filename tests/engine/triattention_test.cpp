// Policy triattention: against its formula in double precision and plain loops; the mean queries that it reads, against
// sums of a model's queries, token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdio>
#include <numbers>

#include "palimpsest/core/rope.h"
#include "palimpsest/engine/sequence/query_centres.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/policy/query_centres.h"
#include "tests/eval/six_heads.h"
#include "tests/policy/random_head.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"
#include "tests/support/scorer_file.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

constexpr double kBase = 10000;

RopeOptions rope_of(RopeKind kind, int dims) {
  RopeOptions out;
  out.kind = kind;
  out.dims = dims;
  out.base = kBase;
  return out;
}

PolicyModel model_of(int dim, int group, const RopeOptions& rope) {
  return {.path = "none.gguf",
          .fingerprint = 0xABCDEF0123456789u,
          .layers = 2,
          .kv_heads = 1,
          .head_dim = dim,
          .value_dim = dim,
          .heads = 2,
          .group = group,
          .rope = {rope, rope},
          .scorer = own_file("triattention.centres")};
}

// A row's pairs as complex numbers, by the definition of the kind.
std::vector<std::complex<double>> pairs_of(std::span<const double> row, const RopeOptions& rope) {
  std::vector<std::complex<double>> out;
  for (int f = 0; f < rope.dims / 2; ++f)
    out.push_back(rope.kind == RopeKind::kHalves ? std::complex(row[at(f)], row[at(f + rope.dims / 2)])
                                                 : std::complex(row[at(2 * f)], row[at(2 * f + 1)]));
  return out;
}

// Keys as stored: rotated to their positions. Offsets one by one; each query's rotation computed from the definition.
std::vector<double> golden(const Matrix& keys, const std::vector<Position>& positions, std::span<const float> weights,
                           int dim, int group, const RopeOptions& rope) {
  const auto newest = static_cast<double>(*std::ranges::max_element(positions));
  const std::size_t width = at(dim) + at(dim) / 2;
  std::vector<double> best(keys.size(), -INFINITY);
  for (int member = 0; member < group; ++member) {
    const auto of_member = weights.subspan(at(member) * width, width);
    const std::vector<double> mean(of_member.begin(), of_member.begin() + dim);
    const auto centre = pairs_of(mean, rope);
    std::vector<double> s(keys.size(), 0);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto key = pairs_of(keys[i], rope);
      for (int power = 0; power <= 16; ++power)
        for (std::size_t f = 0; f < key.size(); ++f) {
          const double frequency = std::pow(kBase, -2.0 * static_cast<double>(f) / rope.dims);
          const double angle = std::fmod(frequency * (newest + std::pow(2.0, power)), 2 * std::numbers::pi);
          s[i] += (std::conj(key[f]) * centre[f] * std::polar(1.0, angle)).real() / 17;
        }
      for (int d = rope.dims; d < dim; ++d) s[i] += keys[i][at(d)] * mean[at(d)];
      for (std::size_t f = 0; f < key.size(); ++f)
        s[i] += (double{of_member[at(dim) + f]} - std::abs(centre[f])) * std::abs(key[f]);
    }
    double middle = 0, variance = 0;
    for (const double x : s) middle += x / static_cast<double>(s.size());
    for (const double x : s) variance += (x - middle) * (x - middle) / static_cast<double>(s.size());
    for (std::size_t i = 0; i < s.size(); ++i) best[i] = std::max(best[i], (s[i] - middle) / std::sqrt(variance));
  }
  return best;
}

TEST(TriAttention, ScoresAreThoseOfTheFormula) {
  for (const RopeOptions& rope : {rope_of(RopeKind::kHalves, 16), rope_of(RopeKind::kPairs, 16),
                                  rope_of(RopeKind::kHalves, 8), rope_of(RopeKind::kNone, 0)})
    for (const int group : {1, 4}) {
      SCOPED_TRACE(std::to_string(rope.dims) + " " + std::to_string(group));
      const PolicyModel model = model_of(16, group, rope);
      const std::vector<float> weights = write_scorer(model.scorer, model, 3, "triattention");
      const auto policy = make_policy("triattention");
      EXPECT_TRUE(policy->signals().model && policy->signals().original_positions);
      policy->prepare(model);
      for (int table = 0; table < 2; ++table) {
        RandomHead head(50, 16, 16, static_cast<unsigned>(table));
        for (std::size_t i = 0; i < head.position.size(); ++i)
          head.position[i] = 3 * static_cast<Position>(i * 31 % 50);
        HeadView view = head.view();
        view.table = table;
        std::vector<float> score(50, 0);
        policy->score(view, score);
        const auto own = std::span(weights).subspan(weights.size() / 2 * at(table), weights.size() / 2);
        const auto expected = golden(head.k, head.position, own, 16, group, rope);
        for (std::size_t i = 0; i < score.size(); ++i) EXPECT_NEAR(double{score[i]}, expected[i], 2e-5) << i;
      }
      std::remove(model.scorer.c_str());
    }
}

// Empty slots change nothing; a member without weights (a layer with a smaller query group) does not count.
TEST(TriAttention, EmptySlotsAndMissingQueryHeadsAreSkipped) {
  const RopeOptions rope = rope_of(RopeKind::kHalves, 16);
  const PolicyModel model = model_of(16, 2, rope);
  std::vector<float> weights = write_scorer(model.scorer, model, 5, "triattention");
  std::ranges::fill(std::span(weights).subspan(24, 24), 0.0F);  // head 0, member 1
  write_bytes(model.scorer, scorer_bytes(model, weights, "triattention"));
  const auto policy = make_policy("triattention");
  policy->prepare(model);
  std::remove(model.scorer.c_str());

  const RandomHead head(20, 16, 16, 7);
  std::vector<float> all(20, 0), some(23, 0);
  policy->score(head.view(), all);
  const auto expected = golden(head.k, head.position, std::span(weights).first(24), 16, 1, rope);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(double{all[i]}, expected[i], 2e-5);

  RandomHead holes = head;
  for (const std::size_t hole : {0U, 9U, 22U}) {
    holes.position.insert(holes.position.begin() + static_cast<std::ptrdiff_t>(hole), kNoPosition);
    holes.keys.insert(holes.keys.begin() + static_cast<std::ptrdiff_t>(hole * 16), 16, NAN);
  }
  HeadView view = head.view();
  view.position = holes.position;
  view.keys = {holes.keys.data(), 23, 16, 16};
  policy->score(view, some);
  for (std::size_t i = 0, full = 0; i < some.size(); ++i)
    if (holes.position[i] != kNoPosition) {
      EXPECT_EQ(some[i], all[full++]) << i;
    }
}

// Every query of every head, one token per step.
class EveryQuery final : public AttentionReceiver {
 public:
  void receive(const StepSignal& signal) override {
    for (int i = 0; i < signal.rows.count; ++i)
      queries[{signal.head, signal.member}].emplace_back(signal.rows[i].begin(), signal.rows[i].end());
  }
  std::map<std::pair<int, int>, std::vector<std::vector<float>>> queries;
};

TEST(TriAttention, MeanQueriesAreThoseOfTheText) {
  Decoder decoder = six_heads();
  const auto text = random_tokens(2048 + 300, 1, 96);  // two pieces
  const std::vector<float> weights = query_centres(decoder, text);

  EveryQuery all;
  CacheOptions options = decoder.cache_options();
  options.page_size = 64;
  auto cache = std::make_unique<Cache>(options);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 2048) cache = std::make_unique<Cache>(options);
    cache->insert(1);
    const SequenceStep step{
        .cache = cache.get(), .tokens = std::span(text).subspan(i, 1), .receiver = &all, .report_queries = true};
    decoder.step({&step, 1});
  }
  const QueryCentres layout(policy_model(decoder.model(), {}));
  ASSERT_EQ(weights.size(), kSixHeads * layout.floats());
  const RopeOptions& rope = decoder.model().hyper().rope;
  ASSERT_EQ(all.queries.size(), 24U);
  for (const auto& [of, queries] : all.queries) {
    ASSERT_EQ(queries.size(), text.size());
    std::vector<double> mean(16, 0), lengths(8, 0);
    for (const auto& query : queries) {
      const std::vector<double> row(query.begin(), query.end());
      for (std::size_t d = 0; d < 16; ++d) mean[d] += row[d] / static_cast<double>(text.size());
      const auto pairs = pairs_of(row, rope);
      for (std::size_t f = 0; f < 8; ++f) lengths[f] += std::abs(pairs[f]) / static_cast<double>(text.size());
    }
    const auto got = layout.mean(std::span(weights), of.first, of.second);
    const auto got_lengths = layout.lengths(std::span(weights), of.first, of.second);
    for (std::size_t d = 0; d < 16; ++d) EXPECT_NEAR(double{got[d]}, mean[d], 1e-3) << of.first;
    for (std::size_t f = 0; f < 8; ++f) EXPECT_NEAR(double{got_lengths[f]}, lengths[f], 1e-3) << of.first;
  }
}

TEST(TriAttention, FilesAreWrittenAndReadBack) {
  Decoder decoder = six_heads();
  PolicyModel model = policy_model(decoder.model(), {});
  const std::string path = own_file("own.centres");
  std::vector<float> weights(kSixHeads * QueryCentres(model).floats());
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  write_query_centres(path, decoder.model(), weights);
  model.scorer = path;
  EXPECT_EQ(read_scorer(QueryCentres(model).format(), model), weights);
  EXPECT_NE(error_of([&] { make_policy("learned")->prepare(model); }).find("is no scorer for policy learned"),
            std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(error_of([&] {
              make_policy("triattention")->prepare(model);
            }).find("there is no scorer " + path + ": make one with `palimpsest fit -m MODEL`"),
            std::string::npos);
  EXPECT_NE(error_of([&] { write_query_centres("/no/such/folder/x", decoder.model(), weights); }), "");
}

TEST(TriAttention, ABudgetedStreamOfTheDefaultModel) {
  const auto path = std::filesystem::path(default_model());
  const auto decoder = std::make_shared<Decoder>(Model::load(path.string()), 1);
  SessionOptions options;
  options.method = parse_method("triattention:budget=64,every=16");
  Session session(decoder, options);
  for (TokenId token = 300; token < 500; ++token) session.decode(token);
  EXPECT_LE(session.cache().occupied(), 80);
  EXPECT_GE(session.cache().evicted(), 120);
}

}  // namespace
}  // namespace palimpsest::testing
