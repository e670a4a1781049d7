// The reader of llama-server's /completion. /infill needs a vocabulary with tokens for it.
#include "palimpsest/server/apis/llama_request.h"

#include "tests/server/request_readers.h"

namespace palimpsest::testing {
namespace {

class LlamaReader : public ::testing::Test {
 protected:
  const ServedModel model_ = model_of_readers();
  const Json once_ = {{"prompt", "Once"}};
};

TEST_F(LlamaReader, ReadsPromptsAndSettings) {
  const LlamaRequest given = read_llama({{"prompt", {"Once", {{"prompt_string", "Then"}}}},
                                         {"n_cmpl", 2},
                                         {"n_predict", 7},
                                         {"n_probs", 2},
                                         {"stream", true},
                                         {"return_progress", true},
                                         {"return_tokens", true},
                                         {"response_fields", {"content"}},
                                         {"json_schema", {{"type", "object"}}}},
                                        model_);
  const CompletionRequest& request = given.input.request;
  EXPECT_EQ(request.prompts.size(), 2u);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.request.max_tokens, 7);
  EXPECT_EQ(request.request.top_logprobs, 2);
  EXPECT_TRUE(request.stream && request.progress && request.tokens && given.return_tokens);
  EXPECT_EQ(given.response_fields, std::vector<std::string>{"content"});
  EXPECT_FALSE(given.input.output.schema.empty());
  EXPECT_EQ(read_llama(once_, model_).input.request.request.max_tokens, -1);
}

TEST_F(LlamaReader, ErrorsNameFields) {
  const std::function<void(const Json&)> make = [this](const Json& body) {
    make_request(read_llama(body, model_).input, model_);
  };
  for (const auto& wrong : {kWrongEngineFields, kWrongSampling}) expect_named(make, once_, wrong);
  expect_named(make, once_,
               {{"prompt", {{"prompt", nullptr}}},
                {"prompt", {{"prompt", Json::array()}}},
                {"prompt[1]", {{"prompt", {"Once", {1, -1}}}}},
                {"prompt.multimodal_data", {{"prompt", {{"multimodal_data", {"x"}}}}}},
                {"n_cmpl", {{"n_cmpl", 0}}},
                {"n_cmpl", {{"n_cmpl", 128}, {"prompt", {"a", "b"}}}},
                {"n_predict", {{"n_predict", -5}}},
                {"n_probs", {{"n_probs", 100}}},
                {"stop", {{"stop", {1}}}},
                {"grammar", {{"grammar", 1}}},
                {"grammar", {{"grammar", "root ::= \"a\""}, {"json_schema", {{"type", "object"}}}}},
                {"json_schema.type", {{"json_schema", {{"type", "wrong"}}}}},
                {"response_fields", {{"response_fields", "content"}}},
                {"post_sampling_probs", {{"post_sampling_probs", true}}},
                {"lora", {{"lora", {1}}}}});
  EXPECT_EQ(error_of(make, once_, {{"n_predict", 4}, {"min_tokens", 5}}),
            "'min_tokens' is 5, and 'n_predict' 4: give at most as many");
  EXPECT_EQ(error_of(make, once_, {{"max_tokens", 4}, {"min_tokens", 5}}),
            "'min_tokens' is 5, and 'max_tokens' 4: give at most as many");
}

TEST_F(LlamaReader, InfillNeedsTokensOfTheVocabulary) {
  try {
    read_infill({{"input_prefix", "a"}, {"input_suffix", "b"}}, model_);
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 501);
  }
}

}  // namespace
}  // namespace palimpsest::testing
