// Recorded sessions: what repeats, lengths, pauses; and a replay of them.
#include "palimpsest/load/trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "palimpsest/load/scheduler_target.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

std::vector<LoadRequest> sessions(const std::string& lines, const TraceOptions& options = {}) {
  return recorded_sessions(lines, "trace.jsonl", options, 3, 500, 1);
}

long long common(const LoadRequest& a, const LoadRequest& b) {
  const auto end = std::min(a.prompt.size(), b.prompt.size());
  return std::mismatch(a.prompt.begin(), a.prompt.begin() + static_cast<std::ptrdiff_t>(end), b.prompt.begin()).first -
         a.prompt.begin();
}

const std::string kTwoSessions =
    R"({"id": "a", "block_size": 16, "hash_id_scope": "local", "requests": [
{"t": 0, "in": 35, "out": 4, "hash_ids": [1, 2], "think_time": 5},
{"t": 2, "in": 70, "out": 6, "hash_ids": [1, 2, 3, 4], "think_time": 1.5},
{"type": "subagent", "requests": [{"in": 16, "out": 2, "hash_ids": [9]}]},
{"t": 9, "in": 40, "out": 1, "hash_ids": [1, 5], "think_time": 2}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST(Trace, BlocksOfTheSameHashAreTheSameText) {
  const auto load = sessions(one_line(kTwoSessions) + "\n\n" + one_line(kTwoSessions));
  ASSERT_EQ(load.size(), 8u);
  const std::vector<std::size_t> lengths = {35, 70, 16, 40};
  const std::vector<long long> repeated = {0, 35, 0, 16};  // the tail of the first prompt begins block 3
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(load[i].prompt.size(), lengths[i % 4]) << i;
    EXPECT_EQ(load[i].repeated, repeated[i % 4]) << i;
    EXPECT_EQ(load[i].session, static_cast<int>(i / 4));
    for (const TokenId token : load[i].prompt) EXPECT_TRUE(token >= 3 && token < 500);
  }
  EXPECT_EQ(common(load[0], load[1]), 35);
  EXPECT_EQ(common(load[1], load[3]), 16);
  EXPECT_LT(common(load[1], load[2]), 3);
  EXPECT_LT(common(load[0], load[4]), 3);  // ids are those of the session
  EXPECT_EQ(load[1].output, 6);
  EXPECT_EQ(load[0].think, 0);
  EXPECT_EQ(load[1].think, 1.5);
  EXPECT_EQ(load[1].prompt, sessions(one_line(kTwoSessions))[1].prompt);

  std::string global = one_line(kTwoSessions);
  global.replace(global.find("local"), 5, "global");
  const auto shared = sessions(global + "\n" + global);
  EXPECT_EQ(common(shared[0], shared[4]), 35);
}

TEST(Trace, ScalesLengthsAndPauses) {
  const TraceOptions half{.scale = 0.5, .think_scale = 0, .sessions = 1, .max_len = 30};
  const auto load = sessions(one_line(kTwoSessions) + "\n" + one_line(kTwoSessions), half);
  ASSERT_EQ(load.size(), 3u);  // the prompt of 35 and its answer of 3 are too long
  EXPECT_EQ(load[0].prompt.size(), 18u);
  EXPECT_EQ(load[0].output, 2);
  EXPECT_EQ(load[1].prompt.size(), 8u);
  EXPECT_EQ(load[2].prompt.size(), 20u);
  EXPECT_EQ(load[2].output, 1);
  EXPECT_EQ(load[2].repeated, 8);
  EXPECT_EQ(load[2].think, 0);
}

TEST(Trace, RefusesWhatIsNoTrace) {
  const auto refused = [](const std::string& lines, const std::string& part) {
    const std::string error = error_of([&] { sessions(lines); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  refused("", "no request");
  refused("words", "trace.jsonl, line 1");
  refused("{}", "no session");
  refused(R"({"requests": 5})", "no list");
  refused(R"({"requests": [5]})", "no JSON object");
  refused(R"({"requests": [{}]})", "without in");
  refused(R"({"requests": [{"in": 0}]})", "in is 0");
  refused(R"({"requests": [{"in": 5, "hash_ids": [-1]}]})", "hash_ids has -1");
  refused(R"({"requests": [{"in": 5, "think_time": -1}]})", "think_time is -1");
  refused(R"({"requests": [{"in": 5}], "block_size": 0})", "block_size is 0");
  refused(R"({"requests": [{"in": 5}], "hash_id_scope": "all"})", "hash_id_scope");
  refused(R"({"requests": [{"in": 268435456}, {"in": 1}]})", "replay fewer sessions");
}

TEST(Trace, AReplayReadsOnlyWhatIsNew) {
  const auto load = sessions(one_line(kTwoSessions), {.think_scale = 0.01});
  SchedulerOptions options{.page_size = 16, .chunk = 16};
  options.prefix_bytes = options.pool_bytes / 2;
  SchedulerTarget target(std::make_shared<Decoder>(Model::synthetic("tiny"), 1), nullptr, options,
                         parse_method("full"));
  const LoadReport report = run_load(target, load, 0, [](int) { return true; });
  ASSERT_EQ(report.answers.size(), 4u);
  for (const LoadAnswer& answer : report.answers) ASSERT_TRUE(answer.complete) << answer.error;
  EXPECT_EQ(report.answers[0].cached, 0);
  EXPECT_EQ(report.answers[1].cached, 35);  // the history of the first prompt
  EXPECT_EQ(report.answers[2].cached, 0);
  EXPECT_EQ(report.answers[3].cached, 16);  // a chunk
  EXPECT_GE(report.answers[1].sent, report.answers[0].end + 0.015);
  EXPECT_GT(report.peak.kept_bytes, 0);
}

}  // namespace
}  // namespace palimpsest::testing
