// Models with recurrent layers over HTTP: batches, kept prefixes and saved sessions give the text of a request alone.
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "palimpsest/model/model.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/server/server_fixture.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

std::shared_ptr<const Model> hybrid(const std::string& name) {
  SyntheticShape shape = parse_synthetic(name + "@type=q8_0");
  shape.vocabulary = served_vocabulary()->size();
  return Model::from(make_synthetic(shape));
}

class ServedHybrid : public ::testing::TestWithParam<const char*> {
 protected:
  ServedHybrid() { setup_.model = hybrid(GetParam()); }

  ServerSetup setup_;
};
INSTANTIATE_TEST_SUITE_P(Hybrids, ServedHybrid,
                         ::testing::Values("tiny-lfm2", "tiny-granitehybrid", "tiny-falcon-h1", "tiny-qwen35"),
                         [](const auto& info) {
                           std::string name = std::string(info.param).substr(5);
                           std::erase(name, '-');
                           return name;
                         });

Json request(int i) {
  static const char* const prompts[] = {"Once upon a time", "The cat sat on the mat and looked at the dog.", "No",
                                        "There was a big tree in the garden, and under the tree"};
  static const char* const methods[] = {"full", "streaming:budget=32", "h2o:budget=32"};
  return {
      {"prompt", prompts[i % 4]}, {"max_tokens", 30 + i}, {"seed", i}, {"ignore_eos", true}, {"cache", methods[i % 3]}};
}

TEST_P(ServedHybrid, BatchesAreAsRequestsAlone) {
  constexpr int kRequests = 8;
  Running server(setup_);
  std::vector<std::string> apart, together(kRequests);
  for (int i = 0; i < kRequests; ++i) apart.push_back(text_of(server.answer(kText, request(i))));
  std::vector<std::thread> threads;
  for (int i = 0; i < kRequests; ++i)
    threads.emplace_back([&, i] { together[static_cast<std::size_t>(i)] = text_of(server.answer(kText, request(i))); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, apart);
  EXPECT_TRUE(server.idle_within(5));
}

TEST_P(ServedHybrid, APrefixContinuesWithItsState) {
  Json body = request(3);
  std::string prompt;
  for (int i = 0; i < 12; ++i) prompt += "Once upon a time, there was a cat that sat on a mat. ";
  body["prompt"] = prompt;
  std::string plain;
  {
    Running server(setup_);
    plain = text_of(server.answer(kText, body));
  }
  setup_.scheduler.prefix_bytes = std::size_t{64} << 20;
  setup_.scheduler.pool_bytes = std::size_t{128} << 20;
  Running server(setup_);
  for (const bool again : {false, true}) {
    const Json answer = server.answer(kText, body);
    EXPECT_EQ(text_of(answer), plain);
    EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>() > 0, again);
  }
}

TEST_P(ServedHybrid, ASessionContinuesWithItsState) {
  const std::string folder = own_file("hybrid-sessions");
  std::filesystem::create_directories(folder);
  setup_.session_path = folder;
  {
    Running server(setup_);
    for (int i = 0; i < 3; ++i) {
      Json whole = request(i), first = whole, second = {{"session", {{"restore", "tale"}}}, {"ignore_eos", true}};
      whole["max_tokens"] = 60;
      first["max_tokens"] = 25;
      first["session"] = {{"save", "tale"}};
      second["max_tokens"] = 35;
      std::string text = text_of(server.answer(kText, first));
      text += text_of(server.answer(kText, second));
      EXPECT_EQ(text, text_of(server.answer(kText, whole))) << whole["cache"];
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace palimpsest::testing
