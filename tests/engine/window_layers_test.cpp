// Layers with an attention window hold that window only, without a change of results. The oracle is a plan for the same
// model without windows: its layers hold all tokens, and the kernels hide those outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/draws.h"
#include "tests/support/kept_tokens.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest::testing {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int kWords = 96, kPage = 16, kPromptChunk = 20;

// Windows of 24 tokens: Gemma 2 in every other layer; Gemma 3 in five of six layers, with their own RoPE base; a model
// with a window in all layers. Gemma 4: in two of three, whose heads are narrower, and layers that share a cache.
std::shared_ptr<Decoder> decoder_of(const std::string& name) {
  static std::map<std::string, std::shared_ptr<Decoder>> known;
  auto& decoder = known[name];
  if (decoder != nullptr) return decoder;
  SyntheticShape shape = parse_synthetic(name == "all windows" ? "tiny-gemma2" : name);
  shape.vocabulary = kWords;
  if (name == "all windows") shape.keys.push_back({"attention.sliding_window_pattern", ExtraKey::Type::kInteger, 1000});
  return decoder = std::make_shared<Decoder>(Model::from(make_synthetic(shape)), 1);
}

SessionOptions window_options(const std::string& method) {
  SessionOptions options;
  options.method = parse_method(method);
  options.cache_type = CacheType::kF32;
  options.page_size = kPage;
  options.chunk = kPromptChunk;
  return options;
}

// Layers with a window hold all tokens; the method and its budget apply to the other layers.
std::shared_ptr<const MethodPlan> keeps_all(const Decoder& decoder, SessionOptions& options, bool policy_in_windows) {
  PlanTarget target = plan_target(decoder, options);
  const HeadGeometry geometry = target.shape.geometry;
  target.shape.geometry =
      geometry.with_windows(std::vector<std::int32_t>(static_cast<std::size_t>(geometry.layers()), INT32_MAX));
  if (options.method.evicts() && !policy_in_windows) {
    options.method.split = Split(own_file("keeps_all.txt"));
    std::ofstream file(options.method.split.file());
    for (int layer = 0; layer < geometry.layers(); ++layer)
      if (geometry.layer(layer).kv_heads > 0)
        file << layer << " * " << (geometry.layer(layer).window == INT32_MAX ? options.method.budget : 20000) << "\n";
  }
  return std::make_shared<MethodPlan>(options.method, std::move(target));
}

// Logits of the end of the prompt and of each token after it. `kept`: the tokens that layers without a window keep
// after each chunk of the prompt and each token.
std::vector<float> logits_of(Session& session, std::size_t prompt, const Tokens& text,
                             std::vector<KeptTokens>* kept = nullptr) {
  std::vector<float> all;
  const HeadGeometry& geometry = session.decoder().model().hyper().geometry;
  std::vector<int> full;
  for (int head = 0; head < geometry.heads(); ++head)
    if (geometry.layer_geometry(head).window == INT32_MAX) full.push_back(head);
  const auto add = [&](std::span<const float> logits) { all.insert(all.end(), logits.begin(), logits.end()); };
  const auto watch = [&](long long = 0, long long = 0) {
    if (kept != nullptr) kept->push_back(kept_tokens(session.cache(), full));
    return true;
  };
  add(session.prefill(std::span(text).first(prompt), watch));
  for (std::size_t i = prompt; i < text.size(); ++i) {
    add(session.decode(text[i]));
    watch();
  }
  return all;
}

// Rounding may decide between tokens that tie: logits are compared up to there. Returns the part of the steps compared.
double expect_same(const std::string& model, const std::string& method, std::size_t prompt = 75) {
  SCOPED_TRACE(model + ", " + method);
  const auto decoder = decoder_of(model);
  const Tokens text = random_tokens(120, 3);
  const SessionOptions options = window_options(method);
  SessionOptions all = options;
  const auto plan = keeps_all(*decoder, all, false);
  EXPECT_TRUE(plan->windows().empty());
  Session session(decoder, options), oracle(decoder, all, plan);
  std::vector<KeptTokens> kept, expected_kept;
  auto seen = logits_of(session, prompt, text, &kept), expected = logits_of(oracle, prompt, text, &expected_kept);
  const std::size_t same = steps_with_same_tokens(kept, expected_kept), steps = kept.size();
  // Row 0 is of the last chunk, row i of the ith token after it; a token is read after its eviction.
  const std::size_t chunks = steps - (text.size() - prompt), logits = same < chunks ? 0 : same - chunks + 1;
  for (auto* rows : {&seen, &expected}) rows->resize(std::min(rows->size(), logits * kWords));
  EXPECT_LT(max_relative_error(seen, expected, kWords), 1e-3);
  EXPECT_LT(session.cache().bytes_in_use(), oracle.cache().bytes_in_use());
  return static_cast<double>(same) / static_cast<double>(steps);
}

