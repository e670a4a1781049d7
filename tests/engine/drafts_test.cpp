// A session that reads drafts is, after accept(), as one that read the accepted tokens one by one: to the bit in
// logits, slots, statistics and stored rows. The oracle is a second session, without drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_message.h"
#include "tests/support/own_file.h"
#include "tests/support/random_tokens.h"
#include "tests/support/scorer_file.h"
#include "tests/support/slot_rows.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr int kWords = 96;

std::shared_ptr<Decoder> drafts_decoder(const std::string& shape, int threads = 1, int context = 4096) {
  SyntheticShape synthetic = shape.empty() ? SyntheticShape{.vocabulary = kWords,
                                                            .width = 64,
                                                            .layers = 2,
                                                            .feed_forward = 96,
                                                            .query_heads = 4,
                                                            .kv_heads = 2,
                                                            .head_dim = 32,
                                                            .seed = 1}
                                           : parse_synthetic(shape);
  synthetic.vocabulary = kWords;
  synthetic.context = context;
  if (synthetic.convolution_taps > 0) {
    synthetic.width = 64;
    synthetic.feed_forward = 96;
    synthetic.query_heads = 4;
    if (synthetic.state_heads)
      synthetic.state_heads = {
          .heads = 2, .head_dim = 16, .groups = 1, .state_width = 16, .tiled = synthetic.state_heads.tiled};
  }
  return std::make_shared<Decoder>(Model::from(make_synthetic(synthetic)), threads);
}

// Everything that later steps depend on: slots, positions, scores, statistics, free slots, and the rows of tokens.
std::vector<std::byte> state_of(const Sequence& sequence) {
  std::vector<std::byte> state;
  ByteWriter out([&](std::span<const std::byte> more) { state.insert(state.end(), more.begin(), more.end()); });
  const Cache& cache = sequence.cache();
  const HeadGeometry& geometry = cache.geometry();
  sequence.evictor().save(out);
  for (int t = 0; t < cache.tables(); ++t) {
    const SlotTable& table = cache.table(t);
    for (int slot = 0; slot < table.slots(); ++slot) {
      out.put(table.position(slot));
      if (table.position(slot) == kNoPosition) continue;  // scores of empty slots mean nothing
      out.put(table.score()[at(slot)]);
      for (int c = 0; c < table.columns(); ++c) out.put(table.column(c)[at(slot)]);
      if (!table.rank().empty()) out.put(table.rank()[at(slot)]);
    }
    out.array(table.inserted());
    out.put(table.mapped_pages());
    const Mechanism mechanism = cache.options().mechanism;
    for (int i = 0; mechanism != Mechanism::kShift && mechanism != Mechanism::kGather && i < table.free_slots(); ++i)
      out.put(table.next_slot({}, i));
    if (cache.merged(t) != nullptr) cache.merged(t)->save(out);
  }
  out.array(cache.state().now());
  for (int head = 0; head < geometry.heads(); ++head) {
    out.array(cache.head_statistics(head));
    const LayerView view = cache.view(geometry.layer_of(head));
    const PositionView position = cache.table(cache.table_of(head)).position();
    for (int slot = 0; slot < static_cast<int>(position.size()); ++slot) {
      if (position[at(slot)] == kNoPosition) continue;
      const std::byte* const page = cache.head(head).page[slot / view.page_size];
      out.array(std::span<const float>(key_in(view, page, slot % view.page_size)));
      out.array(std::span<const float>(value_in(view, page, slot % view.page_size)));
    }
  }
  return state;
}

struct Drafting {
  std::string method, shape = {};
  int draft_max = 4;
  CacheType type = CacheType::kF32;
  int tokens = 60;
  int prompt = 20;  // and up to 29 more
  int context = 4096;
};

