// Loads: lengths and arrival times, and the records of run_load.
#include "palimpsest/load/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "palimpsest/core/error.h"
#include "palimpsest/load/load_run.h"
#include "palimpsest/load/scheduler_target.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

RecordedLoad recorded(const std::string& lines) {
  return recorded_load(lines, "log.jsonl", {.input = 5, .output = 7}, 0, 100, 1);
}

TEST(Load, RandomPromptsOfTheLengthAsked) {
  const auto load = random_load(20, {.input = 9, .output = 4}, 3, 50, 1);
  ASSERT_EQ(load.size(), 20u);
  for (const auto& request : load) {
    EXPECT_EQ(request.prompt.size(), 9u);
    EXPECT_EQ(request.output, 4);
    for (const TokenId token : request.prompt) EXPECT_TRUE(token >= 3 && token < 50);
  }
  EXPECT_NE(load[0].prompt, load[1].prompt);
  EXPECT_EQ(load[1].prompt, random_load(20, {.input = 9, .output = 4}, 3, 50, 1)[1].prompt);
  EXPECT_NE(load[1].prompt, random_load(20, {.input = 9, .output = 4}, 3, 50, 2)[1].prompt);
}

TEST(Load, ArrivesAsAPoissonProcess) {
  auto load = random_load(4000, {.input = 1, .output = 1}, 0, 10, 1);
  set_arrival_times(load, 8, 1);
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < load.size(); ++i) {
    const double gap = load[i].at - load[i - 1].at;
    ASSERT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
  }
  const auto gaps = static_cast<double>(load.size() - 1);
  const double mean = sum / gaps;
  EXPECT_NEAR(mean, 1.0 / 8, 0.01);
  EXPECT_NEAR(std::sqrt(squares / gaps - mean * mean), mean, 0.015);  // exponential gaps
  set_arrival_times(load, std::numeric_limits<double>::infinity(), 1);
  EXPECT_EQ(load.back().at, 0);
}