const std::vector<const char*> kModels = {"tiny-gemma2", "tiny-gemma3", "tiny-gemma4", "all windows"};

TEST(WindowLayers, HoldTheirWindowOnly) {
  for (const char* model : kModels) {
    SCOPED_TRACE(model);
    const auto decoder = decoder_of(model);
    const HeadGeometry& geometry = decoder->model().hyper().geometry;
    ASSERT_GT(geometry.windowed_layers(), 0);
    Session session(decoder, window_options("full"));
    const Cache& cache = session.cache();
    const Tokens text = random_tokens(500, 1);
    session.prefill(std::span(text).first(201));
    const auto expect_window = [&](int newest) {  // newest: 1: visible to the last query; 0: to the next
      std::size_t bytes = 0;
      for (int head = 0; head < geometry.heads(); ++head) {
        const std::int32_t window = geometry.layer_geometry(head).window;
        const SlotTable& table = cache.table(cache.table_of(head));
        ASSERT_EQ(table.occupied(), window == INT32_MAX ? cache.next() : window - 1 + newest);
        for (const Position p : table.position())
          ASSERT_TRUE(p == kNoPosition || window == INT32_MAX || p > cache.next() - newest - window);
        bytes += static_cast<std::size_t>((table.occupied() + kPage - 1) / kPage) *
                 page_bytes(cache.view(geometry.layer_of(head)));
      }
      ASSERT_EQ(cache.bytes_in_use(), bytes);
    };
    expect_window(0);
    for (std::size_t i = 201; i < text.size(); ++i) {
      session.decode(text[i]);
      expect_window(1);
    }
    EXPECT_EQ(cache.evicted(), 0);
    EXPECT_EQ(cache.next(), 500);
  }
}

TEST(WindowLayers, LogitsAreThoseOfACacheThatKeepsAll) {
  for (const char* model : kModels) expect_same(model, "full");
}

// If the budget holds the whole window, such a layer has no policy; the others follow the method.
TEST(WindowLayers, FullLayersFollowTheMethod) {
  double compared = 0;
  int runs = 0;
  const std::vector<const char*> methods = {"streaming:budget=40",
                                            "streaming:budget=24",
                                            "streaming:budget=40,rerotate=fused",
                                            "streaming:budget=40,rerotate=recompute",
                                            "streaming:budget=40,every=7",
                                            "streaming:budget=40,schedule=page",
                                            "streaming:budget=40,mechanism=shift",
                                            "streaming:budget=40,mechanism=gather",
                                            "streaming:budget=40,mechanism=append",
                                            "streaming:budget=40,mechanism=block",
                                            "compact-shift:budget=40",
                                            "lazy:budget=40,every=6",
                                            "sparse:budget=40",
                                            "h2o:budget=40",
                                            "h2o:budget=40,positions=cache",
                                            "h2o:budget=40,positions=auto",
                                            "h2o:budget=40,mechanism=shift,positions=cache",
                                            "h2o:budget=40,mechanism=gather",
                                            "h2o:budget=40,schedule=prompt+step",
                                            "knorm:budget=40",
                                            "knorm:budget=40,mechanism=append",
                                            "keydiff:budget=40,every=5",
                                            "lagkv:budget=60",
                                            "global-local:budget=40",
                                            "expected-attention:budget=40,every=8",
                                            "ems:budget=40",
                                            "cam:budget=40",
                                            "paged-eviction:budget=48"};
  for (const char* method : some_of(methods, test_length(14U, 27U, 4U)))
    for (const char* model : {"tiny-gemma2", "tiny-gemma3"}) {
      compared += expect_same(model, method);
      ++runs;
    }
  EXPECT_GT(compared / runs, 0.9) << "too many runs parted at a tie";
}

// While the sinks leave the window one by one, ranks are counted from the oldest token in the window.
TEST(WindowLayers, SinksLeaveTheWindowOneByOne) {
  for (const char* rerotate : {"two-query", "fused", "cached-half", "recompute"})
    for (const char* model : some_if_sanitized(kModels, 1))
      expect_same(model, std::string("streaming:budget=40,sinks=6,rerotate=") + rerotate, 10);
}

// Sinks + window narrower than a layer's window: the same as without windows.
TEST(WindowLayers, NarrowerBudgetsOfSinksAndWindowAreAsBefore) {
  for (const char* method : {"streaming:budget=20", "streaming:budget=20,mechanism=shift", "sparse:budget=20,sinks=2"})
    for (const char* model : kModels) {
      SCOPED_TRACE(std::string(model) + method);
      const auto decoder = decoder_of(model);
      const Tokens text = random_tokens(120, 3);
      const SessionOptions options = window_options(method);
      SessionOptions all = options;
      const auto plan = keeps_all(*decoder, all, true);
      Session session(decoder, options), oracle(decoder, all, plan);
      EXPECT_LT(max_relative_error(logits_of(session, 75, text), logits_of(oracle, 75, text), kWords), 1e-3);
      EXPECT_EQ(session.cache().occupied(), oracle.cache().occupied());
    }
}

