// Budgets by layer and head: evicted tokens, against a separate sort of the scores, and returned pages.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "palimpsest/budget/ada.h"
#include "palimpsest/budget/pyramid.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

constexpr int kLayers = 3;

// Query heads in groups of 1, 4 or 8.
std::shared_ptr<Decoder> decoder_of(int kv_heads, int group) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                               .width = 64,
                                                               .layers = kLayers,
                                                               .feed_forward = 96,
                                                               .query_heads = kv_heads * group,
                                                               .kv_heads = kv_heads,
                                                               .head_dim = 16})),
                                   1);
}

// SnapKV's scores of a head: attention of the last 32 queries, from a cache without evictions. Pooled over 7 tokens,
// those before the queries' own apart.
std::vector<double> snap_scores(const Session& full, int table) {
  const SlotTable& slots = full.cache().table(table);
  std::vector<double> weight(static_cast<std::size_t>(slots.occupied()), 0), pooled;
  for (int c = 0; c < slots.columns(); ++c)
    for (std::size_t s = 0; s < slots.position().size(); ++s)
      if (slots.position()[s] >= 0) weight[static_cast<std::size_t>(slots.position()[s])] += double{slots.column(c)[s]};
  const int count = static_cast<int>(weight.size()), before = std::max(0, count - 32);
  for (int i = 0; i < count; ++i) {
    const int first = i < before ? 0 : before, last = i < before ? before : count;
    double max = 0;
    for (int j = std::max(first, i - 3); j < std::min(i + 4, last); ++j)
      max = std::max(max, weight[static_cast<std::size_t>(j)]);
    pooled.push_back(max);
  }
  return pooled;
}

// The newest `recent`, and the `count` others with the highest scores; of equal ones the newest.
std::vector<Position> best_of(const std::vector<double>& score, int recent, int count) {
  std::vector<Position> order(score.size() - static_cast<std::size_t>(recent));
  std::iota(order.begin(), order.end(), Position{0});
  std::ranges::stable_sort(order, [&](Position a, Position b) {
    const float x = static_cast<float>(score[static_cast<std::size_t>(a)]),
                y = static_cast<float>(score[static_cast<std::size_t>(b)]);
    return x != y ? x > y : a > b;
  });
  order.resize(static_cast<std::size_t>(count));
  for (Position p = static_cast<Position>(score.size()) - recent; p < static_cast<Position>(score.size()); ++p)
    order.push_back(p);
  std::ranges::sort(order);
  return order;
}

std::size_t bytes_of(const Cache& cache, std::span<const int> tokens) {  // of heads with these numbers of tokens
  const std::size_t slot = 2 * 16 * sizeof(float);
  std::size_t bytes = 0;
  for (const int count : tokens) bytes += static_cast<std::size_t>((count + 15) / 16) * 16 * slot;
  EXPECT_EQ(tokens.size(), static_cast<std::size_t>(cache.tables()));
  return bytes;
}

TEST(Budgets, PyramidKeepsWhatItsFormulaSaysAndFreesThePages) {
  for (const auto& [kv_heads, group] : {std::pair{2, 1}, std::pair{2, 4}, std::pair{1, 8}}) {
    const auto decoder = decoder_of(kv_heads, group);
    for (const char* schedule : {"prompt", "prompt+step"})
      for (const int length : {300, 190, 150, 90}) {
        const std::string method = std::string("pyramidkv:budget=100,schedule=") + schedule;
        Session session(decoder, session_options(method, 64)),
            whole(decoder, session_options("snapkv:budget=5000", 64));
        const auto tokens = random_tokens(length, 1);
        session.prefill(tokens);
        whole.prefill(tokens);
        const auto layers = pyramid_budgets(100, 32, kLayers, length);
        std::vector<int> held;
        for (int t = 0; t < session.cache().tables(); ++t) {
          held.push_back(std::min(length, layers[static_cast<std::size_t>(t / kv_heads)]));
          EXPECT_EQ(positions_kept(session.cache(), t), best_of(snap_scores(whole, t), 32, held.back() - 32))
              << method << length;
        }
        EXPECT_EQ(session.cache().bytes_in_use(), bytes_of(session.cache(), held)) << method << " " << length;
        if (length < 300) continue;
        EXPECT_LT(session.cache().bytes_in_use(), whole.cache().bytes_in_use() / 2);
      }
  }
}

