// Edits of a text: positions against a naive list of tokens; keys and values of mode reuse against the sessions that
// they come from; mode exact against a session that reads the edited text.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>

#include "palimpsest/attention/read_rows.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing::edits {
namespace {

using Tokens = std::vector<TokenId>;

// None if `count` is 0.
Tokens some_tokens(long long count, unsigned seed) {
  return count == 0 ? Tokens() : random_tokens(static_cast<std::size_t>(count), seed);
}

std::shared_ptr<Decoder> decoder_of(int layers, int head_dim = 16) {
  return std::make_shared<Decoder>(Model::from(make_synthetic({.vocabulary = 96,
                                                               .width = 64,
                                                               .layers = layers,
                                                               .feed_forward = 96,
                                                               .query_heads = 4,
                                                               .kv_heads = 2,
                                                               .head_dim = head_dim})),
                                   1);
}

// In a model of one layer, keys and values depend on a token and its position only.
const std::shared_ptr<Decoder>& one_layer() {
  static const auto decoder = decoder_of(1);
  return decoder;
}
const std::shared_ptr<Decoder>& two_layers() {
  static const auto decoder = decoder_of(2);
  return decoder;
}

using Row = std::vector<float>;

Row row(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

double difference(const Row& a, const Row& b) {
  EXPECT_EQ(a.size(), b.size());
  double square = 0, delta = 0;
  for (std::size_t j = 0; j < std::min(a.size(), b.size()); ++j) {
    square += a[j] * a[j];
    delta = std::max(delta, std::abs(double{a[j]} - b[j]));
  }
  return delta / std::sqrt(square / static_cast<double>(a.size()));
}

constexpr double kSame = 1e-4;

// A token's position, and how many were read before it.
using Kept = std::map<Position, Position>;
Kept kept(const Cache& cache, int table = 0) {
  Kept out;
  const SlotTable& slots = cache.table(table);
  for (int slot = 0; slot < slots.slots(); ++slot)
    if (slots.position(slot) != kNoPosition) out[slots.position(slot)] = slots.ordinal(slot);
  return out;
}

// Keeps sinks and the newest tokens.
struct NaiveText {
  int budget, sinks, chunk;
  Kept tokens = {};
  Position next = 0, read = 0;
  bool edited = false;

  void evict(int max) {
    while (budget > 0 && std::ssize(tokens) > max) tokens.erase(tokens.lower_bound(sinks));
  }
  void insert(Position at, int count) {
    for (; count > 0; --count) tokens[at++] = read++;
  }
  void prompt(Position at, int count) {
    while (count > 0) {
      const int now = std::min(count, chunk);
      evict(budget - 1);
      insert(at, now);
      next = std::max(next, at + now);
      evict(budget);
      at += now;
      count -= now;
    }
  }
  void edit(Position first, Position last, int count) {
    const Position by = count - (last - first);
    Kept after;
    for (const auto& [position, ordinal] : tokens)
      if (position < first || position >= last) after[position < first ? position : position + by] = ordinal;
    tokens = after;
    if (last == next) {
      next = first;
      if (!edited) read = next;  // what was behind had never been read
    } else {
      edited = edited || by != 0 || count > 0;
      next += by;
    }
    prompt(first, count);
  }
};

TEST(Edits, KeepTheTokensAndPositionsOfANaiveText) {
  struct Case {
    const char* method;
    int budget, sinks;
  };
  for (const Case& each :
       {Case{"full", 0, 0}, Case{"streaming:budget=24", 24, 4}, Case{"streaming:budget=24,rerotate=fused", 24, 4},
        Case{"streaming:budget=24,positions=original,mechanism=shift", 24, 4},
        Case{"streaming:budget=24,mechanism=gather", 24, 4}, Case{"streaming:budget=24,mechanism=append", 24, 4}}) {
    SCOPED_TRACE(each.method);
    std::mt19937 random(11);
    const auto below = [&](Position n) { return static_cast<Position>(random() % static_cast<unsigned>(n)); };
    Session session(one_layer(), session_options(each.method, 7));
    NaiveText naive{each.budget, each.sinks, 7};
    const auto some = [&](Position count) { return some_tokens(count, random()); };
    session.prefill(some(30));
    naive.prompt(0, 30);
    int edits = 0, refused = 0;
    for (int round = 0; round < 60; ++round) {
      if (below(3) == 0) {
        const Position count = 1 + below(9);
        session.prefill(some(count));
        naive.prompt(naive.next, static_cast<int>(count));
      } else {
        const Position first = naive.next - below(std::min<Position>(naive.next, 30)) - 1;
        const Position last = std::min(naive.next, first + below(10)), count = below(12);
        const Tokens tokens = some(count);
        const auto before = kept(session.cache());
        try {
          session.edit(first, last, tokens);
          naive.edit(first, last, static_cast<int>(count));
          ++edits;
        } catch (const Error&) {  // evicted, or among the sinks
          ASSERT_EQ(kept(session.cache()), before);
          ++refused;
        }
      }
      ASSERT_EQ(session.position(), naive.next) << round;
      const Kept now = kept(session.cache());
      ASSERT_EQ(now, naive.tokens) << round;
    }
    EXPECT_GT(edits, 20);
    EXPECT_LT(refused, 30);
  }
}

struct Change {
  Position first, last;
  int tokens;
};
const Change kChanges[] = {{20, 20, 1}, {40, 41, 1}, {40, 56, 16}, {5, 9, 2}, {6, 8, 40}, {60, 63, 0}, {50, 64, 14}};

// ... so that reuse is no approximation there, whatever the positions and rotations. Page and chunk ends are among
// these lengths.
TEST(Edits, ReuseInOneLayerIsReadingTheEditedText) {
  for (const char* method : {"full", "full:mechanism=shift", "knorm:budget=200,positions=cache",
                             "knorm:budget=200,positions=cache,rerotate=cached-half",
                             "h2o:budget=200,positions=cache,rerotate=recompute", "streaming:budget=200"})
    for (const Change& c : kChanges) {
      SCOPED_TRACE(fmt::format("{} {}:{} by {}", method, c.first, c.last, c.tokens));
      const Tokens text = random_tokens(64, 3), tokens = some_tokens(c.tokens, 4);
      Session session(one_layer(), session_options(method, 16)), fresh(one_layer(), session_options(method, 16));
      session.prefill(text);
      const Row at_end = row(session.edit(c.first, c.last, tokens));
      const Row expected = row(fresh.prefill(edited(text, {c.first, c.last}, tokens)));
      if (c.last == 64) {
        EXPECT_LT(difference(at_end, expected), kSame);
      } else {
        EXPECT_TRUE(at_end.empty()) << "the text's last token was not read again";
      }
      EXPECT_EQ(positions_kept(session.cache()), positions_kept(fresh.cache()));
      for (const TokenId token : {7, 8, 9})
        ASSERT_LT(difference(row(session.decode(token)), row(fresh.decode(token))), kSame);
    }
}

// Evicting too, if the edit leaves as many tokens in the window as a new session has.
TEST(Edits, ReuseWithSinksAndWindowInOneLayerIsReadingTheEditedText) {
  for (const char* method : {"streaming:budget=24", "streaming:budget=24,rerotate=fused",
                             "streaming:budget=24,mechanism=shift", "streaming:budget=24,positions=original"})
    for (const Change& c : {Change{50, 51, 1}, Change{52, 54, 20}, Change{45, 45, 6}, Change{60, 64, 4}}) {
      SCOPED_TRACE(fmt::format("{} {}:{} by {}", method, c.first, c.last, c.tokens));
      const Tokens text = random_tokens(64, 3), tokens = some_tokens(c.tokens, 4);
      Session session(one_layer(), session_options(method, 16)), fresh(one_layer(), session_options(method, 16));
      session.prefill(text);
      session.edit(c.first, c.last, tokens);
      fresh.prefill(edited(text, {c.first, c.last}, tokens));
      EXPECT_EQ(positions_kept(session.cache()), positions_kept(fresh.cache()));
      for (const TokenId token : {7, 8, 9})
        ASSERT_LT(difference(row(session.decode(token)), row(fresh.decode(token))), kSame);
    }
}

// Keys and values of all heads by position.
std::map<std::pair<int, Position>, std::pair<Row, Row>> rows_of(const Session& session) {
  std::map<std::pair<int, Position>, std::pair<Row, Row>> out;
  const Cache& cache = session.cache();
  for (int head = 0; head < cache.geometry().heads(); ++head) {
    const LayerView view = cache.view(cache.geometry().layer_of(head));
    const SlotTable& table = cache.table(cache.table_of(head));
    const auto slots = static_cast<std::size_t>(table.slots()), dims = static_cast<std::size_t>(view.head_dim);
    Row keys(slots * dims), values(slots * dims);
    read_keys(view, cache.head(head), keys.data());
    read_values(view, cache.head(head), values.data());
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const auto of = [&](const Row& all) {
        return Row(all.begin() + static_cast<std::ptrdiff_t>(slot * dims),
                   all.begin() + static_cast<std::ptrdiff_t>((slot + 1) * dims));
      };
      if (const Position position = table.position(static_cast<int>(slot)); position != kNoPosition)
        out[{head, position}] = {of(keys), of(values)};
    }
  }
  return out;
}

// Tokens before the edit and its own are those of a session that reads them; those behind are the old session's, with
// keys moved by the difference of positions and rounded to the cache's type once more.
TEST(Edits, ReuseKeepsKeysAndValuesOfTheTokensBehind) {
  struct Rounding {
    CacheType type;
    double error;  // of an element, over the row's root mean square: about a step of the type
  };
  const Tokens text = random_tokens(64, 5);
  const auto decoder = decoder_of(2, 32);
  const RopeFrequencies rope(decoder->model().hyper().rope);
  for (const Rounding& rounding :
       {Rounding{CacheType::kF32, kSame}, Rounding{CacheType::kF16, 5e-3}, Rounding{CacheType::kQ8_0, 0.04},
        Rounding{CacheType::kQ4_0, 0.6}, Rounding{CacheType::kQ4, 0.6}, Rounding{CacheType::kQ3, 1.2}})
    for (const Change& c : kChanges) {
      SCOPED_TRACE(fmt::format("{}:{} by {}, {}", c.first, c.last, c.tokens, name_of(rounding.type)));
      const Tokens tokens = some_tokens(c.tokens, 6);
      const Position by = c.tokens - (c.last - c.first), end = c.first + c.tokens;
      SessionOptions options = session_options("full", 16);
      options.cache_type = rounding.type;
      Session session(decoder, options), old(decoder, options), before(decoder, options);
      session.prefill(text);
      old.prefill(text);
      session.edit(c.first, c.last, tokens);
      before.prefill(
          std::span<const TokenId>(edited(text, {c.first, c.last}, tokens)).first(static_cast<std::size_t>(end)));
      const auto now = rows_of(session), was = rows_of(old), read = rows_of(before);
      ASSERT_EQ(now.size(), 4 * static_cast<std::size_t>(64 + by));
      for (const auto& [where, rows] : now) {
        const auto [head, position] = where;
        if (position < end) {
          ASSERT_LT(difference(rows.first, read.at(where).first), rounding.error);
          ASSERT_LT(difference(rows.second, read.at(where).second), rounding.error);
          continue;
        }
        const auto& [key, value] = was.at({head, position - by});
        ASSERT_EQ(rows.second, value);
        Row moved = key;
        for (int pair = 0; pair < rope.pairs(); ++pair) {
          const bool halves = rope.kind() == RopeKind::kHalves;
          const auto x = static_cast<std::size_t>(halves ? pair : 2 * pair);
          const auto y = static_cast<std::size_t>(halves ? pair + rope.pairs() : 2 * pair + 1);
          const double angle = rope.angle(by, pair);
          moved[x] = static_cast<float>(key[x] * std::cos(angle) - key[y] * std::sin(angle));
          moved[y] = static_cast<float>(key[x] * std::sin(angle) + key[y] * std::cos(angle));
        }
        ASSERT_LT(difference(rows.first, moved), rounding.error);
      }
    }
}

const char* const kEveryMethod[] = {"full",
                                    "streaming:budget=24",
                                    "streaming:budget=24,mechanism=shift",
                                    "h2o:budget=24",
                                    "knorm:budget=24",
                                    "snapkv:budget=24,recent=8,window=8",
                                    "tova:budget=24",
                                    "keydiff:budget=24",
                                    "lagkv:budget=40",
                                    "pyramidkv:budget=40,recent=8,window=8",
                                    "ems:budget=24,recent=8",
                                    "random:budget=40"};

TEST(Edits, ExactIsReadingTheEditedText) {
  for (const int length : {20, 64})  // within the budget, and beyond
    for (const char* method : kEveryMethod)
      for (const Change& c : {Change{18, 18, 3}, Change{10, 14, 2}, Change{0, 1, 1}, Change{17, 20, 0}}) {
        SCOPED_TRACE(fmt::format("{} {}:{} of {}", method, c.first, c.last, length));
        const Tokens text = random_tokens(length, 7), tokens = some_tokens(c.tokens, 8);
        const auto options = session_options(method, 8);
        Session session(two_layers(), options), fresh(two_layers(), options);
        session.prefill(text);
        const Row logits = row(session.edit(c.first, c.last, tokens, EditMode::kExact, text));
        EXPECT_LT(difference(logits, row(fresh.prefill(edited(text, {c.first, c.last}, tokens)))), kSame);
        for (int t = 0; t < fresh.cache().tables(); ++t)
          ASSERT_EQ(positions_kept(session.cache(), t), positions_kept(fresh.cache(), t));
        for (const TokenId token : {7, 8, 9})
          ASSERT_LT(difference(row(session.decode(token)), row(fresh.decode(token))), kSame);
      }
}

TEST(Edits, ExactReadsOnlyWhatTheEditChanges) {
  const Tokens text = random_tokens(64, 9);
  const auto unaffected = [&](const char* method, Position first, int length = 64) {
    Session session(two_layers(), session_options(method, 16));
    session.prefill(std::span(text).first(static_cast<std::size_t>(length)));
    return session.sequence().unaffected_until(first, 64);
  };
  EXPECT_EQ(unaffected("full", 50), 50);
  EXPECT_EQ(unaffected("streaming:budget=100", 50), 50);
  EXPECT_EQ(unaffected("streaming:budget=40", 39, 39), 32) << "whole chunks: evictions will follow them";
  EXPECT_EQ(unaffected("streaming:budget=24", 50), 0) << "tokens before were evicted";
  EXPECT_EQ(unaffected("knorm:budget=100", 50), 50);
  EXPECT_EQ(unaffected("h2o:budget=100", 50), 0) << "later tokens gave the others weights";
  Session session(two_layers(), session_options("full", 16));
  session.prefill(text);
  session.edit(30, 31, random_tokens(1, 1));
  EXPECT_EQ(session.sequence().unaffected_until(50, 64), 0) << "the tokens behind were read after another text";
  session.rewind(64);
  session.edit(20, 21, random_tokens(1, 2), EditMode::kExact, text);
  session.edit(40, 41, random_tokens(1, 3), EditMode::kExact, text);
  EXPECT_EQ(session.sequence().unaffected_until(50, 64), 50) << "exact edits leave nothing behind";
}

TEST(Edits, ForksGoOnAlone) {
  for (const char* method : {"full", "streaming:budget=24", "h2o:budget=24", "snapkv:budget=24,recent=8,window=8"}) {
    SCOPED_TRACE(method);
    const Tokens text = random_tokens(64, 10);
    Session session(two_layers(), session_options(method, 16)), same(two_layers(), session_options(method, 16));
    session.prefill(text);
    same.prefill(text);
    const auto fork = session.fork();
    fork->edit(60, 62, random_tokens(9, 11));
    fork->decode(1);
    for (const TokenId token : {7, 8, 9}) ASSERT_EQ(row(session.decode(token)), row(same.decode(token)));
    EXPECT_EQ(fork->position(), 72);
    const auto again = session.fork();
    for (const TokenId token : {7, 8, 9}) ASSERT_EQ(row(again->decode(token)), row(same.decode(token)));
  }
}

TEST(Edits, RangesAreDroppedAndShifted) {
  const Tokens text = random_tokens(64, 12);
  Session session(one_layer(), session_options("full", 16)), fresh(one_layer(), session_options("full", 16));
  session.prefill(text);
  session.drop(20, 30);
  EXPECT_EQ(session.position(), 64) << "a hole";
  EXPECT_EQ(session.cache().occupied(), 54);
  session.shift(30, kEndOfText, -10);
  EXPECT_EQ(session.position(), 54);
  fresh.prefill(edited(text, {20, 30}, {}));
  EXPECT_LT(difference(row(session.decode(5)), row(fresh.decode(5))), kSame);
  session.drop(50, 55);
  EXPECT_EQ(session.position(), 50) << "a range to the end is a rewind";
}

TEST(Edits, BadRangesAreOneClearError) {
  Session session(two_layers(), session_options("streaming:budget=24", 16));
  const Tokens text = random_tokens(64, 13), one{1};
  session.prefill(text);
  const auto before = kept(session.cache());
  const auto refusal = [&](Position first, Position last, EditMode mode = EditMode::kReuse) {
    const std::string message = error_of([&] { session.edit(first, last, one, mode, text); });
    EXPECT_EQ(kept(session.cache()), before);
    return message;
  };
  for (const EditMode mode : {EditMode::kReuse, EditMode::kExact}) {
    EXPECT_EQ(refusal(5, 4, mode), "the range 5:4 is out of order: give A:B with 0 <= A <= B, the tokens A to B - 1");
    EXPECT_EQ(refusal(-1, 4, mode), "the range -1:4 is out of order: give A:B with 0 <= A <= B, the tokens A to B - 1");
    EXPECT_EQ(refusal(60, 65, mode), "the range 60:65 is beyond the end of the text: 64 tokens were read");
  }
  EXPECT_EQ(refusal(10, 20),
            "the tokens 10:20 were evicted: no head holds one of them; edit others, or use mode exact");
  EXPECT_EQ(refusal(20, 20),
            "the tokens 20:21 were evicted: no head holds one of them; edit others, or use mode exact");
  EXPECT_EQ(refusal(2, 3),
            "the first 4 tokens are sinks, which keep their positions: edit behind them, or use mode exact");
  EXPECT_EQ(error_of([&] { session.edit(50, 51, one, EditMode::kExact); }),
            "mode exact reads tokens again: give the 64 tokens of the text (0 are known)");
  EXPECT_EQ(error_of([&] { session.drop(50, 51); }),
            "method streaming has positions inside the cache, which leave no gap: edit the range instead");
}

TEST(Edits, WhatStoredKeysForbidIsRefused) {
  const auto refusal = [&](const char* method) {
    Session session(decoder_of(1), session_options(method, 16));
    session.prefill(random_tokens(20, 14));
    return error_of([&] { session.edit(10, 11, random_tokens(3, 15)); });
  };
  EXPECT_EQ(refusal("streaming:budget=64,mechanism=shift,rerotate=delta"),
            "rerotate=delta: stored keys are rotated by their ranks, which an edit changes: use rerotate=fused");
  EXPECT_EQ(refusal("window-recompute:budget=64"),
            "method window-recompute has no cache to edit: read the edited text");
}

// Because each move rounds; also in a fork and a saved session. Types of 8 bits and more lose nothing that can be
// measured.
TEST(Edits, KeysOfFourBitsAreMovedEightTimesOfThreeOnce) {
  const auto decoder = decoder_of(1, 32);
  const Tokens text = random_tokens(64, 18), one = random_tokens(1, 19);
  for (const auto& [type, moves] : {std::pair(CacheType::kQ8_0, 8), std::pair(CacheType::kQ4_0, 8),
                                    std::pair(CacheType::kQ4, 8), std::pair(CacheType::kQ3, 1)}) {
    SCOPED_TRACE(name_of(type));
    SessionOptions options = session_options("full", 16);
    options.cache_type = type;
    Session session(decoder, options);
    session.prefill(text);
    for (int i = 0; i < moves; ++i) session.edit(10, 10, one);
    session.edit(10, 11, one);  // moves nothing
    const std::string file = own_file("moved.snap");
    save_snapshot(file, session, nullptr, {.tokens = text});
    Session loaded(decoder, options);
    load_snapshot(file, loaded, nullptr);
    std::filesystem::remove(file);
    const auto fork = session.fork();
    const std::string expected = type == CacheType::kQ8_0
                                     ? ""
                                     : fmt::format(
                                           "keys of type {} were moved {}, which rounds them each time: use "
                                           "mode exact, or --cache-type q8_0",
                                           name_of(type), moves == 1 ? "1 time" : "8 times");
    const Position before = session.position();
    for (Session* each : {&session, fork.get(), &loaded})
      EXPECT_EQ(error_message([&] { each->edit(10, 10, one); }), expected);
    EXPECT_EQ(session.position(), before + (expected.empty() ? 1 : 0));
    session.clear();
    session.prefill(text);
    session.edit(10, 10, one);
  }
}

TEST(Edits, KeysOfTwoBitsAreNotMoved) {
  const auto decoder = decoder_of(1, 32);
  const Tokens text = random_tokens(64, 18), one = random_tokens(1, 19);
  SessionOptions options = session_options("full", 16);
  options.cache_type = {CacheType::kQ2, CacheType::kQ4};
  Session session(decoder, options);
  session.prefill(text);
  EXPECT_EQ(error_message([&] { session.edit(10, 10, one); }),
            "keys of type q2 cannot be moved, which would round them again: use mode exact, or --cache-type q8_0");
  EXPECT_EQ(session.position(), 64);
  session.edit(10, 11, one);                                // moves nothing
  options.cache_type = {CacheType::kQ8_0, CacheType::kQ2};  // values are not rotated
  Session values(decoder, options);
  values.prefill(text);
  values.edit(10, 10, one);
  EXPECT_EQ(values.position(), 65);
}

// A recurrent state forgets nothing: mode exact reads the whole text, mode reuse is refused.
TEST(Edits, RecurrentStatesAreReadAgain) {
  SyntheticShape shape = parse_synthetic("tiny-lfm2");
  shape.vocabulary = 96;
  const auto decoder = std::make_shared<Decoder>(Model::from(make_synthetic(shape)), 1);
  Session session(decoder, session_options("full", 16)), fresh(decoder, session_options("full", 16));
  const Tokens text = random_tokens(40, 16), tokens = random_tokens(2, 17);
  session.prefill(text);
  for (const PositionRange range : {PositionRange{20, 22}, PositionRange{20, 21}, PositionRange{38, 40}})
    EXPECT_NE(error_of([&] { session.edit(range.first, range.last, tokens); }).find("recurrent state"),
              std::string::npos);
  EXPECT_EQ(session.position(), 40);
  const Row logits = row(session.edit(20, 21, tokens, EditMode::kExact, text));
  EXPECT_LT(difference(logits, row(fresh.prefill(edited(text, {20, 21}, tokens)))), kSame);
  EXPECT_LT(difference(row(session.decode(5)), row(fresh.decode(5))), kSame);
}

// Layers with an attention window have dropped what new tokens in the middle would see: the session is as before.
TEST(Edits, DroppedWindowsAreReadAgain) {
  SyntheticShape shape = parse_synthetic("tiny-gemma2");  // windows of 24
  shape.vocabulary = 96;
  const auto decoder = std::make_shared<Decoder>(Model::from(make_synthetic(shape)), 1);
  Session session(decoder, session_options("full", 16)), untouched(decoder, session_options("full", 16));
  const Tokens text = random_tokens(60, 18);
  session.prefill(text);
  untouched.prefill(text);
  for (const std::size_t count : {1, 2, 3})
    EXPECT_NE(error_of([&] { session.edit(20, 22, random_tokens(count, 19)); }).find("attention window of 24"),
              std::string::npos);
  EXPECT_EQ(session.position(), 60);
  EXPECT_EQ(row(session.decode(5)), row(untouched.decode(5)));
}

TEST(Edits, AreWrittenAsRangeAndText) {
  const WrittenEdit edit = parse_edit("3:17=a = b: c");
  EXPECT_EQ(edit.range, (PositionRange{3, 17}));
  EXPECT_EQ(edit.text, "a = b: c");
  EXPECT_EQ(parse_edit("3:3=").text, "");
  for (const char* bad : {"", "3", "3:4", "=x", "3=x", "3=a:b"})
    EXPECT_NE(error_of([&] { parse_edit(bad); }).find("is not A:B=TEXT"), std::string::npos) << bad;
  EXPECT_NE(error_of([&] { parse_edit("3:x=y"); }).find("a position of the edit"), std::string::npos);
  EXPECT_EQ(parse_edit_mode("exact"), EditMode::kExact);
}

}  // namespace
}  // namespace palimpsest::testing::edits
