// Lazy Pruning's protocol (section 3.2, algorithm 1, equations 3 to 8): when it prunes, how many tokens, what is left,
// and how many a query attends to. The oracle is a list of tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

constexpr int kCap = 96, kSinks = 4, kLazyTokens = 2000, kLazyWords = 64;

std::shared_ptr<Decoder> lazy_decoder() {
  static const auto decoder = std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = kLazyWords,
                                                                                    .width = 32,
                                                                                    .layers = 1,
                                                                                    .feed_forward = 32,
                                                                                    .query_heads = 2,
                                                                                    .kv_heads = 1,
                                                                                    .head_dim = 16,
                                                                                    .context = 96})),
                                                        1);
  return decoder;
}

struct LazyOptions {
  int r = 1, sigma = 0, delta = 0;
  std::string text(const std::string& more = "") const {
    return fmt::format("lazy:budget={},sinks={},every={},slack={},max-drop={}{}", kCap, kSinks, r, sigma, delta, more);
  }
};

// The paper's order: a forward pass, then the rule. C = C_cap - sigma is what a prune leaves; with delta, several
// prunes, one after each pass.
struct Protocol {
  LazyOptions o;
  std::vector<Position> kept = {};
  bool returns = false;
  int events = 0;

  void after_forward() {
    const int c = kCap - o.sigma, overflow = static_cast<int>(kept.size()) - c;
    if (overflow < o.r && !(returns && overflow > 0)) {
      returns = false;
      return;
    }
    const int count = o.delta == 0 ? overflow : std::min(overflow, o.delta);
    kept.erase(kept.begin() + kSinks, kept.begin() + kSinks + count);
    returns = count < overflow;
    ++events;
  }
};

std::vector<LazyOptions> grid() {
  std::vector<LazyOptions> all;
  for (const int r : {1, 16, 64})
    for (const int sigma : {0, 16})
      for (const int delta : {0, 32}) all.push_back({r, sigma, delta});
  return all;
}

TEST(LazyProtocol, PrunesAfterEachForwardPassAsThePaperSays) {
  const auto text = random_tokens(kLazyTokens, 1, kLazyWords);
  for (const LazyOptions& o : grid()) {
    SCOPED_TRACE(o.text());
    Session session(lazy_decoder(), session_options(o.text(",evict=after")));
    Protocol protocol{o};
    const int c = kCap - o.sigma;
    session.prefill(std::span(text).first(at(c)));  // the cache is full
    for (int i = 0; i < c; ++i) protocol.kept.push_back(i);
    int most = 0;
    for (int i = 0; i < kLazyTokens; ++i) {
      protocol.kept.push_back(c + i);
      most = std::max(most, static_cast<int>(protocol.kept.size()));
      protocol.after_forward();
      session.decode(text[at(i)]);
      ASSERT_EQ(positions_kept(session.cache()), protocol.kept) << "token " << i;
      ASSERT_EQ(session.times().evictions, protocol.events) << "token " << i;
    }
    EXPECT_EQ(most, c + o.r);  // equation 5: at most C_cap + R
    EXPECT_LE(session.sequence().plan().occupancies(c, -1).decode.front().tokens, kCap + o.r);
    if (o.delta == 0 || o.delta >= o.r) {
      EXPECT_EQ(protocol.events, kLazyTokens / o.r);  // table A2: 2,000 and 31
    }
  }
}

// The same events one token earlier: with room for the next token, which the query then attends to at most C_cap + R -
// 1 tokens with.
TEST(LazyProtocol, PrunesBeforeTheInsertAsOften) {
  const auto text = random_tokens(kLazyTokens, 1, kLazyWords);
  for (const LazyOptions& o : grid()) {
    SCOPED_TRACE(o.text());
    Session session(lazy_decoder(), session_options(o.text()));
    const int c = kCap - o.sigma;
    session.prefill(std::span(text).first(at(c)));
    int most = 0, least = kCap;
    for (int i = 0; i < kLazyTokens; ++i) {
      session.decode(text[at(i)]);
      most = std::max(most, session.cache().occupied());
      if (i >= o.r) least = std::min(least, session.cache().occupied());
    }
    EXPECT_EQ(most, c + o.r - 1);
    EXPECT_EQ(least, c);
    if (o.delta == 0 || o.delta >= o.r) {
      EXPECT_EQ(session.times().evictions, kLazyTokens / o.r);
    }
  }
}

// Overlap tokens are the newest victims, so that with sinks + window the kept set is that of a wider window; refresh
// tokens are older ones.
TEST(LazyProtocol, OverlapIsPartOfTheCap) {
  const auto text = random_tokens(300, 1, kLazyWords);
  Session plain(lazy_decoder(), session_options("lazy:budget=96,every=16"));
  Session overlap(lazy_decoder(), session_options("lazy:budget=96,every=16,overlap=8"));
  Session scored(lazy_decoder(), session_options("knorm:budget=96,every=16,overlap=8"));
  for (const TokenId token : text) {
    plain.decode(token), overlap.decode(token), scored.decode(token);
    ASSERT_EQ(positions_kept(plain.cache()), positions_kept(overlap.cache()));
    ASSERT_LE(scored.cache().occupied(), 96 + 15);
  }
}

TEST(LazyProtocol, ZeroNeverPrunes) {
  const auto text = random_tokens(300, 1, kLazyWords);
  Session never(lazy_decoder(), session_options("lazy:budget=96,every=0"));
  Session full(lazy_decoder(), session_options("full"));
  for (const TokenId token : text) {
    const auto logits = never.decode(token);
    ASSERT_TRUE(std::ranges::equal(logits, full.decode(token)));
  }
  EXPECT_EQ(never.cache().occupied(), 300);
  EXPECT_FALSE(never.method().bounded());
}

TEST(LazyProtocol, TheCapIsTheTrainedContext) {
  Session session(lazy_decoder(), session_options("lazy:budget=auto,every=16"));
  EXPECT_EQ(session.method().budget, 96);
  for (const TokenId token : random_tokens(300, 1, kLazyWords)) session.decode(token);
  EXPECT_LE(session.cache().occupied(), 96 + 15);
}

}  // namespace
}  // namespace palimpsest::testing
