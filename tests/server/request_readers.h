// Readers of requests without a server.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/server/request/completion_request.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {

inline ServedModel model_of_readers() {
  return {.vocabulary = served_vocabulary(),
          .name = "stories",
          .chat_template = ChatTemplate::load(served_vocabulary(), "chatml", false),
          .method = parse_method("streaming:budget=128"),
          .width = served_model()->hyper().width,
          .trained_context = served_model()->hyper().trained_context};
}

// A field's path, and members of the body that make it wrong.
using WrongFields = std::vector<std::pair<const char*, Json>>;

// The errors of `read` name the fields, both as `param` and in the message: clients of some APIs see only the message.
inline void expect_named(const std::function<void(const Json&)>& read, const Json& good, const WrongFields& wrong) {
  EXPECT_NO_THROW(read(good)) << good;
  for (const auto& [field, more] : wrong) {
    Json body = good;
    for (const auto& [name, value] : more.items()) body[name] = value;
    try {
      read(body);
      ADD_FAILURE() << field << ": no error for " << more;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 400) << field;
      EXPECT_EQ(error.json()["error"]["param"], field) << error.what();
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << field << ": an error without a field: " << error.what();
    }
  }
}

inline std::string error_of(const std::function<void(const Json&)>& read, Json good, const Json& more) {
  good.update(more);
  try {
    read(good);
    return {};
  } catch (const ApiError& error) {
    return error.what();
  }
}

// Fields of this engine, which all APIs have.
inline const WrongFields kWrongEngineFields = {
    {"cache", {{"cache", "nonsense"}}},
    {"cache", {{"cache", 1}}},
    {"cache", {{"cache", {{"method", "h2o"}, {"budget", 0}}}}},
    {"cache.method", {{"cache", {{"method", "nonsense"}}}}},
    {"cache.budget", {{"cache", {{"budget", "many"}}}}},
    {"cache.nonsense", {{"cache", {{"nonsense", 1}}}}},
    {"cache.split", {{"cache", {{"split", Json::array()}}}}},
    {"cache_prompt", {{"cache_prompt", 1}}},
    {"session", {{"session", "s"}}},
    {"session.save", {{"session", {{"save", "../s"}}}}},
    {"session.wrong", {{"session", {{"wrong", 1}}}}},
    {"memory_events", {{"stream", true}, {"memory_events", 1}}},
    {"memory_events", {{"stream", false}, {"memory_events", true}}},
    {"memory_events.layer", {{"stream", true}, {"memory_events", {{"layer", -1}}}}},
    {"speculative.type", {{"speculative", {{"type", "model"}}}}},
    {"speculative.max", {{"speculative", {{"max", 0}}}}},
    {"wrong", {{"wrong", 1}}},
};

// Options of samplers, which all APIs have; those of Ollama are in "options".
inline const WrongFields kWrongSampling = {
    {"temperature", {{"temperature", 5000}}},
    {"temperature", {{"temperature", "hot"}}},
    {"top_p", {{"top_p", 2}}},
    {"penalty_last_n", {{"penalty_last_n", 200'000}}},
    {"repetition_penalty", {{"repeat_penalty", 1.1}, {"repetition_penalty", 1.2}}},
    {"seed", {{"seed", -2}}},
    {"samplers", {{"samplers", {"best"}}}},
    {"samplers", {{"samplers", {"top_k", "top_k"}}}},
    {"logit_bias", {{"logit_bias", {{"cat", 1}}}}},
    {"logit_bias", {{"logit_bias", {{"1", "many"}}}}},
    {"logit_bias", {{"logit_bias", {{"2000000", 1}}}}},
    {"stop_token_ids", {{"stop_token_ids", "x"}}},
    {"dry_sequence_breakers", {{"dry_sequence_breakers", {1}}}},
    {"dry_sequence_breakers", {{"dry_sequence_breakers", {""}}}},
    {"min_tokens", {{"min_tokens", -1}}},
    {"min_tokens", {{"min_tokens", 1LL << 40}}},
};

inline Json function_tool(const std::string& name) {
  return {{"type", "function"}, {"function", {{"name", name}, {"parameters", {{"type", "object"}}}}}};
}

}  // namespace palimpsest::testing
