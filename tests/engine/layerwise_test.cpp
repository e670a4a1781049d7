// A prompt that is read layer by layer: the kept tokens, the logits and all that follows are those of the whole prompt,
// to the bit, and one layer holds the prompt at a time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <new>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/core/interrupt.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr int kLayers = 3, kWidth = 32;

std::shared_ptr<const Model> three_layers() {
  static const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = 96,
                                                                                .width = kWidth,
                                                                                .layers = kLayers,
                                                                                .feed_forward = 64,
                                                                                .query_heads = 4,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 32}));
  return model;
}

std::shared_ptr<Decoder> decoder(int threads = 1) {
  return std::make_shared<Decoder>(three_layers(), threads);
}

SessionOptions options_of(const std::string& method, bool layerwise) {
  SessionOptions options = session_options(method, 32);
  options.layerwise = layerwise;
  return options;
}

// Each head's slots: position and score, or no token.
using Slots = std::vector<std::pair<Position, float>>;
std::vector<Slots> slots_of(const Cache& cache) {
  std::vector<Slots> all;
  for (int head = 0; head < cache.geometry().heads(); ++head) {
    const SlotTable& table = cache.table(cache.table_of(head));
    Slots& slots = all.emplace_back();
    for (int slot = 0; slot < table.slots(); ++slot)
      slots.emplace_back(table.position(slot), table.score()[static_cast<std::size_t>(slot)]);
  }
  return all;
}

std::vector<float> copy(std::span<const float> logits) {
  return {logits.begin(), logits.end()};
}

void expect_equal_decoding(Session& a, Session& b, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) ASSERT_EQ(copy(a.decode(token)), copy(b.decode(token)));
  ASSERT_EQ(slots_of(a.cache()), slots_of(b.cache()));
}

// Two prompts with answers, read both ways.
void expect_equal(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options) {
  SessionOptions by_layer = options;
  by_layer.layerwise = true;
  Session whole(decoder, options), layers(decoder, by_layer);
  const auto text = random_tokens(150, 3);
  for (const int prompt : {97, 40}) {
    const auto tokens = std::span(text).last(static_cast<std::size_t>(prompt));
    ASSERT_EQ(copy(whole.prefill(tokens)), copy(layers.prefill(tokens))) << prompt;
    ASSERT_EQ(slots_of(whole.cache()), slots_of(layers.cache())) << prompt;
    EXPECT_EQ(whole.cache().evicted(), layers.cache().evicted());
    ASSERT_NO_FATAL_FAILURE(expect_equal_decoding(whole, layers, std::span(text).first(6))) << prompt;
  }
  EXPECT_EQ(layers.cache().fault(), nullptr);
  const auto fork = layers.fork();
  ASSERT_NO_FATAL_FAILURE(expect_equal_decoding(whole, *fork, std::span(text).subspan(10, 3)));
  // The fork shares pages, which the next prompt copies when it writes to them.
  ASSERT_EQ(copy(whole.prefill(std::span(text).first(50))), copy(fork->prefill(std::span(text).first(50))));
  ASSERT_EQ(slots_of(whole.cache()), slots_of(fork->cache()));
}

