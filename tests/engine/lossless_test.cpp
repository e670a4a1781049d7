// Lossless mode: whatever the method of the small cache evicts, the text is that of the full cache.
#include "palimpsest/engine/speculation/lossless_drafter.h"

#include <gtest/gtest.h>

#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/generation/generator.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"
#include "tests/support/slot_rows.h"

namespace palimpsest::testing {
namespace {

constexpr int kLosslessDrafts = 4;
const std::string kLosslessPrompt =
    "Once upon a time there was a little dog. The little dog had a red ball. The little dog liked the red ball. One "
    "day "
    "the dog lost the ball in the park. A girl named Lily saw the dog. Lily said that she would help the dog to find "
    "it.";

// By position, random, by sums of attention, by a window of queries, by keys at decisions, by keys as tokens come,
// moving tokens, evicting after the prompt alone, by head budgets, reading the prompt twice, with a second tier.
constexpr const char* kSmall[] = {"streaming:budget=48,positions=original",
                                  "random:budget=48",
                                  "h2o:budget=48",
                                  "tova:budget=48",
                                  "snapkv:budget=48,recent=16,window=16",
                                  "keydiff:budget=48,every=4",
                                  "keydiff:budget=48,mechanism=shift,every=8",
                                  "knorm:budget=48",
                                  "pyramidkv:budget=64",
                                  "paged-eviction:budget=64",
                                  "streaming:budget=48,positions=original,recall=2"};

class Lossless : public ::testing::Test {
 protected:
  void SetUp() override {
    vocabulary_ = Vocabulary::load(default_model());
    decoder_ = std::make_shared<Decoder>(Model::load(default_model()), 1);
  }

  struct Written {
    std::vector<TokenId> tokens;
    DraftCounts drafts;
    std::vector<float> logits;  // after the text
  };
  // Each prompt is continued by so many tokens, in one session.
  Written write(Session& session, Speculation* drafts, float temperature, std::span<const std::string> prompts,
                long long tokens = 60) {
    Written out;
    SamplerOptions sampling;
    sampling.temperature = temperature;
    sampling.seed = 7;
    Sampler sampler(sampling, vocabulary_.get(), vocabulary_->size());
    std::vector<TokenId> unread;
    for (const std::string& prompt : prompts) {
      const auto more = vocabulary_->tokenize(prompt, session.position() == 0, false);
      unread.insert(unread.end(), more.begin(), more.end());
      const Generation g = generate(
          session, sampler, *vocabulary_, unread,
          {.max_tokens = tokens,
           .stop = {},
           .ignore_end = true,
           .known = out.tokens.empty() ? 0U : 1U,
           .keep = true,
           .drafts = drafts},
          [](std::string_view) {}, cancel_);
      out.tokens.insert(out.tokens.end(), g.written.begin(), g.written.end());
      out.drafts += g.drafts;
      unread = {g.unread};
    }
    const auto logits = session.decode(unread.front());
    out.logits.assign(logits.begin(), logits.end());
    return out;
  }
  Session full(int drafts = kLosslessDrafts) { return {decoder_, full_beside(small(kSmall[0]), drafts)}; }
  SessionOptions small(const std::string& method, CacheType type = CacheType::kF16) const {
    SessionOptions options = session_options(method + ",lossless=true", 64);
    options.cache_type = type;
    options.repeat = vocabulary_->tokenize("Repeat it:", false, false);
    return options;
  }