// If the budget is below the layer's window, sinks count in it, whatever the way to keep positions.
TEST(WindowLayers, NarrowerBudgetsDoNotDependOnTheWayToKeepPositions) {
  for (const char* model : kModels) {
    const auto decoder = decoder_of(model);
    const Tokens text = random_tokens(120, 3);
    std::vector<float> expected;
    for (const char* way : {"two-query", "fused", "cached-half", "recompute"}) {
      SCOPED_TRACE(std::string(model) + ", " + way);
      Session session(decoder, window_options(std::string("streaming:budget=20,every=5,rerotate=") + way));
      const auto logits = logits_of(session, 75, text);
      if (expected.empty()) expected = logits;
      EXPECT_LT(max_relative_error(logits, expected, kWords), 1e-3);
    }
  }
}

const std::vector<const char*> kAll = {"full",
                                       "streaming:budget=40",
                                       "streaming:budget=20",
                                       "streaming:budget=20,every=9",
                                       "streaming:budget=40,every=9",
                                       "streaming:budget=40,schedule=prompt",
                                       "streaming:budget=20,schedule=prompt",
                                       "streaming:budget=40,mechanism=shift",
                                       "streaming:budget=40,mechanism=gather",
                                       "streaming:budget=40,mechanism=append",
                                       "streaming:budget=20,mechanism=append,every=9",
                                       "streaming:budget=48,mechanism=block",
                                       "lazy:budget=20,every=9,mechanism=shift",
                                       "random:budget=20,sinks=2,recent=4",
                                       "random:budget=40,sinks=2,recent=4,mechanism=shift",
                                       "sparse:budget=20",
                                       "h2o:budget=16",
                                       "h2o:budget=40",
                                       "h2o:budget=16,mechanism=shift",
                                       "h2o:budget=16,mechanism=gather,positions=cache",
                                       "h2o:budget=16,mechanism=append",
                                       "h2o:budget=16,schedule=prompt",
                                       "h2o:budget=16,schedule=prompt+step,every=12",
                                       "snapkv:budget=40",
                                       "snapkv:budget=40,schedule=step",
                                       "pyramidkv:budget=40",
                                       "adakv:budget=40",
                                       "kvzip:budget=20",
                                       "kvzip:budget=40",
                                       "tova:budget=20",
                                       "tova:budget=40",
                                       "knorm:budget=20",
                                       "keydiff:budget=20,every=8",
                                       "lagkv:budget=20",
                                       "expected-attention:budget=20,every=8",
                                       "paged-eviction:budget=32",
                                       "paged-eviction:budget=32,schedule=step",
                                       "paged-eviction:budget=64",
                                       "ems:budget=40",
                                       "ems:budget=20,recent=4,tau=0.1",
                                       "cam:budget=20",
                                       "window-recompute:budget=20"};

// The cache never exceeds the plan's bytes, and layers with a window never exceed it (to a page).
TEST(WindowLayers, PlansBoundWhatIsHeld) {
  for (const char* model : {"tiny-gemma2", "all windows"})
    for (const char* method : some_of(kAll, test_length(20U, 64U, 4U))) {
      SCOPED_TRACE(std::string(model) + ", " + method);
      const auto decoder = decoder_of(model);
      SessionOptions options = window_options(method);
      Session session(decoder, options);
      const MethodPlan& plan = session.sequence().plan();
      const Cache& cache = session.cache();
      const HeadGeometry& geometry = decoder->model().hyper().geometry;
      const Tokens text = random_tokens(170, 7);
      constexpr int kPrompt = 105;
      const PlanBytes bytes = plan.bytes(kPrompt, 170);
      const auto expect_bounded = [&] {
        ASSERT_LE(cache.bytes_in_use(), bytes.pages);
        ASSERT_LE(cache.bytes_tables(), bytes.tables + bytes.statistics + bytes.merged);
        for (int t = 0; t < cache.tables(); ++t) ASSERT_EQ(cache.table(t).fault(), nullptr);
      };
      session.prefill(std::span(text).first(kPrompt), [&](long long, long long) {
        expect_bounded();
        return true;
      });
      for (int i = kPrompt; i < 170; ++i) {
        session.decode(text[static_cast<std::size_t>(i)]);
        expect_bounded();
        for (int head = 0; head < geometry.heads(); ++head) {
          const std::int32_t window = geometry.layer_geometry(head).window;
          const bool pages =
              options.method.mechanism != Mechanism::kInPlace && options.method.mechanism != Mechanism::kMerge;
          if (window == INT32_MAX || !options.method.cache) continue;
          ASSERT_LE(cache.table(cache.table_of(head)).occupied(),
                    window + (pages ? kPage - 1 : 0) + options.method.protection.sinks.of(40));
        }
      }
      EXPECT_LE(cache.bytes_peak(), bytes.pages);
    }
}

