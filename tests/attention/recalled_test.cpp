// Attention over kept and recalled tokens: double precision over the union of both, with the pages that plain loops
// over all keys choose.
#include "palimpsest/attention/recalled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/cache/recall_tier.h"
#include "tests/support/check_attention.h"
#include "tests/support/draws.h"

namespace palimpsest::testing {
namespace {

struct Case {
  RandomCacheOptions cache = {};
  CacheType type = CacheType::kF32;
  int tokens = 100;  // in the tier of each head
  int max_pages = 3;
  bool chosen_before = false;  // every second page was
};

// The greatest score of any query with a key of the page.
double best_of(const Recalled& r, int page, const std::vector<std::vector<double>>& queries) {
  double best = -INFINITY;
  for (int lane = 0; lane < kTile; ++lane) {
    if ((r.pages.present[page] >> lane & 1) == 0) continue;
    std::vector<float> key(queries[0].size());
    load_key(r.layout, r.pages.page[page], lane, key.data());
    for (const auto& query : queries) {
      double score = 0;
      for (std::size_t d = 0; d < key.size(); ++d) score += query[d] * key[d];
      best = std::max(best, score);
    }
  }
  return best;
}

// The pages that a query recalls, ascending.
std::vector<int> recalled_pages(const Recalled& r, const std::vector<std::vector<double>>& queries) {
  if (!r.chooses && r.pages.pages > r.max_pages) return {r.choice.page, r.choice.page + *r.choice.count};
  std::vector<std::pair<double, int>> order;
  for (int page = 0; page < r.pages.pages; ++page) order.emplace_back(-best_of(r, page, queries), page);
  std::ranges::sort(order);
  order.resize(std::min(order.size(), at(r.max_pages)));
  std::vector<int> pages;
  for (const auto& [best, page] : order) pages.push_back(page);
  std::ranges::sort(pages);
  return pages;
}

std::vector<std::vector<double>> queries_of(const LayerStep& step, int kv_head, int token) {
  const AttentionShape& shape = step.shape;
  std::vector<std::vector<double>> queries(at(shape.group()));
  for (int g = 0; g < shape.group(); ++g)
    for (int d = 0; d < shape.head_dim; ++d)
      queries[at(g)].push_back(double{step.q.at(token, kv_head * shape.group() + g)[d]} * shape.scale);
  return queries;
}

// Of one query: the output of each query head of a KV head.
std::vector<std::vector<double>> expected(const LayerStep& step, int kv_head, int token, const Recalled& r) {
  const AttentionShape& shape = step.shape;
  const SequenceTokens& tokens = step.tokens[0];
  const int group = shape.group();
  const std::vector<std::vector<double>> queries = queries_of(step, kv_head, token);
  const std::vector<int> recalled = recalled_pages(r, queries);
  std::vector<std::vector<double>> out;
  for (int g = 0; g < group; ++g) {
    std::vector<double> scores, sum(at(shape.value_dim));
    std::vector<std::vector<float>> values;
    const auto add = [&](const LayerView& view, const std::byte* page, int offset) {
      std::vector<float> key(at(shape.head_dim)), value(at(shape.value_dim));
      load_key(view, page, offset, key.data());
      load_value(view, page, offset, value.data());
      double score = 0;
      for (std::size_t d = 0; d < key.size(); ++d) score += queries[at(g)][d] * key[d];
      if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
      scores.push_back(score);
      values.push_back(value);
    };
    const LayerView& view = step.cache[0];
    const HeadPages& head = view.head[kv_head];
    for (int slot = 0; slot < head.slots->slots; ++slot)
      if (head.slots->relative[slot] != kEmptySlot && head.slots->relative[slot] <= tokens.relative[token])
        add(view, head.page[slot / view.page_size], slot % view.page_size);
    for (const int page : recalled)
      for (int lane = 0; lane < kTile; ++lane)
        if (r.pages.present[page] >> lane & 1) add(r.layout, r.pages.page[page], lane);
    const double max = std::ranges::max(scores);
    double total = shape.sink_logits == nullptr ? 0 : std::exp(shape.sink_logits[kv_head * group + g] - max);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double weight = std::exp(scores[i] - max);
      total += weight;
      for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weight * values[i][d];
    }
    for (double& x : sum) x /= total;
    out.push_back(sum);
  }
  return out;
}

void check(const Case& c) {
  RandomCache cache(c.cache);
  LayerStep step = cache.step();
  const AttentionShape& shape = step.shape;
  RecallTier tier(HeadGeometry::uniform(1, shape.kv_heads, shape.head_dim, shape.value_dim), c.type, 1 << 20,
                  c.max_pages);
  std::mt19937 random(c.cache.seed + 7);
  std::normal_distribution<float> normal;
  std::vector<float> key(at(shape.head_dim)), value(at(shape.value_dim));
  for (int head = 0; head < shape.kv_heads; ++head) {
    const int tokens = std::max(0, c.tokens - 5 * head);
    tier.reserve(head, tokens);
    for (int i = 0; i < tokens; ++i) {
      for (float& x : key) x = normal(random);
      for (float& x : value) x = normal(random);
      tier.append(head, i, key.data(), value.data());
    }
  }
  tier.forget(c.tokens - 10);

  const int count = step.tokens[0].count;
  std::vector<std::vector<float>> sums(at(shape.kv_heads), std::vector<float>(at(count * shape.group())));
  std::vector<float*> log_sums;
  for (auto& sum : sums) log_sums.push_back(sum.data());
  step.log_sums = log_sums.data();
  AttentionScratch scratch;
  scratch.reserve(step, 1);
  run_cpu(step, scratch, 1);
  for (int head = 0; head < shape.kv_heads; ++head) {
    const Recalled recalled{tier.pages(head), tier.layout(head), c.max_pages, tier.choice(head), !c.chosen_before};
    ASSERT_EQ(*recalled.choice.count, -1);
    if (c.chosen_before) {
      *recalled.choice.count = 0;
      for (int page = 0; page < recalled.pages.pages && *recalled.choice.count < c.max_pages; page += 2)
        recalled.choice.page[(*recalled.choice.count)++] = page;
    }
    std::vector<std::vector<std::vector<double>>> wanted;
    for (int token = 0; token < count; ++token) wanted.push_back(expected(step, head, token, recalled));
    std::vector<float> memory(recalled_floats(shape, recalled));
    attend_recalled(step, 0, head, recalled, memory.data());
    if (kv_format(c.type).elementwise()) {
      EXPECT_EQ(std::vector(recalled.choice.page, recalled.choice.page + *recalled.choice.count),
                recalled_pages(recalled, queries_of(step, head, count - 1)))
          << c.cache;
    }
    for (int token = 0; token < count; ++token)
      for (int g = 0; g < shape.group(); ++g)
        for (int d = 0; d < shape.value_dim; ++d)
          ASSERT_NEAR(step.out.at(token, head * shape.group() + g)[d], wanted[at(token)][at(g)][at(d)],
                      kv_format(c.type).elementwise() ? 2e-5 : 5e-3)
              << c.cache << " tier " << kv_format(c.type).name << " of " << c.tokens << ", " << c.max_pages
              << " pages; token " << token << ", head " << head << "/" << g << ", dimension " << d;
  }
}

TEST(Recalled, TakesThePagesThatWereChosenBefore) {
  for (const CacheType type : kCacheTypes)
    for (const int tokens : {0, 7, 100, 300})
      for (const int max_pages : {1, 5, 1000})
        for (const int new_tokens : {1, 9}) {
          Case c{.type = type, .tokens = tokens, .max_pages = max_pages, .chosen_before = true};
          c.cache.new_tokens = new_tokens;
          c.cache.seed = static_cast<unsigned>(tokens + max_pages + new_tokens);
          check(c);
        }
}

TEST(Recalled, IsAttentionOverKeptAndRecalledTokens) {
  for (const CacheType type : kCacheTypes)
    for (const int tokens : {0, 7, 100, 300})
      for (const int max_pages : {1, 5, 1000})
        for (const int new_tokens : {1, 9, 20}) {
          // Kernels in integers round queries: their greatest scores may be others.
          if (!kv_format(type).elementwise() && max_pages < 1000) continue;
          Case c{.type = type, .tokens = tokens, .max_pages = max_pages};
          c.cache.new_tokens = new_tokens;
          c.cache.group = tokens == 7 ? 1 : 3;
          c.cache.soft_cap = max_pages == 5 ? 2 : 0;
          c.cache.sink_logits = new_tokens == 9;
          c.cache.old_tokens = new_tokens == 20 ? 600 : 50;  // several splits
          c.cache.seed = static_cast<unsigned>(tokens + max_pages + new_tokens);
          check(c);
        }
}

TEST(Recalled, HeadsOfOddWidths) {
  for (const int dim : {5, 24, 80}) {
    Case c{.max_pages = 2};
    c.cache.head_dim = dim;
    c.cache.value_dim = dim + 3;
    check(c);
  }
}

}  // namespace
}  // namespace palimpsest::testing
