// Sampling options of requests: defaults, names, refusals.
#include "palimpsest/text/sampler_fields.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

class SamplingTest : public ::testing::Test {
 protected:
  std::string text(Json more, const char* path = kText) {
    Json body = {{"prompt", "Once upon a time"}, {"max_tokens", 40}, {"seed", 3}, {"ignore_eos", true}};
    body.update(more);
    return text_of(running_.answer(path, body));
  }
  Running running_;
};

TEST_F(SamplingTest, DefaultsAreLlamaServers) {
  const std::string whole = text(Json::object());
  EXPECT_EQ(whole, text({{"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05}}));
  EXPECT_NE(whole, text({{"temperature", 1}, {"top_k", 0}, {"top_p", 1}, {"min_p", 0}}));
  EXPECT_EQ(text({{"temperature", 0}}), text({{"temperature", -1}, {"seed", 5}}));
  EXPECT_EQ(text({{"top_k", -1}}), text({{"top_k", 0}}));
}

TEST_F(SamplingTest, EachApisNamesMeanTheSame) {
  const std::string penalized = text({{"repeat_penalty", 1.3}, {"repeat_last_n", 20}});
  EXPECT_NE(penalized, text(Json::object()));
  EXPECT_EQ(penalized, text({{"repetition_penalty", 1.3}, {"repeat_last_n", 20.0}}));
  EXPECT_EQ(penalized, text({{"repeat_penalty", 1.3}, {"repetition_penalty", 1.3}, {"penalty_last_n", 20}}));
  EXPECT_EQ(text({{"typical_p", 0.3}}), text({{"typical", 0.3}}));
  EXPECT_EQ(text({{"logit_bias", {{"300", -100}, {"301", 5}}}}),
            text({{"logit_bias", Json::array({Json::array({300, false}), Json::array({301, 5})})}}));
  // Ollama's.
  const Json options = {{"seed", 3},     {"num_predict", 30}, {"repeat_penalty", 1.3}, {"repeat_last_n", 20},
                        {"mirostat", 2}, {"mirostat_tau", 3}, {"typical_p", 0.9}};
  const Json ollama = {{"prompt", "Once"}, {"stream", false}, {"raw", true}, {"options", options}};
  Json ours = {{"prompt", "Once"}};
  ours.update(options);
  EXPECT_EQ(running_.answer("/api/generate", ollama)["response"],
            text_of(running_.answer(
                kText, ours.patch(Json::array({{{"op", "move"}, {"from", "/num_predict"}, {"path", "/n_predict"}}})))));
}

TEST_F(SamplingTest, EachSamplerChangesTheText) {
  const std::string whole = text(Json::object());
  for (const Json& more :
       {Json{{"typical_p", 0.1}}, Json{{"top_n_sigma", 0.1}}, Json{{"min_p", 0.9}},
        Json{{"xtc_probability", 1}, {"xtc_threshold", 0.01}}, Json{{"dynatemp_range", 0.8}}, Json{{"mirostat", 1}},
        Json{{"mirostat", 2}}, Json{{"presence_penalty", 1.5}}, Json{{"frequency_penalty", 1.5}},
        Json{{"dry_multiplier", 5}, {"dry_allowed_length", 0}, {"dry_sequence_breakers", Json::array()}},
        Json{{"samplers", {"temperature"}}}, Json{{"samplers", "t"}}, Json{{"seed", 4}}})
    EXPECT_NE(text(more), whole) << more;
  EXPECT_EQ(text({{"samplers", "edskypmxt"}}), whole);
  EXPECT_NE(text({{"seed", -1}}), text({{"seed", -1}}));
}

TEST_F(SamplingTest, StopTokensAndMinTokens) {
  const auto words = served_vocabulary();
  const Json greedy = {{"temperature", 0}};
  const std::string whole = text(greedy);
  const auto tokens = words->tokenize(whole, false, false);
  const TokenId stop = tokens.at(12);
  Json body = {{"prompt", "Once upon a time"},
               {"max_tokens", 40},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stop_token_ids", {stop}}};
  const Json stopped = running_.answer(kText, body);
  EXPECT_EQ(stopped["choices"][0]["finish_reason"], "stop");
  EXPECT_LT(stopped["usage"]["completion_tokens"], 15);
  EXPECT_TRUE(whole.starts_with(text_of(stopped)));
  body["min_tokens"] = 30;
  const Json later = running_.answer(kText, body);
  EXPECT_GE(later["usage"]["completion_tokens"], 30);
  EXPECT_TRUE(text_of(later).starts_with(text_of(stopped)));
}

// llama-server's -1: no limit but the trained context.
TEST_F(SamplingTest, MaxTokensMinusOneEndsWithTheContext) {
  const int context = served_vocabulary()->trained_context();
  ASSERT_EQ(context, served_model()->hyper().trained_context);
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    const Json answer =
        running_.answer(kText, {{"prompt", "Once"}, {name, -1}, {"ignore_eos", true}, {"temperature", 0}});
    EXPECT_EQ(answer["usage"]["total_tokens"], context) << name;
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  }
}

TEST_F(SamplingTest, RefusalsNameTheField) {
  const auto refused = [&](const Json& more, const std::string& param, const std::string& part) {
    Json body = {{"prompt", "x"}, {"max_tokens", 5}};
    body.update(more);
    const auto answer = running_.post(kText, body);
    ASSERT_EQ(answer->status, 400) << more;
    const Json error = Json::parse(answer->body)["error"];
    EXPECT_EQ(error["param"], param) << error;
    EXPECT_NE(error["message"].get<std::string>().find(part), std::string::npos) << error;
  };
  for (const SamplerField& field : sampler_fields())
    for (const char* name : {field.name, field.alias}) {
      if (name == nullptr) continue;
      refused({{name, "hot"}}, name, "must be a");
      refused({{name, field.max * 2 + 1}}, name, name);
      if (std::holds_alternative<int SamplerOptions::*>(field.member)) refused({{name, 1.5}}, name, "a whole number");
    }
  refused({{"repeat_penalty", 1.1}, {"repetition_penalty", 1.2}}, "repetition_penalty", "mean the same, and differ");
  refused({{"repeat_last_n", 200'000}}, "repeat_last_n", "at most 131072");
  refused({{"n_predict", 6}}, "n_predict", "another name");
  refused({{"seed", -2}}, "seed", "a whole number from -1");
  refused({{"min_tokens", 6}}, "min_tokens", "'max_tokens' 5");
  refused({{"min_tokens", 1}, {"grammar", "root ::= \"a\""}}, "min_tokens", "with a grammar");
  refused({{"stop_token_ids", 5}}, "stop_token_ids", "must be a list");
  refused({{"stop_token_ids", {"a"}}}, "stop_token_ids", "no token");
  refused({{"stop_token_ids", {1 << 30}}}, "stop_token_ids", "no token");
  refused({{"dry_sequence_breakers", {1}}}, "dry_sequence_breakers", "list of texts");
  refused({{"dry_sequence_breakers", {std::string(41, 'x')}}}, "dry_sequence_breakers", "41 bytes");
  refused({{"samplers", {"top_k", "best"}}}, "samplers", "no sampler 'best'");
  refused({{"samplers", {"top_k", "top_k"}}}, "samplers", "twice");
  refused({{"logit_bias", {1}}}, "logit_bias", "pairs");
  refused({{"logit_bias", {{"1", true}}}}, "logit_bias", "'logit_bias.1'");
}

TEST(ServerSampling, ServersDefaultsAreInPropsAndInAnswers) {
  ServerSetup setup;
  setup.sampling = {.temperature = 0, .repeat_penalty = 1.2F, .seed = 9};
  Running server(setup);
  const Json props = Json::parse(server.client().Get("/props")->body);
  const Json& params = props["default_generation_settings"]["params"];
  EXPECT_EQ(params["temperature"], 0);
  EXPECT_EQ(params["repeat_penalty"], 1.2);  // not the double of 1.2F
  EXPECT_EQ(params["top_k"], 40);
  EXPECT_EQ(params["seed"], 9);
  EXPECT_EQ(params["max_tokens"], 1024);
  EXPECT_EQ(params["samplers"][3], "top_k");
  EXPECT_EQ(params["dry_sequence_breakers"].size(), 4u);
  const auto text = [&](Json more) {
    more.update({{"prompt", "Once upon a time"}, {"max_tokens", 30}});
    return text_of(server.answer(kText, more));
  };
  EXPECT_EQ(text(Json::object()), text({{"temperature", 0}, {"repeat_penalty", 1.2}}));
  EXPECT_NE(text(Json::object()), text({{"repeat_penalty", 1}}));
}

}  // namespace
}  // namespace palimpsest::testing
