// Common runs of two texts, against what an edit script must be.
#include "palimpsest/engine/scheduler/text_diff.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

using Text = std::vector<TokenId>;
using Runs = std::vector<CommonRun>;

Text joined(std::initializer_list<Text> parts) {
  Text all;
  for (const Text& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Runs common_runs(const Text& read, const Text& text, std::size_t min) {
  return TextDiff(text, min).runs(read);
}

TEST(TextDiff, FindsWhatStandsBehindAChange) {
  const Text a = random_tokens(20, 1), b = random_tokens(30, 2), c = random_tokens(25, 3), x = {501, 502},
             y = {503, 504, 505};
  EXPECT_EQ(common_runs(joined({a, x, b}), joined({a, y, b}), 8), (Runs{{0, 0, 20}, {22, 23, 30}}));
  EXPECT_EQ(common_runs(joined({a, x, b}), joined({a, b}), 8), (Runs{{0, 0, 20}, {22, 20, 30}}));
  EXPECT_EQ(common_runs(joined({a, b}), joined({a, y, b}), 8), (Runs{{0, 0, 20}, {20, 23, 30}}));
  EXPECT_EQ(common_runs(joined({x, b}), joined({y, b}), 8), (Runs{{2, 3, 30}}));
  EXPECT_EQ(common_runs(joined({a, x, b, y, c}), joined({a, y, b, x, c, x}), 8),
            (Runs{{0, 0, 20}, {22, 23, 30}, {55, 55, 25}}));
  EXPECT_EQ(common_runs(joined({a, x, b}), joined({a, y, b}), 31), (Runs{{0, 0, 20}}));  // too short
  EXPECT_EQ(common_runs(joined({a, x}), joined({a, y}), 8), (Runs{{0, 0, 20}}));
  EXPECT_EQ(common_runs(a, b, 8), Runs{});
  EXPECT_EQ(common_runs({}, a, 8), Runs{});
  EXPECT_EQ(common_runs(a, joined({a, b}), 8), (Runs{{0, 0, 20}}));
}

TEST(TextDiff, RunsDoNotCross) {
  const Text a = random_tokens(20, 1), b = random_tokens(30, 2), c = random_tokens(25, 3);
  EXPECT_EQ(common_runs(joined({a, b, c}), joined({a, c, b}), 8), (Runs{{0, 0, 20}, {20, 45, 30}}));  // the longer one
  const Text twice = joined({a, b, b, c});  // sequences that are there twice are no anchors, but are in runs
  EXPECT_EQ(common_runs(joined({{501}, twice}), joined({{502}, twice}), 8), (Runs{{1, 1, 105}}));
}

// Runs are equal tokens in ascending order, at least as many as an edit left.
TEST(TextDiff, RandomEdits) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const Text before = random_tokens(100 + random() % 400, random());
    Text after = before;
    std::size_t changed = 0;
    for (unsigned i = random() % 4; i > 0; --i) {
      const std::size_t gone = random() % 20, come = random() % 20, at = random() % (after.size() - gone);
      const Text text = random_tokens(come, random());
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(at),
                  after.begin() + static_cast<std::ptrdiff_t>(at + gone));
      after.insert(after.begin() + static_cast<std::ptrdiff_t>(at), text.begin(), text.end());
      changed += come + 2 * 10;  // a run below 10 tokens may be left on both sides
    }
    std::size_t read = 0, text = 0, common = 0;
    for (const CommonRun& run : common_runs(before, after, 10)) {
      ASSERT_TRUE(run.in_read >= read && run.in_text >= text);
      ASSERT_TRUE(run.tokens >= 10 || run.in_text == 0);
      ASSERT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(run.in_read),
                             before.begin() + static_cast<std::ptrdiff_t>(run.in_read + run.tokens),
                             after.begin() + static_cast<std::ptrdiff_t>(run.in_text)));
      read = run.in_read + run.tokens, text = run.in_text + run.tokens;
      common += run.tokens;
    }
    ASSERT_GE(common + changed, after.size());
  }
}

}  // namespace
}  // namespace palimpsest::testing