// Without waiting for a prompt: each decision shares the layer's total among its heads by the scores of that moment,
// and each head keeps its tokens with the highest ones.
TEST(Budgets, AdaSharesAtEachDecision) {
  constexpr int kBudget = 40, kRecent = 4, kHeads = 3;
  const auto decoder = decoder_of(kHeads, 1);
  for (const int every : {1, 8})
    for (const char* mechanism : {"in-place", "shift"}) {
      const auto method = fmt::format("knorm:budget={},sinks=0,recent={},split=ada,every={},mechanism={}", kBudget,
                                      kRecent, every, mechanism);
      Session session(decoder, session_options(method, 16));
      session.prefill(random_tokens(60, 5));
      const Cache& cache = session.cache();
      int decisions = 0, uneven = 0;
      for (const TokenId token : random_tokens(80, 6)) {
        using Scores = std::map<Position, float>;  // of tokens that may be evicted
        std::vector<Scores> before;
        std::vector<int> held;
        for (int t = 0; t < cache.tables(); ++t) {
          Scores& scores = before.emplace_back();
          held.push_back(cache.table(t).occupied());
          for (int slot = 0; slot < cache.table(t).slots(); ++slot)
            if (const Position p = cache.table(t).position(slot); p >= 0 && p < cache.next() - kRecent)
              scores[p] = cache.table(t).score()[static_cast<std::size_t>(slot)];
        }
        session.decode(token);
        for (int layer = 0; layer < kLayers; ++layer) {
          const int first = layer * kHeads, sum = held[first] + held[first + 1] + held[first + 2];
          const bool decides = sum + kHeads * (1 - kBudget) >= kHeads * every;
          std::vector<std::vector<float>> scores;
          for (int h = 0; h < kHeads; ++h) {
            scores.emplace_back();
            for (const auto& [position, score] : before[first + h]) scores.back().push_back(score);
          }
          const std::vector<int> counts =
              decides ? ada_counts(scores, kHeads * (kBudget - 1 - kRecent), 1) : std::vector<int>();
          for (int h = 0; h < kHeads; ++h) {
            const int t = first + h, kept = decides ? counts[h] + kRecent : held[t];
            ASSERT_EQ(cache.table(t).occupied(), kept + 1) << method << " " << cache.next();
            if (!decides) continue;
            std::ranges::sort(scores[h], std::greater());
            for (const Position position : positions_kept(cache, t)) {
              if (!before[t].contains(position)) continue;
              EXPECT_GE(before[t].at(position), scores[h][static_cast<std::size_t>(counts[h] - 1)]) << method;
            }
            uneven += kept != kBudget - 1;
          }
          decisions += decides;
        }
      }
      EXPECT_EQ(decisions, kLayers * 80 / every) << method;
      EXPECT_GT(uneven, decisions) << method;
      // A head that shrank holds less than a page that it does not need.
      for (int t = 0; t < cache.tables(); ++t) EXPECT_LT(cache.table(t).free_slots(), 2 * 16) << method;
    }
}

// Each layer keeps its heads' total, shared by scores; each head keeps its tokens with the highest scores.
TEST(Budgets, AdaSharesALayersBudgetByScores) {
  for (const auto& [kv_heads, group] : {std::pair{3, 1}, std::pair{2, 4}, std::pair{2, 8}}) {
    const auto decoder = decoder_of(kv_heads, group);
    for (const int length : {260, 101, 100, 70}) {
      Session session(decoder, session_options("adakv:budget=100,schedule=prompt+step", 64)),
          whole(decoder, session_options("snapkv:budget=5000", 64));
      const auto tokens = random_tokens(length, 7);
      session.prefill(tokens);
      whole.prefill(tokens);
      std::vector<int> held;
      bool uneven = false;
      for (int layer = 0; layer < kLayers; ++layer) {
        std::vector<std::vector<float>> scores;
        std::vector<std::vector<double>> all;
        for (int h = 0; h < kv_heads; ++h) {
          all.push_back(snap_scores(whole, layer * kv_heads + h));
          scores.emplace_back(all.back().begin(), all.back().end() - 32);
        }
        const int each = std::min(length, 100) - 32;
        const auto counts = ada_counts(scores, kv_heads * each);
        int sum = 0;
        for (int h = 0; h < kv_heads; ++h) {
          const auto mine = positions_kept(session.cache(), layer * kv_heads + h);
          EXPECT_EQ(mine, best_of(all[static_cast<std::size_t>(h)], 32, counts[static_cast<std::size_t>(h)]));
          held.push_back(static_cast<int>(mine.size()));
          sum += held.back();
          uneven = uneven || held.back() != each + 32;
        }
        EXPECT_EQ(sum, kv_heads * std::min(length, 100));
      }
      EXPECT_EQ(uneven, length > 100);
      EXPECT_EQ(session.cache().bytes_in_use(), bytes_of(session.cache(), held));
      // In decode, heads keep their budgets, within the reserved bytes.
      const MethodPlan& plan = session.sequence().plan();
      const auto promised = footprint(plan.cache(), plan.occupancies(length, -1).decode);
      for (const TokenId token : random_tokens(150, 9)) {
        session.decode(token);
        EXPECT_LE(session.cache().bytes_in_use(), promised.in_use());
      }
      int all = 0;
      for (int t = 0; t < session.cache().tables(); ++t) {
        all += session.cache().table(t).occupied();
        EXPECT_EQ(session.cache().table(t).occupied(), length > 100 ? held[static_cast<std::size_t>(t)] : 100);
      }
      EXPECT_EQ(all, kLayers * kv_heads * 100);
    }
  }
}