// Reads a text with drafts, of which a random number is right, beside a session without drafts.
void compare(const Drafting& d, unsigned seed) {
  SCOPED_TRACE(d.method + " on '" + d.shape + "', " + std::to_string(d.draft_max) + " drafts, context " +
               std::to_string(d.context));
  const auto decoder = drafts_decoder(d.shape, 1, d.context), other = drafts_decoder(d.shape, 1, d.context);
  SessionOptions options = session_options(d.method, 20);
  options.cache_type = d.type;
  options.draft_max = d.draft_max;
  Session drafted(other, options);
  options.draft_max = 0;
  Session plain(decoder, options);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<TokenId> text =
      random_tokens(static_cast<std::size_t>(d.prompt + 30 + d.tokens + d.draft_max + 1), seed, kWords);
  const std::size_t prompt = static_cast<std::size_t>(d.prompt + below(30));
  plain.prefill(std::span(text).first(prompt));
  drafted.prefill(std::span(text).first(prompt));
  std::set<std::size_t> rows;
  for (std::size_t next = prompt; next < prompt + static_cast<std::size_t>(d.tokens);) {
    std::vector<TokenId> drafts(text.begin() + static_cast<std::ptrdiff_t>(next) + 1,
                                text.begin() + static_cast<std::ptrdiff_t>(next) + 1 + below(d.draft_max + 1));
    const int right = below(static_cast<int>(drafts.size()) + 1);
    for (std::size_t i = static_cast<std::size_t>(right); i < drafts.size(); ++i) drafts[i] = below(kWords);
    const auto logits = drafted.decode(text[next], drafts);
    const std::vector<float> all(logits.begin(), logits.end());
    rows.insert(all.size() / kWords);
    const int accepted = std::min(right, static_cast<int>(all.size()) / kWords - 1);
    ASSERT_GE(accepted, 0);
    drafted.accept(accepted);
    for (int i = 0; i <= accepted; ++i, ++next) {
      const auto alone = plain.decode(text[next]);
      const auto mine = std::span(all).subspan(static_cast<std::size_t>(i) * kWords, kWords);
      ASSERT_TRUE(std::ranges::equal(alone, mine)) << "token " << next << ", draft " << i;
    }
    ASSERT_EQ(plain.cache().fault(), nullptr);
    ASSERT_EQ(drafted.cache().fault(), nullptr);
    ASSERT_EQ(plain.position(), drafted.position());
    ASSERT_TRUE(state_of(plain.sequence()) == state_of(drafted.sequence())) << "after token " << next;
    ASSERT_EQ(plain.cache().evicted(), drafted.cache().evicted());
  }
  EXPECT_GT(*rows.rbegin(), 1U) << "no draft was read";
}

Method method_of(const std::string& text) {
  Method method = parse_method(text);
  validate(method);
  return method;
}

