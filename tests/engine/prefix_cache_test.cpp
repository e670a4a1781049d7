// A sequence that reuses a cached prefix gives the same as one that reads it itself, bit by bit.
#include "palimpsest/engine/scheduler/prefix_cache.h"
#include "palimpsest/cache/formats/formats.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/draws.h"
#include "tests/support/random_tokens.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr int kPrefixChunk = 24;
constexpr std::size_t kMiB = std::size_t{1} << 20;
using Tokens = std::vector<TokenId>;

const SyntheticShape kSmall = {.width = 64, .feed_forward = 96, .query_heads = 4, .kv_heads = 2, .head_dim = 32};

// A decoder and the pool of pages for its caches.
struct Engine {
  Engine(SyntheticShape shape_of_model, CacheType type, int page_size) : type(type), page_size(page_size) {
    shape_of_model.vocabulary = 96;
    shape_of_model.layers = 2;
    if (shape_of_model.window_period > 0) shape_of_model.window_period = 2;
    decoder = std::make_shared<Decoder>(Model::from(make_synthetic(shape_of_model)), 1);
    CacheOptions shape = decoder->cache_options();
    shape.geometry = shape.geometry.with_types(type, type);
    shape.page_size = page_size;
    pool = make_pool(shape);
  }
  SessionOptions options(const std::string& method, int draft_max) const {
    SessionOptions options;
    options.method = parse_method(method);
    options.cache_type = type;
    options.page_size = page_size;
    options.chunk = kPrefixChunk;
    options.draft_max = draft_max;
    return options;
  }
  std::shared_ptr<Decoder> decoder;
  CacheType type;
  int page_size;
  std::shared_ptr<PagePool> pool;
};

// Reads a prompt step by step, as the scheduler does.
struct Reader {
  Reader(const Engine& engine, const std::string& method, int draft_max = 0)
      : decoder(engine.decoder),
        sequence(*decoder, engine.options(method, draft_max), nullptr, engine.pool),
        rule(sequence.plan()) {}

  bool key(const Tokens& prompt) const { return read < prompt.size(); }
  void step(const Tokens& prompt) {
    if (sequence.stage() != Sequence::Stage::kPrompt) {
      sequence.read(prompt);
      sequence.skip(read);
    }
    run();
    read = static_cast<std::size_t>(sequence.cache().next());
  }
  void decode(TokenId token) {
    sequence.read(token);
    run();
  }
  // All logits of the rest of the prompt and of some fixed tokens.
  std::vector<float> finish(const Tokens& prompt, int tokens) {
    while (key(prompt)) step(prompt);
    for (int i = 0; i < tokens; ++i) decode(static_cast<TokenId>(i * 7 % 90));
    return seen;
  }
  void continue_from(Cache& kept) {
    sequence.continue_from(kept);
    read = static_cast<std::size_t>(kept.next());
  }

  std::shared_ptr<Decoder> decoder;
  Sequence sequence;
  PrefixKey rule;
  std::size_t read = 0;
  std::vector<float> seen;

 private:
  void run() {
    const SequenceStep step = sequence.next();
    const auto logits = sequence.done(decoder->step({&step, 1}));
    seen.insert(seen.end(), logits.begin(), logits.end());
  }
};

const char* const kSharedMethods[] = {"full",
                                      "streaming:budget=40",
                                      "streaming:budget=48,every=8",
                                      "lazy:budget=40,every=6",
                                      "streaming:budget=40,mechanism=shift",
                                      "streaming:budget=40,rerotate=fused",
                                      "streaming:budget=40,rerotate=recompute",
                                      "compact-shift:budget=40",
                                      "sparse:budget=40",
                                      "random:budget=40",
                                      "h2o:budget=40",
                                      "h2o:budget=33,positions=cache",
                                      "h2o:budget=33,positions=auto",
                                      "h2o:budget=40,mechanism=gather",
                                      "h2o:budget=40,schedule=prompt+step",
                                      "knorm:budget=40",
                                      "knorm:budget=40,mechanism=append",
                                      "keydiff:budget=40",
                                      "tova:budget=40",
                                      "snapkv:budget=40",
                                      "snapkv:budget=40,recent=8,schedule=step",
                                      "r-kv:budget=40,every=3",
                                      "lagkv:budget=40",
                                      "r-kv:budget=40",
                                      "scissorhands:budget=40",
                                      "expected-attention:budget=40,every=8",
                                      "pyramidkv:budget=60",
                                      "adakv:budget=60,schedule=prompt+step",
                                      "h2o:budget=40,recent=8,split=ada",
                                      "global-local:budget=40",
                                      "ems:budget=40,recent=8,tau=0.1",
                                      "ems:budget=40,recent=8,tau=0.1,schedule=step",
                                      "ems:budget=40,recent=8,tau=0.1,schedule=step,merge-position=own",
                                      "ems:budget=40,recent=8,tau=0.1,schedule=step,positions=cache",
                                      "snapkv:budget=40,recent=8,window=8,pooling=avg",
                                      "cam:budget=40",
                                      "snapkv:budget=40,mechanism=match",
                                      "sparse:budget=40,every=16,mechanism=match,references=40",
                                      "paged-eviction:budget=64",
                                      "paged-eviction:budget=60,page=8,schedule=step",
                                      "paged-eviction:budget=96,schedule=step"};