// If the budget is below the window, tokens outside it are dropped first: the policy keeps no token that no query sees.
TEST(WindowLayers, ThePolicyChoosesAmongWhatIsSeen) {
  const auto decoder = decoder_of("tiny-gemma2");
  Session session(decoder, window_options("h2o:budget=16,recent=4,sinks=2"));
  const Tokens text = random_tokens(200, 9);
  session.prefill(std::span(text).first(90));
  const Cache& cache = session.cache();
  for (std::size_t i = 90; i < text.size(); ++i) {
    session.decode(text[i]);
    for (int head = 0; head < cache.geometry().heads(); ++head) {
      const SlotTable& table = cache.table(cache.table_of(head));
      ASSERT_EQ(table.occupied(), 16);
      if (cache.geometry().layer_geometry(head).window == INT32_MAX) continue;
      for (const Position p : table.position()) ASSERT_TRUE(p == kNoPosition || p >= cache.next() - 24);
    }
  }
  EXPECT_EQ(cache.evicted(), 200 - 16) << "of layers without a window";
}

// Budgets that are shared at the end of a prompt are shared among tokens that later queries see, with every mechanism.
// (Shift and gather may hold up to a page of tokens outside a window until then.)
TEST(WindowLayers, MechanismsShareBudgetsAlikeAtPromptEnd) {
  const auto decoder = decoder_of("tiny-gemma3");
  const Tokens text = random_tokens(85, 11);
  for (const std::string method :
       {"knorm:budget=26,schedule=prompt,split=ada", "knorm:budget=40,schedule=prompt,split=pyramid"}) {
    SCOPED_TRACE(method);
    std::vector<std::vector<std::vector<Position>>> seen;  // [mechanism][table]
    for (const char* mechanism : {"in-place", "shift", "gather"}) {
      SessionOptions options = window_options(method + ",mechanism=" + mechanism);
      options.page_size = 64;
      Session session(decoder, options);
      session.prefill(text);
      const Cache& cache = session.cache();
      auto& tables = seen.emplace_back();
      for (int t = 0; t < cache.tables(); ++t) {
        auto& positions = tables.emplace_back();
        for (const Position p : cache.table(t).position())
          if (p != kNoPosition && p > cache.next() - cache.window(t)) positions.push_back(p);
        std::ranges::sort(positions);
      }
    }
    EXPECT_EQ(seen[1], seen[0]) << "shift";
    EXPECT_EQ(seen[2], seen[0]) << "gather";
  }
}

// Saving and restoring, also of sessions saved when all layers held all tokens.
TEST(WindowLayers, AreSavedAndRead) {
  const std::vector<const char*> methods = {"full", "streaming:budget=40", "h2o:budget=16", "h2o:budget=40",
                                            "random:budget=20,sinks=2,recent=4"};
  for (const char* model : kModels)
    for (const char* method : some_of(methods, test_length(3U, 5U, 1U))) {
      SCOPED_TRACE(std::string(model) + ", " + method);
      const auto decoder = decoder_of(model);
      const SessionOptions options = window_options(method);
      SessionOptions all = options;
      const auto plan = keeps_all(*decoder, all, true);
      const Tokens text = random_tokens(120, 5);
      for (const bool older : {false, true}) {
        Session writer = older ? Session(decoder, all, plan) : Session(decoder, options), reader(decoder, options);
        logits_of(writer, 75, text);
        std::vector<std::byte> bytes;
        ByteWriter out([&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
        writer.sequence().save(out);
        ByteReader in(bytes, "a sequence");
        ASSERT_EQ(Sequence::mismatch(reader.sequence().plan(), in), "");
        reader.sequence().load(in);
        EXPECT_EQ(reader.cache().evicted(), writer.cache().evicted());
        std::vector<float> seen, expected;
        for (const TokenId token : random_tokens(40, 6)) {
          const auto a = reader.decode(token);
          seen.insert(seen.end(), a.begin(), a.end());
          const auto b = writer.decode(token);
          expected.insert(expected.end(), b.begin(), b.end());
        }
        if (!older) {
          EXPECT_EQ(seen, expected);
        } else if (std::string(method) == "full" || std::string(method) == "streaming:budget=40") {
          EXPECT_LT(max_relative_error(seen, expected, kWords), 1e-3);
        }
        EXPECT_LE(reader.cache().bytes_in_use(), reader.sequence().plan().bytes(75, 160).pages);
      }
    }
}

}  // namespace
}  // namespace palimpsest::testing