TEST(Load, RecordedLines) {
  const auto load = recorded(
      "{\"prompt\": \"Once\", \"output_len\": 3, \"at\": 2}\n\n"
      "{\"prompt\": [1, 2, 3], \"at\": 1.5}\r\n{\"input_len\": 4, \"at\": 0}");
  EXPECT_TRUE(load.timed);
  ASSERT_EQ(load.requests.size(), 3u);  // in order of arrival
  EXPECT_EQ(load.requests[0].prompt.size(), 4u);
  EXPECT_EQ(load.requests[0].output, 7);
  EXPECT_EQ(load.requests[1].prompt, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(load.requests[1].at, 1.5);
  EXPECT_EQ(load.requests[2].text, "Once");
  EXPECT_EQ(load.requests[2].output, 3);
  EXPECT_TRUE(load.requests[2].prompt.empty());
  EXPECT_EQ(recorded("{}").requests[0].prompt.size(), 5u);
  EXPECT_FALSE(recorded("{}").timed);
}

TEST(Load, RefusesWhatIsNoRecording) {
  const auto refused = [](const std::string& lines, const std::string& part) {
    const std::string error = error_of([&] { recorded(lines); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  refused("", "no request");
  refused("{}\nnothing", "log.jsonl, line 2");
  refused("[]", "no JSON object");
  refused("{\"promt\": \"x\"}", "promt");
  refused("{\"prompt\": \"\"}", "prompt");
  refused("{\"prompt\": [1, -2]}", "prompt");
  refused("{\"prompt\": []}", "prompt");
  refused("{\"input_len\": 0}", "input_len");
  refused("{\"output_len\": 1.5}", "output_len");
  refused("{\"output_len\": 99999999999}", "output_len");
  refused("{\"at\": -1}", "at is -1");
  refused("{\"at\": 1}\n{}", "1 of 2 lines");
}

// Answers each request in its own thread: a token, a pause, a token.
class SlowTarget final : public LoadTarget {
 public:
  explicit SlowTarget(double fail_after = 1e9) : fail_after_(fail_after) {}
  void send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) override {
    const int now = ++running_;
    max_ = std::max(max_, now);
    threads_.emplace_back([this, listener, read = request.prompt.size()] {
      LoadAnswer counts;
      counts.prompt_tokens = static_cast<long long>(read);
      counts.tokens = 2;
      listener->token();
      for (int i = 0; i < 20 && !cancelled_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      listener->token();
      counts.complete = !cancelled_;
      --running_;
      listener->end(counts);
    });
  }
  LoadState state() override {
    if (++states_ > fail_after_) fail("it broke");
    return {.running = running_, .waiting = 0, .cache_bytes = 64LL * running_};
  }
  void cancel() override { cancelled_ = true; }
  int max() const { return max_; }

 private:
  double fail_after_;
  int states_ = 0, max_ = 0;
  std::atomic<int> running_ = 0;
  std::atomic<bool> cancelled_ = false;
  std::vector<std::jthread> threads_;
};

const auto kGoOn = [](int) { return true; };

TEST(LoadRun, NotesTimesAndKeepsTheConcurrency) {
  SlowTarget target;
  const auto load = random_load(9, {.input = 5, .output = 2}, 0, 10, 1);
  const LoadReport report = run_load(target, load, 3, kGoOn);
  ASSERT_EQ(report.answers.size(), 9u);
  EXPECT_EQ(target.max(), 3);
  for (const auto& answer : report.answers) {
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.prompt_tokens, 5);
    ASSERT_EQ(answer.token_times.size(), 2u);
    EXPECT_LE(answer.sent, answer.token_times[0]);
    EXPECT_GE(answer.token_times[1] - answer.token_times[0], 0.020);
    EXPECT_LE(answer.token_times[1], answer.end);
  }
  EXPECT_GE(report.seconds, 3 * 0.020);
  EXPECT_EQ(report.cache_bytes_after, 0);
}

TEST(LoadRun, SendsNothingBeforeItsTime) {
  SlowTarget target;
  auto load = random_load(3, {.input = 1, .output = 2}, 0, 10, 1);
  load[1].at = 0.03;
  load[2].at = 0.15;
  const LoadReport report = run_load(target, load, 0, kGoOn);
  EXPECT_GE(report.answers[1].sent, 0.03);
  EXPECT_GE(report.answers[2].sent, 0.15);
}

TEST(LoadRun, StopsAndBreaks) {
  SlowTarget target;
  const auto load = random_load(1000, {.input = 1, .output = 2}, 0, 10, 1);
  int asked = 0;
  const LoadReport report = run_load(target, load, 2, [&](int) { return ++asked < 3; });
  ASSERT_EQ(report.answers.size(), 2u);  // one for each request
  for (const auto& answer : report.answers) EXPECT_FALSE(answer.complete);
  SlowTarget broken(2);
  EXPECT_EQ(error_of([&] { run_load(broken, load, 2, kGoOn); }), "it broke");
}

TEST(LoadRun, RequestsOfASessionWaitForEachOther) {
  SlowTarget target;
  std::vector<LoadRequest> load;
  for (int i = 0; i < 9; ++i)  // three sessions of three
    load.push_back({.prompt = {i}, .output = 2, .session = i / 3, .think = i % 3 == 0 ? 0 : 0.03, .repeated = i});
  const LoadReport report = run_load(target, load, 2, kGoOn);
  ASSERT_EQ(report.answers.size(), 9u);
  EXPECT_EQ(target.max(), 2);
  std::vector<LoadAnswer> by_request(9);
  for (const auto& answer : report.answers) by_request[static_cast<std::size_t>(answer.repeated)] = answer;
  for (std::size_t i = 0; i < 9; ++i) {
    ASSERT_TRUE(by_request[i].complete);
    const double before = i % 3 == 0 ? 0 : by_request[i - 1].end + 0.03;
    EXPECT_GE(by_request[i].sent, before) << i;
  }
  EXPECT_GE(by_request[6].sent, std::min(by_request[2].end, by_request[5].end));  // the third session
}

TEST(SchedulerTarget, AnswersAllWithinItsPool) {
  const auto decoder = std::make_shared<Decoder>(Model::synthetic("tiny"), 1);
  SchedulerOptions options{.page_size = 16, .chunk = 32};
  SchedulerTarget target(decoder, nullptr, options, parse_method("streaming:budget=32"));
  auto load = random_load(6, {.input = 50, .output = 10}, 0, 512, 1);
  load.push_back({.prompt = {}, .text = "words"});
  load.push_back({.prompt = {100000}, .output = 1});
  const LoadReport report = run_load(target, load, 0, kGoOn);
  ASSERT_EQ(report.answers.size(), 8u);
  for (std::size_t i = 0; i < 6; ++i) {
    const LoadAnswer& answer = report.answers[i];
    EXPECT_TRUE(answer.complete) << answer.error;
    EXPECT_EQ(answer.prompt_tokens, 50);
    EXPECT_EQ(answer.tokens, 10);
    EXPECT_EQ(answer.token_times.size(), 10u);
    EXPECT_EQ(answer.evicted, 50 + 9 - 32);
  }
  EXPECT_NE(report.answers[6].error.find("vocabulary"), std::string::npos);
  EXPECT_NE(report.answers[7].error.find("100000"), std::string::npos);
  EXPECT_GT(report.peak.cache_bytes, 0);
  EXPECT_GT(report.peak.running, 1);
  EXPECT_EQ(report.cache_bytes_after, 0);
}

TEST(SchedulerTarget, CancelsWhatRuns) {
  SchedulerTarget target(std::make_shared<Decoder>(Model::synthetic("tiny"), 1), nullptr, {}, parse_method("full"));
  const auto load = random_load(3, {.input = 10, .output = 100000}, 0, 512, 1);
  int asked = 0;
  const LoadReport report = run_load(target, load, 0, [&](int) { return ++asked < 6; });
  for (const auto& answer : report.answers) EXPECT_EQ(answer.error, "cancelled");
  EXPECT_EQ(report.cache_bytes_after, 0);
}

}  // namespace
}  // namespace palimpsest::testing