bool exists(const std::string& method, CacheType type, int page_size) {
  if (!kv_format(type).elementwise() &&
      (method.find("compact") != std::string::npos || method.find("recompute") != std::string::npos))
    return false;
  return page_size <= 32 || method.find("paged") == std::string::npos;
}

// For every method: at each end of a chunk another sequence reuses the prefix, with the same prompt or one that differs
// from there on, after the first sequence has read on.
std::vector<std::string> shared_methods() {
  return {std::begin(kSharedMethods), std::end(kSharedMethods)};
}

#ifdef PALIMPSEST_SANITIZED
const std::vector<CacheType> kTypes = {CacheType::kF16, CacheType::kQ8_0, CacheType::kQ4};
const std::vector<int> kPageSizes = {16};
#else
const std::vector<CacheType> kTypes = {CacheType::kF32,  CacheType::kF16, CacheType::kBF16,
                                       CacheType::kQ8_0, CacheType::kQ4,  CacheType::kQ2};
const std::vector<int> kPageSizes = {16, 32, 64};
#endif

TEST(SharedPrefix, GoingOnIsReadingAfresh) {
  for (const CacheType type : kTypes)
    for (const int page_size : kPageSizes) {
      const Engine engine(kSmall, type, page_size);
      const Tokens prompt = random_tokens(130, 1);
      long long evicted = 0;
      int same = 0;
      for (const std::string& method : some_of(shared_methods(), test_length(20U, 64U, 5U))) {
        if (!exists(method, type, page_size)) continue;
        SCOPED_TRACE(method + " pages of " + std::to_string(page_size) + " type " +
                     std::to_string(static_cast<int>(type)));
        const auto afresh = Reader(engine, method).finish(prompt, 30);
        Reader first(engine, method);
        std::vector<std::unique_ptr<Cache>> kept;
        while (first.key(prompt)) {
          first.step(prompt);
          if (first.read + first.rule.window <= prompt.size()) kept.push_back(first.sequence.cache().fork());
        }
        evicted += first.sequence.cache().evicted();
        EXPECT_TRUE(first.finish(prompt, 30) == afresh);
        ASSERT_GE(kept.size(), 4u);
        for (const auto& each : kept) {
          Tokens other(prompt.begin(), prompt.begin() + each->next());
          const Tokens tail = random_tokens(40, 2);
          other.insert(other.end(), tail.begin(), tail.end());
          Reader second(engine, method);
          second.continue_from(*each);
          if (++same % 2 == 0)
            EXPECT_TRUE(second.finish(prompt, 30) == afresh) << "from " << each->next();
          else
            EXPECT_TRUE(second.finish(other, 30) == Reader(engine, method).finish(other, 30))
                << "from " << each->next();
        }
      }
      EXPECT_GT(evicted, test_length(500, 500, 50));
      EXPECT_EQ(engine.pool->pages_in_use(), 0u);
      EXPECT_GT(engine.pool->pages_copied(), test_length(500U, 500U, 50U));
    }
}