// The sentence that refuses a method; "": it is legal.
std::string refusal(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options) {
  try {
    const MethodPlan plan(options.method, plan_target(*decoder, options));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Every method of the register, at the schedules that wait for the prompt's end, with every mechanism that it has.
// Types, pages and positions alternate.
TEST(Layerwise, EqualsWholePromptsForEveryMethod) {
  const auto model = decoder();
  const std::array types = {CacheType::kF32, CacheType::kF16, CacheType::kQ4, CacheType::kQ3, CacheType::kQ2};
  std::set<std::string> refused, compared;
  int index = 0;
  for (const MethodRow& row : methods())
    for (const char* schedule : {"prompt", "prompt+step"})
      for (const char* mechanism : {"", "in-place", "shift", "gather", "append", "block", "merge"})
        for (const char* positions : {"", "cache"}) {
          SessionOptions options;
          options.chunk = 32;
          options.page_size = index % 2 == 0 ? 16 : 64;
          options.cache_type = {types[static_cast<std::size_t>(index % 5)],
                                types[static_cast<std::size_t>(index / 5 % 5)]};
          SessionOptions layerwise = options;
          try {
            options.method = parse_method(row.name);
            set_option(options.method, "schedule", schedule);
            if (options.method.budget != 0) set_option(options.method, "budget", "64");
            if (*mechanism != 0) set_option(options.method, "mechanism", mechanism);
            if (*positions != 0) set_option(options.method, "positions", positions);
            validate(options.method);
          } catch (const Error&) {
            continue;
          }
          if (!refusal(model, options).empty()) continue;  // whole prompts, too
          SCOPED_TRACE(spell_short(options.method));
          layerwise = options;
          layerwise.layerwise = true;
          if (const std::string why = refusal(model, layerwise); !why.empty()) {
            EXPECT_TRUE(why.starts_with("--prefill-layerwise")) << why;
            refused.insert(std::string(row.name));
            continue;
          }
          if (index++ % test_length(1, 1, 6) != 0) continue;
          compared.insert(std::string(row.name));
          ASSERT_NO_FATAL_FAILURE(expect_equal(model, options));
        }
  EXPECT_EQ(refused, (std::set<std::string>{"auto", "kvzip"}));  // auto bounds what it holds of a prompt
  EXPECT_GE(compared.size(), test_length(15U, 15U, 5U));
  RecordProperty("compared", index);
}

TEST(Layerwise, ThreadsChangeNothing) {
  expect_equal(decoder(3), session_options("global-local:budget=40", 16));
  expect_equal(decoder(2), session_options("h2o:budget=40,schedule=prompt", 16));
}

// Layers without KV heads run with the one before them; at the beginning with the first that has some.
TEST(Layerwise, LayersWithoutHeads) {
  const auto model = Model::from(make_synthetic({.architecture = "deci",
                                                 .vocabulary = 96,
                                                 .width = 64,
                                                 .layers = 5,
                                                 .feed_forward = 64,
                                                 .query_heads = 4,
                                                 .kv_heads = 2,
                                                 .head_dim = 16,
                                                 .query_heads_of = {0, 4, 0, 4, 0},
                                                 .kv_heads_of = {0, 2, 0, 1, 0}}));
  expect_equal(std::make_shared<Decoder>(model, 1), session_options("snapkv:budget=40", 32));
}

// Logits of every token.
TEST(Layerwise, AllLogits) {
  const auto model = decoder();
  Session whole(model, options_of("snapkv:budget=40", false)), layers(model, options_of("snapkv:budget=40", true));
  const auto tokens = random_tokens(70, 5);
  std::vector<std::vector<float>> expected, actual;
  whole.read(tokens, [&](long long, std::span<const float> logits) { expected.push_back(copy(logits)); });
  layers.read(tokens, [&](long long, std::span<const float> logits) { actual.push_back(copy(logits)); });
  EXPECT_EQ(expected.size(), tokens.size());
  EXPECT_EQ(actual, expected);
}

TEST(Layerwise, SnapshotsContinue) {
  const auto model = decoder();
  for (const bool reads_layerwise : {false, true}) {
    Session layers(model, options_of("global-local:budget=40", true)),
        restored(model, options_of("global-local:budget=40", reads_layerwise));
    const auto text = random_tokens(120, 5);
    layers.prefill(text);
    const std::string path = own_file("layerwise.snap");
    save_snapshot(path, layers, nullptr, {});
    load_snapshot(path, restored, nullptr);
    ASSERT_NO_FATAL_FAILURE(expect_equal_decoding(layers, restored, std::span(text).first(10)));
  }
}

TEST(Layerwise, OneLayerHoldsThePrompt) {
  const auto text = random_tokens(500, 5);
  for (const char* method : {"snapkv:budget=64", "snapkv:budget=64,mechanism=shift", "global-local:budget=64",
                             "h2o:budget=64,schedule=prompt+step", "paged-eviction:budget=64"}) {
    SCOPED_TRACE(method);
    const SessionOptions options = options_of(method, true);
    Session session(decoder(), options);
    session.prefill(text);
    const MethodPlan& plan = session.sequence().plan();
    const PlanBytes bytes = plan.bytes(std::ssize(text), std::ssize(text));
    EXPECT_EQ(session.cache().bytes_peak(), bytes.pages);
    EXPECT_EQ(bytes.hidden, text.size() * kWidth * sizeof(float));
    Session whole(decoder(), options_of(method, false));
    whole.prefill(text);
    EXPECT_EQ(session.cache().bytes_in_use(), whole.cache().bytes_in_use());
    EXPECT_LT(session.cache().bytes_peak(), whole.cache().bytes_peak() / 2);
    EXPECT_LE(session.cache().bytes_tables(), whole.cache().bytes_tables());
  }
}

TEST(Layerwise, ProgressIsTheShareOfTheWork) {
  Session session(decoder(), options_of("snapkv:budget=40", true));
  const auto text = random_tokens(96, 5);
  std::vector<long long> done;
  session.prefill(text, [&](long long read, long long total) {
    EXPECT_EQ(total, 96);
    done.push_back(read);
    return true;
  });
  EXPECT_EQ(done, (std::vector<long long>{10, 21, 32, 42, 53, 64, 74, 85, 96}));
}

// Stopped in the middle it is clearly ended; cleared it is as new.
TEST(Layerwise, AStoppedPromptMustBeCleared) {
  const auto text = random_tokens(96, 5);
  Session expected(decoder(), options_of("snapkv:budget=40", true));
  const auto logits = copy(expected.prefill(text));
  Session session(decoder(), options_of("snapkv:budget=40", true));
  for (int stop = 1; stop < 9; ++stop) {
    int chunks = 0;
    session.prefill(text, [&](long long, long long) { return ++chunks < stop; });
    const std::string sentence =
        "a prompt that is read layer by layer was stopped before its end, so layers hold different tokens: clear the "
        "session";
    EXPECT_EQ(error_of([&] { session.prefill(text); }), sentence);
    EXPECT_EQ(error_of([&] { session.decode(1); }), sentence);
    EXPECT_EQ(error_of([&] { session.fork(); }), sentence);
    EXPECT_EQ(error_of([&] { session.rewind(0); }), sentence);
    EXPECT_EQ(error_of([&] { session.edit(0, 1, {}); }), sentence);
    EXPECT_EQ(error_of([&] { save_snapshot(own_file("stopped.snap"), session, nullptr, {}); }), sentence);
    session.clear();
    EXPECT_EQ(session.cache().bytes_in_use(), 0U);
    EXPECT_EQ(copy(session.prefill(text)), logits);
    session.clear();
  }
}

// Cancelled inside an eviction, in each of the layers.
TEST(Layerwise, ACancelledPromptMustBeCleared) {
  const auto text = random_tokens(96, 5);
  const SessionOptions options = options_of("keydiff:budget=40,schedule=prompt", true);
  Session expected(decoder(), options), session(decoder(), options);
  const auto logits = copy(expected.prefill(text));
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto interrupt = std::make_shared<Interrupt>();
    session.sequence().set_interrupt(interrupt);
    int chunks = 0;
    const auto cancel = [&](long long, long long) {
      if (++chunks == 3 * layer + 2) interrupt->cancel();
      return true;
    };
    EXPECT_THROW(session.prefill(text, cancel), Interrupted);
    EXPECT_NE(error_of([&] { session.decode(1); }), "");
    session.sequence().set_interrupt(nullptr);
    session.clear();
    EXPECT_EQ(copy(session.prefill(text)), logits);
    session.clear();
  }
}

TEST(Layerwise, DraftsFollow) {
  SessionOptions options = options_of("snapkv:budget=40", false);
  options.draft_max = 3;
  Session whole(decoder(), options);
  options.layerwise = true;
  Session layers(decoder(), options);
  const auto text = random_tokens(96, 5);
  EXPECT_EQ(copy(whole.prefill(text)), copy(layers.prefill(text)));
  const std::vector<TokenId> drafts = {7, 8, 9};
  const int vocabulary = decoder()->model().hyper().vocabulary;
  for (int i = 0; i < 4; ++i) {
    const auto rows = copy(whole.decode(5, drafts));  // of fewer drafts where a page ends
    EXPECT_EQ(rows, copy(layers.decode(5, drafts)));
    const int accepted = std::min(i, static_cast<int>(rows.size()) / vocabulary - 1);
    whole.accept(accepted);
    layers.accept(accepted);
    EXPECT_EQ(slots_of(whole.cache()), slots_of(layers.cache()));
  }
}

// A step that finds no page changes nothing: it is tried again.
TEST(Layerwise, AStepWithoutPagesIsTriedAgain) {
  const auto model = decoder();
  const SessionOptions options = options_of("snapkv:budget=40", true);
  const auto plan = std::make_shared<MethodPlan>(options.method, plan_target(*model, options));
  const auto pool = std::make_shared<PagePool>(page_bytes(Cache(plan->cache()).view(0)));
  bool refuses = false;
  pool->before_acquisition([&] {
    if (refuses) throw std::bad_alloc();
  });
  Sequence sequence(*model, options, plan, nullptr, pool);
  StepLoop loop(model);
  const auto text = random_tokens(96, 5);
  std::vector<float> logits;
  int failures = 0;
  sequence.read(text);
  while (sequence.stage() != Sequence::Stage::kIdle) {
    StepShare share{.sequence = &sequence}, *const one = &share;
    const auto before = slots_of(sequence.cache());
    refuses = true;
    const bool begun = StepLoop::begin(share);
    refuses = false;
    if (!begun) {
      ++failures;
      EXPECT_EQ(slots_of(sequence.cache()), before);
      share.failure = nullptr;
      ASSERT_TRUE(StepLoop::begin(share));
    }
    loop.run({&one, 1}, [&](std::span<StepShare* const>) {
      ASSERT_EQ(share.failure, nullptr);
      logits = copy(share.logits);
    });
  }
  EXPECT_EQ(failures, 3 * kLayers);
  Session whole(model, options_of("snapkv:budget=40", false));
  EXPECT_EQ(logits, copy(whole.prefill(text)));
}

TEST(Layerwise, EditsInTheMiddleAreRefused) {
  Session session(decoder(), options_of("snapkv:budget=64,schedule=prompt+step", true));
  const auto text = random_tokens(50, 5);
  session.prefill(text);
  const TokenId token = 1;
  EXPECT_EQ(error_of([&] {
              session.edit(20, 21, {&token, 1});
            }),
            "a prompt that is read layer by layer ends with the text: use mode exact, or leave out "
            "--prefill-layerwise");
  EXPECT_EQ(session.position(), 50);
  session.edit(20, 21, {});  // nothing is read
  EXPECT_EQ(session.position(), 49);
}

}  // namespace
}  // namespace palimpsest::testing
