// A session that reads drafts is, after accept(), as one that read the accepted tokens one by one: to the bit in
// logits, slots, statistics and stored rows. The oracle is a second session: one that cannot draft, or where each token
// drops another (sinks + window at every=1, windows of layers), one with as many spare slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/session.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_message.h"
#include "tests/support/random_tokens.h"
#include "tests/support/slot_rows.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

constexpr int kWords = 96;

std::shared_ptr<Decoder> drafts_decoder(const std::string& shape, int threads = 1) {
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
    out.put(table.tentative());
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
  std::string method, shape;
  int draft_max = 4;
  CacheType type = CacheType::kF32;
  int tokens = 60;
  // Evictions move tokens while drafts are accepted: sums of attention are in another order, and tokens that a mask
  // hides are evicted later.
  bool moves = false;
  bool other_slots = false;  // the session without drafts has no spare slots: sums are in another order
};

float as_magnitude(float x) {
  return std::abs(x);
}

// Reads a text with drafts, of which a random number is right, beside a session without drafts.
void compare(const Drafting& d, unsigned seed) {
  SCOPED_TRACE(d.method + " on '" + d.shape + "', " + std::to_string(d.draft_max) + " drafts");
  const auto decoder = drafts_decoder(d.shape), other = drafts_decoder(d.shape);
  SessionOptions options = session_options(d.method, 20);
  options.cache_type = d.type;
  options.draft_max = d.draft_max;
  Session drafted(other, options);
  if (drafted.cache().options().spare_slots == 0 || d.other_slots) options.draft_max = 0;
  Session plain(decoder, options);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::vector<TokenId> text =
      random_tokens(static_cast<std::size_t>(50 + d.tokens + d.draft_max + 1), seed, kWords);
  const std::size_t prompt = 20 + static_cast<std::size_t>(below(30));
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
      const double bound = 1e-3 * std::abs(*std::ranges::max_element(alone, {}, as_magnitude));
      if (d.moves || d.other_slots)
        for (std::size_t k = 0; k < mine.size(); ++k) ASSERT_NEAR(alone[k], mine[k], bound) << next;
      else
        ASSERT_TRUE(std::ranges::equal(alone, mine)) << "token " << next << ", draft " << i;
    }
    ASSERT_EQ(plain.cache().fault(), nullptr);
    ASSERT_EQ(drafted.cache().fault(), nullptr);
    ASSERT_EQ(plain.position(), drafted.position());
    if (d.other_slots) {
      for (int t = 0; t < plain.cache().tables(); ++t)
        ASSERT_EQ(positions_kept(plain.cache(), t), positions_kept(drafted.cache(), t)) << "after token " << next;
    } else if (d.moves) {
      for (int t = 0; t < plain.cache().tables(); ++t) {
        const auto kept = positions_kept(plain.cache(), t), mine = positions_kept(drafted.cache(), t);
        ASSERT_TRUE(std::ranges::includes(mine, kept));
        ASSERT_LE(mine.size(), kept.size() + static_cast<std::size_t>(accepted + options.page_size));
      }
    } else {
      ASSERT_TRUE(state_of(plain.sequence()) == state_of(drafted.sequence())) << "after token " << next;
      ASSERT_EQ(plain.cache().evicted(), drafted.cache().evicted());
    }
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
    const auto decoder = drafts_decoder(d.shape);
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

// Methods that free slots between accepted tokens in another order: sinks + window at every=1 where it moves tokens,
// and pages outside the windows of layers.
bool moves(const Drafting& d) {
  const Method m = parse_method(d.method);
  if (m.mechanism == Mechanism::kBlock) return d.shape == "tiny-gemma2";
  return m.strict() && (m.mechanism == Mechanism::kShift || m.mechanism == Mechanism::kGather);
}

TEST(Drafts, AreAsIfReadOneByOne) {
  std::mt19937 random(3);
  const auto one_of = [&]<typename T>(std::initializer_list<T> list) { return list.begin()[random() % list.size()]; };
  std::set<std::string> methods_seen, mechanisms_seen;
  const int draws = test_length(300, 1200, 160);
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
      const std::string every = one_of({"", "1", "3", "8", "16"});
      if (!every.empty()) add("every=" + every);
      if (const std::string max_drop = one_of({"", "", "2", "5"}); !max_drop.empty()) add("max-drop=" + max_drop);
      if (random() % 3 == 0) add("evict=after");
      if (random() % 5 == 0) add("slack=3,overlap=2");
      const std::string mechanism = one_of({"", "", "in-place", "append", "shift", "gather", "merge", "block"});
      if (!mechanism.empty()) add("mechanism=" + mechanism);
      if (random() % 3 == 0) add("positions=cache");
      const std::string schedule = one_of({"", "", "step", "prompt", "prompt+step"});
      if (!schedule.empty()) add("schedule=" + schedule);
      if (const std::string pin = one_of({"", "", "0-5", "2-3+12-15"}); !pin.empty()) add("pin=" + pin);
    }
    d.draft_max = one_of({1, 3, 4, 7, 12});
    d.type = one_of({CacheType::kF32, CacheType::kF16, CacheType::kQ8_0});
    d.shape = one_of({"", "", "tiny-gemma2", "tiny-lfm2", "tiny-granitehybrid", "tiny-qwen35"});
    if (!legal(d)) continue;
    d.moves = moves(d);
    if (d.moves) d.type = CacheType::kF32;  // the others round keys, which magnifies the order of sums
    compare(d, static_cast<unsigned>(i));
    if (HasFatalFailure()) return;
    ++runs;
    methods_seen.insert(std::string(row.name));
    mechanisms_seen.insert(get_option(parse_method(d.method), "mechanism"));
  }
  RecordProperty("runs", runs);
  EXPECT_GT(runs, draws / 7);
  EXPECT_GT(methods_seen.size(), 12U);
  EXPECT_EQ(mechanisms_seen.size(), 6U);
}

// What is promised of the default method and of windows of layers, against a session that knows nothing of drafts.
TEST(Drafts, OtherSlotsDifferByRounding) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    for (const char* method : {"streaming:budget=40", "streaming:budget=40,positions=original"})
      compare({.method = method, .shape = "", .other_slots = true}, seed);
    for (const char* method :
         {"full", "streaming:budget=40,every=8", "streaming:budget=40,every=8,pin=9-12,positions=original"})
      compare({.method = method, .shape = "tiny-gemma2", .other_slots = true}, seed);
  }
}

TEST(Drafts, MethodsThatCannotDraftNameTheInterval) {
  const auto decoder = drafts_decoder("");
  const auto message = [&](const std::string& method) {
    SessionOptions options = session_options(method);
    options.draft_max = 4;
    return error_message([&] { Session session(decoder, options); });
  };
  EXPECT_NE(message("h2o:budget=40").find("every=5"), std::string::npos) << message("h2o:budget=40");
  EXPECT_NE(message("streaming:budget=40,rerotate=fused").find("every=5"), std::string::npos);
  EXPECT_NE(message("window-recompute:budget=40").find("no cache"), std::string::npos);
  EXPECT_EQ(message("h2o:budget=40,every=2"), "");
  EXPECT_EQ(message("streaming:budget=40"), "");
}

}  // namespace
}  // namespace palimpsest::testing