bool legal(const Drafting& d) {
  try {
    const auto decoder = drafts_decoder(d.shape, 1, d.context);
    SessionOptions options = session_options(d.method, 20);
    options.cache_type = d.type;
    options.draft_max = d.draft_max;
    static_cast<void>(method_of(d.method));
    Session session(decoder, options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(Drafts, AreAsIfReadOneByOne) {
  std::mt19937 random(3);
  const auto one_of = [&]<typename T>(std::initializer_list<T> list) { return list.begin()[random() % list.size()]; };
  std::set<std::string> methods_seen, mechanisms_seen;
  const int draws = test_length(160, 1200, 50);
  int runs = 0;
  for (int i = 0; i < draws; ++i) {
    const MethodRow& row = methods()[static_cast<std::size_t>(i) % methods().size()];
    Drafting d;
    d.method = std::string(row.name);
    const auto add = [&](const std::string& option) {
      d.method += (d.method.find(':') == std::string::npos ? ":" : ",") + option;
    };
    if (row.preset.policy != "none") {
      add("budget=" + std::to_string(one_of({40, 48, 64})));
      const std::string mechanism =
          one_of({"", "", "in-place", "append", "shift", "gather", "merge", "match", "block"});
      if (!mechanism.empty()) add("mechanism=" + mechanism);
      const bool fits = mechanism == "match";
      const std::string every = fits ? "16" : one_of({"", "1", "3", "8", "16"});
      if (!every.empty()) add("every=" + every);
      const std::string max_drop = fits ? "" : one_of({"", "", "2", "5"});
      if (!max_drop.empty()) add("max-drop=" + max_drop);
      if (random() % 3 == 0) add("evict=after");
      if (random() % 5 == 0) add("slack=3,overlap=2");
      if (!fits && random() % 3 == 0) add(one_of({"positions=cache", "positions=auto"}));
      const std::string schedule = one_of({"", "", "step", "prompt", "prompt+step"});
      if (!schedule.empty()) add("schedule=" + schedule);
      if (const std::string pin = one_of({"", "", "0-5", "2-3+12-15"}); !pin.empty()) add("pin=" + pin);
    }
    d.context = one_of({70, 90, 4096});  // where positions=auto changes
    d.draft_max = one_of({1, 3, 4, 7, 12});
    d.type =
        one_of({CacheType::kF32, CacheType::kF16, CacheType::kQ8_0, CacheType::kQ4, CacheType::kQ3, CacheType::kQ2});
    d.shape = one_of({"", "", "tiny-gemma2", "tiny-gemma4-moe", "tiny-lfm2", "tiny-granitehybrid", "tiny-qwen35"});
    if (!legal(d)) continue;
    compare(d, static_cast<unsigned>(i));
    if (HasFatalFailure()) return;
    ++runs;
    methods_seen.insert(std::string(row.name));
    mechanisms_seen.insert(get_option(parse_method(d.method), "mechanism"));
  }
  RecordProperty("runs", runs);
  EXPECT_GT(runs, draws / 7);
  if (draws < 160) return;
  EXPECT_GT(methods_seen.size(), 12U);
  EXPECT_EQ(mechanisms_seen.size(), 7U);
}

// A drop empties a page, which a step of one token gives back: drafts must not keep it.
TEST(Drafts, LeavePagesAsTheyWouldBe) {
  for (const char* method : {"streaming:budget=48,every=8,max-drop=5,slack=3", "streaming:budget=48,every=8,max-drop=2",
                             "streaming:budget=48,every=8,slack=3,overlap=2"})
    for (unsigned seed = 0; seed < test_length(12U, 12U, 2U); ++seed)
      compare({.method = method, .draft_max = 12}, seed);
}

// One after another, so that a list of methods meets all types.
CacheType type_of(unsigned seed) {
  constexpr CacheType kTypes[] = {CacheType::kF32, CacheType::kF16, CacheType::kQ8_0, CacheType::kQ4};
  return kTypes[seed % 3];
}

// Where each token drops another: budgets that fill their pages or leave slots free, query groups that fill four rows
// or not, sinks with a query of their own, pins, statistics of other layers, lengths up to the longest.
TEST(Drafts, MayDropTokens) {
  unsigned seed = 0;
  for (const char* method :
       {"streaming:budget=48", "streaming:budget=40", "streaming:budget=40,positions=original",
        "streaming:budget=48,evict=after", "streaming:budget=45,sinks=0", "streaming:budget=48,mechanism=append",
        "random:budget=48", "random:budget=45,slack=3,overlap=2", "random:budget=48,pin=9-12",
        "kvzip:budget=48,schedule=prompt+step,recent=16"})
    for (int n = 0; n < test_length(2, 2, 1); ++n, ++seed)
      compare({.method = method, .draft_max = 5, .type = type_of(seed), .tokens = 40}, seed);
  for (const char* method :
       {"full", "streaming:budget=40,positions=original", "streaming:budget=40,every=8,pin=9-12,positions=original",
        "h2o:budget=40,every=8", "full:mechanism=shift", "full:mechanism=block",
        "random:budget=22,recent=4,positions=original"})
    for (int n = 0; n < test_length(2, 2, 1); ++n, ++seed)
      compare({.method = method,
               .shape = n == 0 ? "tiny-gemma2" : "tiny-gemma4-moe",
               .draft_max = 6,
               .type = type_of(seed),
               .tokens = 30},
              seed);
  for (const char* shape : {"tiny-lfm2", "tiny-granitehybrid"})  // the states are those of the accepted tokens, too
    for (const char* method : {"streaming:budget=48", "streaming:budget=40,evict=after", "random:budget=45"})
      compare({.method = method, .shape = shape, .draft_max = 5, .tokens = 40}, seed++);
  for (const char* shape : {"tiny-bloom", "tiny-llama", "tiny-mixtral"})
    compare({.method = "streaming:budget=48", .shape = shape, .draft_max = 3, .tokens = 40}, seed++);
  compare({.method = "streaming:budget=48,positions=original", .shape = "tiny-gpt2", .draft_max = 3}, seed++);
  compare({.method = "streaming:budget=1100", .draft_max = 15, .tokens = 40, .prompt = 1090}, seed++);
}

// Likewise, where a draft's victim follows from what the tokens before it report: the policy scores copies of the
// tables while the layer runs. Heads with budgets of their own, windows beside the policy, several splits of slots.
TEST(Drafts, MayDropTokensByScore) {
  unsigned seed = 0;
  for (const char* method :
       {"h2o:budget=48", "h2o:budget=40,evict=after", "h2o:budget=45,pin=9-12,max-drop=2", "scissorhands:budget=48",
        "scissorhands:budget=40,slack=3,overlap=2", "knorm:budget=48", "knorm:budget=45,evict=after",
        "knorm:budget=40,schedule=prompt+step,pin=9-12", "h2o:budget=48,split=pyramid"})
    for (int n = 0; n < test_length(2, 2, 1); ++n, ++seed)
      compare({.method = method, .draft_max = 5, .type = type_of(seed), .tokens = 40}, seed);
  for (const char* method : {"h2o:budget=40", "h2o:budget=22,recent=4", "knorm:budget=22,recent=4"})
    compare({.method = method, .shape = "tiny-gemma2", .draft_max = 6, .tokens = 40}, seed++);
  for (const char* shape : {"tiny-bloom", "tiny-mixtral", "tiny-lfm2"})
    for (const char* method : {"scissorhands:budget=48", "knorm:budget=48"})
      compare({.method = method, .shape = shape, .draft_max = 3, .tokens = 30}, seed++);
  for (const char* method : {"h2o:budget=1100", "knorm:budget=1100"})
    compare({.method = method, .draft_max = 15, .tokens = 40, .prompt = 1090}, seed++);
}

// A scorer's file belongs to a model: heads differ.
TEST(Drafts, MayDropTokensByALearnedScore) {
  const std::string scorer = own_file("drafts.scorer");
  write_scorer(scorer, policy_model(drafts_decoder("")->model(), {}), 1);
  for (const char* options : {"budget=48", "budget=45,evict=after"})
    compare({.method = "learned:" + std::string(options) + ",scorer=" + scorer, .draft_max = 6, .tokens = 40}, 7);
  std::filesystem::remove(scorer);
}

TEST(Drafts, MethodsThatCannotDraftNameTheInterval) {
  const auto decoder = drafts_decoder("");
  const auto message = [&](const std::string& method) {
    SessionOptions options = session_options(method);
    options.draft_max = 4;
    return error_message([&] { Session session(decoder, options); });
  };
  for (const char* method : {"tova:budget=40", "lagkv:budget=40", "keydiff:budget=40", "global-local:budget=40",
                             "cam:budget=40", "h2o:budget=40,mechanism=append", "knorm:budget=40,mechanism=gather"})
    EXPECT_NE(message(method).find("every=5"), std::string::npos) << message(method);
  EXPECT_NE(message("streaming:budget=40,rerotate=fused").find("rerotate=auto"), std::string::npos);
  EXPECT_NE(message("random:budget=40,positions=cache").find("positions=original"), std::string::npos);
  EXPECT_NE(message("streaming:budget=40,schedule=prompt+step").find("schedule=step"), std::string::npos);
  EXPECT_NE(message("streaming:budget=40,mechanism=shift").find("in-place"), std::string::npos);
  EXPECT_NE(message("window-recompute:budget=40").find("no cache"), std::string::npos);
  EXPECT_NE(message("h2o:budget=40,positions=cache").find("positions=original"), std::string::npos);
  EXPECT_EQ(message("tova:budget=40,every=2"), "");
  EXPECT_EQ(message("h2o:budget=40"), "");
  EXPECT_EQ(message("streaming:budget=40"), "");
  EXPECT_EQ(message("random:budget=40,positions=original"), "");
}

}  // namespace
}  // namespace palimpsest::testing
