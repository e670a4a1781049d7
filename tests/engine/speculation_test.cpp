#include "palimpsest/engine/speculation/speculation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/support/heap.h"

namespace palimpsest::testing {
namespace {

using Tokens = std::vector<TokenId>;

Tokens lookup(const Tokens& text, int max) {
  LookupDrafter drafter;
  drafter.append(text);
  const auto drafts = drafter.draft(max);
  return {drafts.begin(), drafts.end()};
}

TEST(LookupDrafter, ProposesWhatFollowedTheLastTokens) {
  EXPECT_EQ(lookup({1, 2, 3, 4, 5, 1, 2}, 3), (Tokens{3, 4, 5}));
  EXPECT_EQ(lookup({1, 2, 3, 9, 1, 2}, 2), (Tokens{3, 9}));
  EXPECT_EQ(lookup({1, 2, 3, 4, 1, 3}, 3), Tokens()) << "one token is no match";
  EXPECT_EQ(lookup({}, 3), Tokens());
  EXPECT_EQ(lookup({1}, 3), Tokens());
  EXPECT_EQ(lookup({1, 2, 3, 1, 2}, 0), Tokens());
}

TEST(LookupDrafter, TheLongestMatchCountsThenTheNewest) {
  EXPECT_EQ(lookup({9, 1, 2, 50, 1, 2, 60, 8, 1, 2, 9, 1, 2}, 1), (Tokens{50}));
  EXPECT_EQ(lookup({1, 2, 50, 1, 2, 60, 7, 1, 2}, 1), (Tokens{60}));
}

TEST(LookupDrafter, ARepetitionGoesOnBeyondTheText) {
  EXPECT_EQ(lookup({1, 2, 3, 1, 2, 3, 1, 2}, 7), (Tokens{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(lookup({5, 5, 5}, 4), (Tokens{5, 5, 5, 5}));
}

TEST(LookupDrafter, ALongPromptIsNotCopied) {
  const std::vector<TokenId> prompt(1'000'000, 1);
  const std::size_t before = heap_in_use();
  LookupDrafter drafter;
  drafter.append(prompt);
  EXPECT_LT(heap_in_use() - before, 2 * LookupDrafter::kMaxText * sizeof(TokenId));
  EXPECT_EQ(drafter.draft(1).size(), 1U);
}

TEST(LookupDrafter, ForgetsTheOldestText) {
  LookupDrafter drafter;
  drafter.append(Tokens{1, 2, 3});
  std::mt19937 random(1);
  for (int i = 0; i < 70; ++i) {
    Tokens more(1000);
    for (TokenId& each : more) each = static_cast<TokenId>(100 + random() % 30000);
    drafter.append(more);
  }
  drafter.append(Tokens{1, 2});
  EXPECT_TRUE(drafter.draft(4).empty());
  drafter.append(Tokens{7, 8, 1, 2});
  EXPECT_EQ(drafter.draft(2)[0], 7);
}

TEST(DraftLength, FollowsWhatStands) {
  DraftLength all(8), none(8);
  EXPECT_GT(all.next(), 0);
  int read = 0;
  for (int step = 0; step < 1000; ++step) {
    all.add(8, 8);
    const int drafts = none.next();
    read += drafts;
    if (drafts > 0) none.add(drafts, 0);
  }
  EXPECT_EQ(all.next(), 8);
  EXPECT_GT(all.acceptance(), 0.99);
  EXPECT_LT(read, 30) << "of 1,000 steps";
  EXPECT_LT(none.acceptance(), 0.1);
  int steps = 0;  // a text that begins to repeat itself is found again
  for (; none.next() < 8; ++steps) {
    ASSERT_LT(steps, 5000);
    none.add(1, 1);
  }
}

TEST(DraftLength, TheNumberThatPaysMost) {
  DraftLength length(16);
  for (int i = 0; i < 300; ++i) length.add(3, i % 2 == 0 ? 1 : 0);  // one in three
  EXPECT_GE(length.next(), 1);
  EXPECT_LE(length.next(), 3);
}

// On a CPU that is bound by computing, drafts pay only if most of them are accepted.
TEST(DraftLength, StopsWhereDraftsDoNotPay) {
  DraftLength dear(8, DraftPrice(0.54)), cheap(8, DraftPrice(0.08)), never(8, DraftPrice(1.1));
  for (int i = 0; i < 100; ++i)
    for (DraftLength* length : {&dear, &cheap, &never}) length->add(2, i % 2 == 0 ? 1 : 0);  // one in three
  int tries = 0;
  for (int step = 0; step < 1000; ++step) {
    tries += dear.next();
    EXPECT_GT(cheap.next(), 0);
    EXPECT_EQ(never.next(), 0);
  }
  EXPECT_GT(tries, 0);
  EXPECT_LT(tries, 12);
  for (int i = 0; i < 100; ++i) dear.add(8, 8), never.add(8, 8);
  EXPECT_EQ(dear.next(), 8);
  EXPECT_EQ(never.next(), 0);
}

TEST(DraftPrice, IsLinearBetweenMeasuredNumbers) {
  const DraftPrice each(0.25), measured(std::vector<std::pair<int, double>>{{1, 0.5}, {3, 1}, {7, 3}});
  EXPECT_EQ(each.of(0), 0);
  EXPECT_EQ(each.of(4), 1);
  EXPECT_EQ(measured.of(0), 0);
  EXPECT_EQ(measured.of(1), 0.5);
  EXPECT_EQ(measured.of(2), 0.75);
  EXPECT_EQ(measured.of(5), 2);
  EXPECT_EQ(measured.of(9), 4) << "as between the last two";
  DraftPrice with_model = measured;
  with_model.add(0.25);
  EXPECT_EQ(with_model.of(3), 1.75);
}

// Of a whole model, and of a part of one; the decoder is as before.
TEST(DraftPrice, IsMeasured) {
  for (const char* shape : {"tiny", "tiny@layers=4", "tiny-gemma2@layers=4", "tiny-mixtral"}) {
    for (const std::size_t bytes : {1 << 30, 1}) {
      SCOPED_TRACE(std::string(shape) + ", " + std::to_string(bytes));
      Decoder decoder(Model::synthetic(shape), 1);
      EXPECT_GT(measure_decoder(decoder, 0, bytes).seconds, 0);
      const DecoderSpeed speed = measure_decoder(decoder, 8, bytes);
      EXPECT_GT(speed.seconds, 0);
      for (int n = 1; n <= 8; ++n) EXPECT_TRUE(speed.price.of(n) >= 0 && std::isfinite(speed.price.of(n)));
    }
  }
}

class Counting final : public Drafter {
 public:
  void append(std::span<const TokenId>) override {}
  std::span<const TokenId> draft(int max) override {
    drafts_.assign(static_cast<std::size_t>(std::min(max, 3)), 1);
    return drafts_;
  }

 private:
  Tokens drafts_;
};

TEST(Speculation, KeepsToItsLimits) {
  Speculation few(std::make_unique<Counting>(), {.max = 8, .min = 4, .adaptive = false});
  EXPECT_TRUE(few.draft(100).empty()) << "three are fewer than four";
  Speculation some(std::make_unique<Counting>(), {.max = 8, .min = 2, .adaptive = false});
  EXPECT_EQ(some.draft(100).size(), 3U);
  EXPECT_EQ(some.draft(2).size(), 2U);
  EXPECT_TRUE(some.draft(1).empty());
  EXPECT_TRUE(some.draft(0).empty());
  some.verified(3, 1);
  some.verified(0, 0);
  EXPECT_EQ(some.counts().steps, 1);
  EXPECT_EQ(some.counts().drafts, 3);
  EXPECT_EQ(some.counts().accepted, 1);
}

}  // namespace
}  // namespace palimpsest::testing
