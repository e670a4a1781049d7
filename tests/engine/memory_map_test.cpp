// The memory map and the log of changes: equal to the cache at every step, whatever the method.
#include "palimpsest/engine/sequence/memory_map.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "palimpsest/cache/merged.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Model> synthetic_model() {
  static const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = 96,
                                                                                .width = 64,
                                                                                .layers = 3,
                                                                                .feed_forward = 96,
                                                                                .query_heads = 4,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 16}));
  return model;
}

// A table's tokens: position -> the token that it was merged into, or kNoPosition.
using Held = std::map<Position, Position>;

std::vector<Held> tokens_of(const Cache& cache) {
  std::vector<Held> tables;
  for (int t = 0; t < cache.tables(); ++t) {
    Held& tokens = tables.emplace_back();
    const SlotTable& table = cache.table(t);
    for (int slot = 0; slot < table.slots(); ++slot)
      if (table.position(slot) != kNoPosition) tokens[table.position(slot)] = kNoPosition;
    if (const MergedTokens* const merged = cache.merged(t))
      for (const MergedToken& token : merged->tokens())
        if (token.in_cluster()) tokens[token.position] = table.position(token.slot);
  }
  return tables;
}

// Follows a log from outside: knows only what was taken from it and how many tokens were read.
class Follower {
 public:
  explicit Follower(int tables) : tables_(static_cast<std::size_t>(tables)) {}

  void take(const MemoryLog::Taken& taken, Position next) {
    if (taken.start) {
      read_ = taken.start->at;
      for (std::size_t t = 0; t < tables_.size(); ++t) {
        tables_[t].clear();
        for (const PositionRange& range : taken.start->kept[t])
          for (Position p = range.first; p < range.last; ++p) tables_[t][p] = kNoPosition;
      }
      for (const MergedInto& merged : taken.start->merged)
        tables_[static_cast<std::size_t>(merged.table)][merged.position] = merged.into;
    }
    for (const MemoryChange& change : taken.changes) {
      read(change.at);
      Held& tokens = tables_[static_cast<std::size_t>(change.table)];
      ASSERT_TRUE(tokens.contains(change.position)) << change.position;
      if (change.into == kNoPosition)
        tokens.erase(change.position);
      else
        tokens[change.position] = change.into;
    }
    read(next);
  }
  const std::vector<Held>& tables() const { return tables_; }

 private:
  void read(Position next) {
    for (; read_ < next; ++read_)
      for (Held& tokens : tables_) tokens[read_] = kNoPosition;
  }
  std::vector<Held> tables_;
  Position read_ = 0;
};

const char* const kMapped[] = {"full",
                               "streaming:budget=48",
                               "streaming:budget=48,mechanism=shift",
                               "lazy:budget=48",
                               "h2o:budget=48",
                               "h2o:budget=48,mechanism=gather",
                               "tova:budget=48",
                               "snapkv:budget=48",
                               "adakv:budget=48",
                               "knorm:budget=48,mechanism=append",
                               "paged-eviction:budget=48",
                               "ems:budget=48",
                               "cam:budget=48",
                               "streaming:budget=48,schedule=prompt+step"};