// Between any two methods, before the first eviction: where compatible_with() allows it, which is tested for those that
// should.
TEST(SharedPrefix, MethodsShareWhatNothingHasLeftYet) {
  const std::vector<std::string> models = {"small", "tiny-gemma2", "tiny-gemma4", "tiny-bloom", "tiny-nope"};
  for (const std::string& model : std::span(models).first(test_length(3U, 5U, 1U))) {
    const bool windows = model.starts_with("tiny-gemma");
    const Engine engine(model == "small" ? kSmall : parse_synthetic(model), CacheType::kF16, 16);
    const Tokens prompt = random_tokens(60, 3);
    std::map<std::string, std::vector<float>> afresh;
    for (const std::string method : kSharedMethods) afresh[method] = Reader(engine, method).finish(prompt, 10);
    std::set<std::pair<std::string, std::string>> pairs;
    Interleaved turn(test_length(1, 1, 7));
    for (const std::string from : kSharedMethods) {
      Reader first(engine, from);
      while (first.read < 24) first.step(prompt);
      const auto kept = first.sequence.cache().fork();
      ASSERT_TRUE(kept->compatible_with(kept->options()));
      ASSERT_TRUE(kept->nothing_evicted() || windows) << "with windows of 24";
      for (const std::string to : kSharedMethods) {
        Reader second(engine, to);
        if (!compatible_with(first.rule, first.read, kept->compatible_with(second.rule.cache), second.rule)) continue;
        pairs.emplace(from, to);
        if (turn.next() != 0) continue;
        second.continue_from(*kept);
        EXPECT_TRUE(second.finish(prompt, 10) == afresh[to]) << model << ": " << from << " -> " << to;
      }
    }
    EXPECT_TRUE(pairs.contains({"full", "sparse:budget=40"}));
    EXPECT_TRUE(pairs.contains({"full", "streaming:budget=40"}));
    EXPECT_TRUE(pairs.contains({"h2o:budget=40", "full"}));
    EXPECT_EQ(pairs.contains({"h2o:budget=40,mechanism=gather", "h2o:budget=40"}), !windows)
        << "where windows dropped tokens, slots are the mechanism's";
    EXPECT_FALSE(pairs.contains({"full", "h2o:budget=40"})) << "it needs the weights that its tokens received";
    EXPECT_FALSE(pairs.contains({"knorm:budget=40", "h2o:budget=40"}));
    std::printf("%s: %zu of %zu pairs share\n", model.c_str(), pairs.size(),
                std::size(kSharedMethods) * std::size(kSharedMethods));
  }
}

// The state of recurrent layers is part of a kept prefix.
TEST(SharedPrefix, HoldsRecurrentStates) {
  const Tokens prompt = random_tokens(90, 5);
  const std::vector<std::string> methods = {"full", "streaming:budget=40", "h2o:budget=40",
                                            "ems:budget=40,recent=8,tau=0.1"};
  for (const std::string model : {"tiny-lfm2", "tiny-granitehybrid", "tiny-qwen35"})
    for (const std::string& method : some_if_sanitized(methods, 1)) {
      const Engine engine(parse_synthetic(model), CacheType::kF16, 16);
      const auto afresh = Reader(engine, method).finish(prompt, 20);
      Reader first(engine, method);
      while (first.key(prompt)) {
        first.step(prompt);
        if (first.read + first.rule.window > prompt.size()) break;
        const auto kept = first.sequence.cache().fork();
        Reader second(engine, method);
        second.continue_from(*kept);
        EXPECT_TRUE(second.finish(prompt, 20) == afresh) << method << " from " << first.read;
        if (method != "full") continue;  // the tokens that follow are evicted
        kept->state().clear();
        Reader without(engine, method);
        without.continue_from(*kept);
        EXPECT_FALSE(without.finish(prompt, 20) == afresh) << method << " from " << first.read;
      }
      EXPECT_TRUE(first.finish(prompt, 20) == afresh) << method;
    }
}

// Requests with and without drafts have the same tokens in the same slots.
TEST(SharedPrefix, WithDraftsAndWithout) {
  for (const std::string model : {"small", "tiny-gemma3", "tiny-gemma4-moe"})
    for (const std::string& method :
         some_if_sanitized<std::string>({"streaming:budget=60", "full", "h2o:budget=60,every=8"}, 1))
      for (const auto& [from, to] : {std::pair(0, 20), {20, 0}, {5, 20}}) {
        SCOPED_TRACE(fmt::format("{} {}: {} -> {}", model, method, from, to));
        const Engine engine(model == "small" ? kSmall : parse_synthetic(model), CacheType::kF16, 16);
        const Tokens prompt = random_tokens(130, 3);
        const auto afresh = Reader(engine, method, to).finish(prompt, 10);
        Reader first(engine, method, from);
        int shared = 0;
        PrefixCache prefixes;
        while (first.key(prompt)) {
          first.step(prompt);
          if (!first.key(prompt)) break;
          prefixes.keep(first.rule, prompt, first.read, first.sequence, kMiB);
          Reader second(engine, method, to);
          Cache* const kept = prefixes.find(second.rule, prompt, 0);
          if (kept == nullptr || static_cast<std::size_t>(kept->next()) < first.read) continue;
          ++shared;
          second.continue_from(*kept);
          EXPECT_EQ(second.sequence.cache().fault(), nullptr);
          EXPECT_TRUE(second.finish(prompt, 10) == afresh) << "from " << first.read;
        }
        EXPECT_EQ(shared, 5);
      }
}