// A second prompt shares the budgets again; a cleared session starts with uniform budgets.
TEST(Budgets, AreSharedAnewAtEveryPromptsEnd) {
  const auto decoder = decoder_of(2, 4);
  Session session(decoder, session_options("adakv:budget=80,schedule=prompt+step", 64));
  session.prefill(random_tokens(200, 1));
  session.prefill(random_tokens(120, 3));
  int sum = 0;
  for (int t = 0; t < 2; ++t) sum += session.cache().table(t).occupied();
  EXPECT_EQ(sum, 160);
  session.clear();
  for (const TokenId token : random_tokens(200, 1)) session.decode(token);
  for (int t = 0; t < session.cache().tables(); ++t) EXPECT_EQ(session.cache().table(t).occupied(), 80);
}

TEST(Budgets, WhatCannotShareByScoresIsRefused) {
  const auto decoder = decoder_of(2, 1);
  const auto refusal = [&](const std::string& method) {
    return error_of([&] { Session(decoder, session_options(method, 64)); });
  };
  EXPECT_NE(refusal("streaming:split=ada,schedule=prompt").find("its scores are equal for all heads"),
            std::string::npos);
  EXPECT_NE(refusal("tova:split=ada,schedule=prompt").find("decides for all heads of a layer"), std::string::npos);
  EXPECT_NE(refusal("duo").find("split duo needs a file beside the model (model.duo"), std::string::npos);
  EXPECT_NE(refusal("snapkv:split=profile").find("split profile needs a file beside the model (model.profile"),
            std::string::npos);
}

// models/palimpsest-stories.profile lies beside the default model.
TEST(Budgets, SharesBesideTheModel) {
  const auto path = std::filesystem::path(default_model());
  const auto decoder = std::make_shared<Decoder>(Model::load(path.string()), 1);
  const std::string file = (source_dir() / "models" / "palimpsest-stories.profile").string();
  const auto budgets = [&](const std::string& split) {
    Session session(decoder, session_options("streaming:budget=104,sinks=4,positions=original,split=" + split, 16));
    for (const TokenId token : random_tokens(300, 1, 96)) session.decode(token);
    std::vector<int> out;
    for (int t = 0; t < session.cache().tables(); ++t) out.push_back(session.cache().table(t).occupied());
    return out;
  };
  EXPECT_EQ(budgets("profile"), budgets(file));
  EXPECT_NE(budgets("profile"), budgets("uniform"));
}

// Streaming heads hold half the budget, the others the rest: total bytes are those of the budget, to a page per head.
TEST(Budgets, StreamingHeads) {
  const auto decoder = decoder_of(2, 1);
  const std::string list = own_file("streaming.txt");
  std::ofstream(list) << "0 * streaming\n2 1 streaming\n";
  Session session(decoder, session_options("duo:budget=96,split=" + list, 64)),
      even(decoder, session_options("sparse:budget=96,sinks=9", 64));
  for (const TokenId token : random_tokens(400, 1)) {
    session.decode(token);
    even.decode(token);
  }
  const int held[] = {48, 48, 144, 144, 144, 48};
  for (int t = 0; t < 6; ++t) {
    EXPECT_EQ(session.cache().table(t).occupied(), held[t]);
    const auto positions = positions_kept(session.cache(), t);
    for (Position sink = 0; sink < 9; ++sink) EXPECT_EQ(positions[static_cast<std::size_t>(sink)], sink);
    EXPECT_EQ(positions[9], 400 - held[t] + 9);
  }
  EXPECT_EQ(session.cache().bytes_in_use(), bytes_of(session.cache(), held));
  EXPECT_EQ(session.cache().bytes_in_use(), even.cache().bytes_in_use());
}

// EQUIP, appendix D.2: LagKV and SnapKV in decode give the same result in place and with shift.
TEST(Budgets, LagKvAndSnapKvInPlace) {
  const auto decoder = decoder_of(2, 4);
  const auto tokens = random_tokens(700, 5);
  for (const std::string method :
       {"lagkv:budget=180", "snapkv:budget=64,schedule=step", "snapkv:budget=64,schedule=prompt+step"}) {
    Session in_place(decoder, session_options(method, 64)),
        shift(decoder, session_options(method + ",mechanism=shift", 64));
    in_place.prefill(std::span(tokens).first(300));
    shift.prefill(std::span(tokens).first(300));
    for (const TokenId token : std::span(tokens).subspan(300)) {
      const auto a = in_place.decode(token), b = shift.decode(token);
      double difference = 0, max = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
        max = std::max(max, std::abs(double{b[i]}));
      }
      ASSERT_LT(difference, 1e-4 * max) << method;
      ASSERT_EQ(in_place.cache().occupied(), in_place.method().budget);
      for (int t = 0; t < in_place.cache().tables(); ++t)
        ASSERT_EQ(positions_kept(in_place.cache(), t), positions_kept(shift.cache(), t)) << method;
      for (const auto& moves : {in_place.cache().moves(0), in_place.cache().moves(3)}) ASSERT_TRUE(moves.empty());
    }
    EXPECT_GE(in_place.cache().evicted(), 500);
  }
}

}  // namespace
}  // namespace palimpsest::testing