// The map's numbers are the cache's, and the times those at which the last head dropped a token.
void expect_map(const Session& session, std::span<const TokenId> text, const std::vector<Position>& gone_at) {
  const Cache& cache = session.cache();
  const auto tables = tokens_of(cache);
  const MemoryMap map = session.memory_map({.layer = 1, .head = 1});
  ASSERT_EQ(map.next, cache.next());
  ASSERT_EQ(std::ssize(map.tokens), map.next);
  for (Position p = 0; p < map.next; ++p) {
    const MemoryMap::Token& token = map.tokens[static_cast<std::size_t>(p)];
    int kept = 0, merged = 0;
    for (int head = 0; head < cache.geometry().heads(); ++head) {
      const Held& tokens = tables[static_cast<std::size_t>(cache.table_of(head))];
      const auto it = tokens.find(p);
      if (it != tokens.end()) ++(it->second == kNoPosition ? kept : merged);
    }
    ASSERT_EQ(token.kept, kept) << p;
    ASSERT_EQ(token.merged, merged) << p;
    ASSERT_EQ(token.id, text[static_cast<std::size_t>(p)]);
    ASSERT_EQ(token.evicted_at, kept + merged > 0 ? kNoPosition : gone_at[static_cast<std::size_t>(p)]) << p;
    ASSERT_EQ(token.sink, session.method().evicts() && p < session.method().sinks());
    ASSERT_FALSE(token.pinned);
  }
  const int head = cache.geometry().head(1, 1);
  const Held& tokens = tables[static_cast<std::size_t>(cache.table_of(head))];
  ASSERT_EQ(map.head.size(), tokens.size());
  for (const HeadToken& kept : map.head) {
    const SlotTable& table = cache.table(cache.table_of(head));
    ASSERT_EQ(tokens.at(kept.position), kept.into);
    ASSERT_EQ(table.position(kept.slot), kept.into == kNoPosition ? kept.position : kept.into);
    if (kept.into == kNoPosition) {
      ASSERT_EQ(kept.score, table.score()[static_cast<std::size_t>(kept.slot)]);
    }
  }
}

TEST(MemoryMap, IsTheCacheAtEveryStep) {
  const auto tokens = random_tokens(200, 3);
  for (const char* method : kMapped) {
    SCOPED_TRACE(method);
    Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options(method, 16));
    session.record_memory();
    std::vector<Position> gone_at(tokens.size(), kNoPosition);
    const auto note = [&](Position before) {  // tokens that no head keeps since this step
      std::set<Position> kept;
      for (const Held& table : tokens_of(session.cache()))
        for (const auto& [position, into] : table) kept.insert(position);
      for (Position p = 0; p < session.position(); ++p)
        if (!kept.contains(p) && gone_at[static_cast<std::size_t>(p)] == kNoPosition)
          gone_at[static_cast<std::size_t>(p)] = before;
    };
    session.prefill(std::span(tokens).first(70));
    for (const MemoryMap map = session.memory_map(); const auto& token : map.tokens)  // in the middle of the prompt
      gone_at[static_cast<std::size_t>(&token - map.tokens.data())] = token.evicted_at;
    for (std::size_t i = 70; i < tokens.size(); ++i) {
      const Position before = session.position();
      session.decode(tokens[i]);
      note(session.method().evict_after ? before + 1 : before);
      if (i % 7 == 0 || i + 1 == tokens.size()) expect_map(session, tokens, gone_at);
      if (HasFatalFailure()) return;
    }
  }
}

// One size for one thing: what method full takes for these tokens, in whole pages.
TEST(MemoryMap, TheFullCacheIsThatOfMethodFull) {
  const auto tokens = random_tokens(150, 5);
  const auto decoder = std::make_shared<Decoder>(synthetic_model(), 1);
  Session full(decoder, session_options("full", 16)), small(decoder, session_options("streaming:budget=48", 16));
  for (const TokenId token : tokens) {
    full.decode(token);
    small.decode(token);
    const MemoryBytes whole = memory_bytes(full.sequence()), part = memory_bytes(small.sequence());
    ASSERT_EQ(whole.cache, full.cache().bytes_in_use());
    ASSERT_EQ(whole.full, whole.cache) << full.position();
    ASSERT_EQ(part.full, whole.cache) << full.position();
    ASSERT_LE(part.cache, part.full);
    ASSERT_LE(part.cache, part.limit);
    ASSERT_EQ(part.limit, decode_bytes(small.sequence().plan()).pages);
  }
}