// Pages count once, however many prefixes hold them. Evicts the least recently used prefix; of one prompt's prefixes,
// the longest.
TEST(PrefixCache, ForgetsWhatIsUsedLeast) {
  const Engine engine(kSmall, CacheType::kF32, 16);
  const Tokens one = random_tokens(100, 1), two = random_tokens(100, 2);
  PrefixCache prefixes;
  std::size_t min = 0;
  const auto read = [&](const Tokens& prompt, std::size_t max) {
    Reader reader(engine, "full");
    while (reader.key(prompt)) {
      reader.step(prompt);
      if (reader.key(prompt)) prefixes.keep(reader.rule, prompt, reader.read, reader.sequence, max);
    }
  };
  const Reader like(engine, "full");
  const auto found = [&](const Tokens& prompt, std::size_t read) {
    const Cache* kept = prefixes.find(like.rule, prompt, read);
    return kept == nullptr ? 0 : kept->next();
  };
  const auto pages = [&](std::size_t tokens) {  // of `tokens` tokens in 2 layers x 2 heads
    return (tokens + 15) / 16 * 4 * engine.pool->page_bytes();
  };
  // Each prefix has its own tokens, table and page ids.
  const auto beside = [&](std::size_t tokens) {
    const std::size_t held = (tokens + 15) / 16,
                      table = held * 16 * SlotTable::slot_bytes(false, 0) + held * sizeof(int);
    return tokens * sizeof(TokenId) + table + held * 4 * sizeof(PageId);
  };
  read(one, kMiB);
  EXPECT_EQ(prefixes.size(), 4u);
  for (const std::size_t tokens : {24, 48, 72, 96}) min += beside(tokens);
  EXPECT_EQ(prefixes.bytes(), prefixes.bytes_of_pages() + prefixes.overhead_bytes());
  EXPECT_GE(prefixes.overhead_bytes(), min);
  // 96 tokens, and the copied pages that are half full: those of 24 and 72.
  EXPECT_EQ(prefixes.bytes_of_pages(), pages(96) + 2 * pages(16));
  EXPECT_EQ(prefixes.bytes_of_pages(), engine.pool->bytes_in_use());
  read(one, kMiB);
  EXPECT_EQ(prefixes.size(), 4u) << "known already";
  const Tokens two_short(two.begin(), two.begin() + 60);
  read(two_short, kMiB);
  EXPECT_EQ(prefixes.size(), 6u);
  read(random_tokens(100, 4), pages(16));
  EXPECT_EQ(prefixes.size(), 6u) << "those that alone are too large are not kept";

  EXPECT_EQ(found(one, 0), 96);
  EXPECT_EQ(found(Tokens(one.begin(), one.begin() + 96), 0), 72) << "the last token must be read";
  EXPECT_EQ(found(one, 96), 0);
  EXPECT_EQ(found(two, 0), 48);
  EXPECT_EQ(found(random_tokens(100, 3), 0), 0);
  Tokens parted = one;
  parted[60] ^= 1;
  EXPECT_EQ(found(parted, 0), 48);

  found(two, 0);
  EXPECT_TRUE(prefixes.evict_one());
  EXPECT_EQ(found(one, 0), 72) << "two was used since, and of one's the longest goes first";
  EXPECT_EQ(found(two, 0), 48);
  read(two_short, pages(48) + pages(16) + beside(24) + beside(48) + 3072);
  EXPECT_EQ(found(one, 0), 0) << "no room for both";
  EXPECT_EQ(found(two, 0), 48);
  EXPECT_EQ(prefixes.bytes_of_pages(), engine.pool->bytes_in_use());
  while (prefixes.evict_one()) {
  }
  EXPECT_EQ(prefixes.bytes(), 0u);
  EXPECT_EQ(engine.pool->pages_in_use(), 0u);
}

}  // namespace
}  // namespace palimpsest::testing