  std::shared_ptr<Vocabulary> vocabulary_;
  std::shared_ptr<Decoder> decoder_;
  std::atomic<bool> cancel_{false};
};

DraftOptions always() {
  return {.max = kLosslessDrafts, .adaptive = false};
}

TEST_F(Lossless, TheTextIsThatOfTheFullCache) {
  const std::string prompts[] = {kLosslessPrompt, " Then Lily asked the dog about the ball, and where it was last."};
  for (const float temperature : {0.0F, 0.8F}) {
    Session plain = full(0);
    const Written wanted = write(plain, nullptr, temperature, prompts);
    for (const std::string method : kSmall) {
      SCOPED_TRACE(method + " at " + std::to_string(temperature));
      Session session = full();
      auto drafter = std::make_unique<LosslessDrafter>(session, small(method), 0.0F);
      const LosslessDrafter& made = *drafter;
      Speculation drafts(std::move(drafter), always());
      const Written text = write(session, &drafts, temperature, prompts);
      ASSERT_EQ(made.failure(), "");
      EXPECT_EQ(text.tokens, wanted.tokens);
      EXPECT_TRUE(text.logits == wanted.logits);
      EXPECT_EQ(session.cache().fault(), nullptr);
      EXPECT_EQ(made.session().cache().fault(), nullptr);
      EXPECT_EQ(session.cache().evicted(), 0);
      EXPECT_GT(text.drafts.accepted, 5);
      EXPECT_LT(text.drafts.accepted, text.drafts.drafts) << "the small cache drafts as the full one";
      const Cache& cache = made.session().cache();
      if (made.session().method().schedule == Schedule::kStep) {
        EXPECT_LE(cache.occupied(), made.session().method().budget + 8 + kLosslessDrafts);
      }
      EXPECT_GT(cache.evicted(), 0);
    }
  }
}

TEST_F(Lossless, WithFewerBitsTheTextIsThatOfTheFullCacheOfTheseBits) {
  const std::string prompts[] = {kLosslessPrompt};
  for (const CacheType type : {CacheType::kF32, CacheType::kQ8_0}) {
    SessionOptions options = small("keydiff:budget=48", type);
    Session plain(decoder_, full_beside(options, 0)), session(decoder_, full_beside(options, kLosslessDrafts));
    const Written wanted = write(plain, nullptr, 0, prompts);
    Speculation drafts(std::make_unique<LosslessDrafter>(session, options, 0.0F), always());
    const Written text = write(session, &drafts, 0, prompts);
    EXPECT_EQ(text.tokens, wanted.tokens);
    EXPECT_TRUE(text.logits == wanted.logits);
  }
}

// Of tokens of the text: those that the small session keeps have the bits of the full one.
TEST_F(Lossless, TheSmallCacheHoldsRowsOfTheFullOne) {
  const auto text = vocabulary_->tokenize(kLosslessPrompt + kLosslessPrompt, true, false);
  for (const std::string method : {"streaming:budget=48,positions=original", "h2o:budget=48", "knorm:budget=48"}) {
    SCOPED_TRACE(method);
    Session session = full();
    LosslessDrafter drafter(session, small(method), 0);
    std::size_t next = text.size() - 80;
    session.prefill(std::span(text).first(next));
    drafter.append(std::span(text).first(next));
    while (next + 8 < text.size()) {
      std::size_t right = next % 3;  // of the drafts
      drafter.append({&text[next], 1});
      ASSERT_FALSE(drafter.draft(kLosslessDrafts).empty()) << drafter.failure();
      const Cache &mine = std::as_const(drafter).session().cache(), &whole = session.cache();
      std::size_t compared = 0;
      for (int head = 0; head < mine.geometry().heads(); ++head) {
        const LayerView small_view = mine.view(mine.geometry().layer_of(head)),
                        view = whole.view(mine.geometry().layer_of(head));
        const auto kept = mine.table(mine.table_of(head)).position(),
                   all = whole.table(whole.table_of(head)).position();
        for (int slot = 0; slot < static_cast<int>(kept.size()); ++slot) {
          if (kept[at(slot)] == kNoPosition || kept[at(slot)] >= session.position()) continue;
          const int from = static_cast<int>(std::find(all.begin(), all.end(), kept[at(slot)]) - all.begin());
          const int size = view.page_size;
          const std::byte *const a = mine.head(head).page[slot / size], *const b = whole.head(head).page[from / size];
          ASSERT_EQ(key_in(small_view, a, slot % size), key_in(view, b, from % size)) << "position " << kept[at(slot)];
          ASSERT_EQ(value_in(small_view, a, slot % size), value_in(view, b, from % size));
          ++compared;
        }
      }
      ASSERT_GT(compared, 0U);
      const auto logits = session.decode(text[next], std::span(text).subspan(next + 1, right));
      right = logits.size() / at(vocabulary_->size()) - 1;  // there may be room for fewer
      session.accept(static_cast<int>(right));
      drafter.append(std::span(text).subspan(next + 1, right));
      next += 1 + right;
    }
  }
}

// A text that begins again is read anew. After a cut the full cache has free slots in its middle, and is not shared:
// there are no more drafts, and the text goes on without.
TEST_F(Lossless, FollowsATextThatBeginsAgain) {
  const auto text = vocabulary_->tokenize(kLosslessPrompt, true, false);
  for (const char* method : {"h2o:budget=32", "knorm:budget=32"}) {
    SCOPED_TRACE(method);
    Session session = full();
    LosslessDrafter drafter(session, small(method), 0);
    session.prefill(text);
    drafter.append(text);
    drafter.append({&text[5], 1});
    ASSERT_FALSE(drafter.draft(kLosslessDrafts).empty()) << drafter.failure();
    session.clear();
    const auto other = std::span(text).subspan(4);
    session.prefill(other);
    drafter.append(other);
    drafter.append({&text[9], 1});
    ASSERT_FALSE(drafter.draft(kLosslessDrafts).empty()) << drafter.failure();
    EXPECT_EQ(std::as_const(drafter).session().cache().fault(), nullptr);
    session.rewind(30);
    session.prefill(other.first(6));
    drafter.append(other.first(6));
    drafter.append({&text[9], 1});
    EXPECT_TRUE(drafter.draft(kLosslessDrafts).empty());
    EXPECT_NE(drafter.failure().find("the text was cut"), std::string::npos) << drafter.failure();
  }
}

TEST_F(Lossless, IsRefusedWhereThereIsNoFullCache) {
  SessionOptions options = small("h2o:budget=32");
  EXPECT_NE(error_of([&] { Session(decoder_, options); }).find("is for run and chat"), std::string::npos);
  options.method.positions = Positions::kCache;
  Session session = full();
  EXPECT_NE(error_of([&] { LosslessDrafter(session, options); }).find("use positions=original"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