TEST(MemoryMap, TheLogAloneGivesTheCache) {
  const auto tokens = random_tokens(200, 4);
  for (const char* method : kMapped)
    for (const std::size_t max : {std::size_t{1} << 16, std::size_t{40}}) {  // 40: changes are forgotten
      SCOPED_TRACE(std::string(method) + " " + std::to_string(max));
      const auto decoder = std::make_shared<Decoder>(synthetic_model(), 1);
      Session session(decoder, session_options(method, 16));
      const auto log = std::make_shared<MemoryLog>(max);
      session.sequence().set_memory_log(log);
      Follower follower(session.cache().tables());
      const auto take = [&] {
        follower.take(log->take(session.cache()), session.position());
        EXPECT_EQ(follower.tables(), tokens_of(session.cache()));
      };
      session.prefill(std::span(tokens).first(70));
      take();
      for (std::size_t i = 70; i < tokens.size(); ++i) {
        session.decode(tokens[i]);
        if (i % 5 == 0) take();
        if (HasFailure()) return;
      }
      if (session.method().mechanism != Mechanism::kMerge) {  // merged tokens cannot be taken back
        session.rewind(session.position() - 3);
        take();
      }
      session.clear();
      follower = Follower(session.cache().tables());
      session.prefill(std::span(tokens).first(20));
      take();
    }
}

TEST(MemoryMap, DraftsAndRewindsKeepTheText) {
  const auto tokens = random_tokens(120, 6);
  SessionOptions options = session_options("h2o:budget=48,every=8", 16);
  options.draft_max = 4;
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), options);
  session.record_memory();
  session.prefill(std::span(tokens).first(20));
  const auto expect_text = [&](std::size_t count) {
    const MemoryMap map = session.memory_map();
    ASSERT_EQ(map.tokens.size(), count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(map.tokens[i].id, tokens[i]) << i;
  };
  std::size_t i = 20;
  for (int stood = 0; i + 5 < tokens.size(); stood = (stood + 1) % 3) {
    const std::vector<TokenId> drafts(tokens.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                      tokens.begin() + static_cast<std::ptrdiff_t>(i) + 4);
    const auto rows = session.decode(tokens[i], drafts).size() / 96;
    const int accepted = std::min(stood, static_cast<int>(rows) - 1);
    session.accept(accepted);
    i += 1 + static_cast<std::size_t>(accepted);
    expect_text(i);
  }
  session.rewind(static_cast<Position>(i) - 2);
  expect_text(i - 2);
}

TEST(MemoryMap, ARestoredSessionKnowsItsText) {
  const auto tokens = random_tokens(90, 7);
  const std::string path = own_file("map.snap");
  Session saved(std::make_shared<Decoder>(synthetic_model(), 1), session_options("h2o:budget=48"));
  saved.prefill(tokens);
  EXPECT_EQ(saved.memory_map().tokens.front().id, -1);  // nothing was recorded
  save_snapshot(path, saved, nullptr, {.tokens = tokens});
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options("h2o:budget=48"));
  session.record_memory();
  load_snapshot(path, session, nullptr);
  const MemoryMap map = session.memory_map(), before = saved.memory_map();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(map.tokens[i].id, tokens[i]);
    EXPECT_EQ(map.tokens[i].kept, before.tokens[i].kept);
    EXPECT_EQ(map.tokens[i].evicted_at, kNoPosition);  // a snapshot has no times
  }
}

TEST(MemoryMap, RefusesWhatIsNotThere) {
  Session session(std::make_shared<Decoder>(synthetic_model(), 1), session_options("streaming:budget=48"));
  session.prefill(random_tokens(30, 8));
  EXPECT_THROW(session.memory_map({.layer = 3, .head = 0}), Error);
  EXPECT_THROW(session.memory_map({.layer = 0, .head = 2}), Error);
  const MemoryMap part = session.memory_map({.first = 10, .max = 5});
  EXPECT_EQ(part.first, 10);
  EXPECT_EQ(part.tokens.size(), 5u);
  Session window(std::make_shared<Decoder>(synthetic_model(), 1), session_options("window-recompute:budget=48"));
  window.prefill(random_tokens(30, 8));
  EXPECT_THROW(window.memory_map(), Error);
}

}  // namespace
}  // namespace palimpsest::testing
