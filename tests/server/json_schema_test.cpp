// Schemas as grammars: what is understood, what is refused by name, and that libllama can read the result.
#include "palimpsest/server/json_schema.h"

#include <gtest/gtest.h>

#include "palimpsest/text/sampler.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

// Whether a grammar allows a text: the sampler is led through it, token by token.
bool allows(const std::string& grammar, const std::string& text) {
  const auto words = served_vocabulary();
  Sampler sampler({.temperature = 0, .grammar = grammar}, words.get(), words->size());
  std::vector<float> logits(static_cast<std::size_t>(words->size()), 0);
  const auto wants = [&](TokenId token) {
    std::ranges::fill(logits, 0);
    logits[static_cast<std::size_t>(token)] = 100;
    return sampler.sample(logits) == token;
  };
  for (const TokenId token : words->tokenize(text, false, false))
    if (!words->piece(token).empty() && !wants(token)) return false;
  return wants(words->eos());
}

struct Case {
  const char* schema;
  std::vector<const char*> yes, no;
};

TEST(JsonSchema, AllowsWhatIsValidAndNothingElse) {
  // The model's tokenizer may put a space before a text, which a grammar forbids: so every text begins with a bracket
  // only if the tokens say so; checked by the first case.
  const std::vector<Case> cases = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"]})",
       {R"({"b":true})", R"({"a":-3,"b":false})", R"({ "a": 0, "b": true })"},
       {R"({})", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":1})", R"({"a":01,"b":true})", R"({"b":true,})",
        R"({"b":true,"c":1})"}},
      {R"({"properties":{"a":{"type":"null"},"b":{"type":"number"}}})",
       {R"({})", R"({"a":null})", R"({"b":1.5e3})", R"({"a":null,"b":2})"},
       {R"({,"b":2})", R"({"a":null "b":2})", R"({"b":1.})"}},
      {R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":2},"minItems":1,"maxItems":2})",
       {R"(["x"])", R"(["x","yz"])", R"(["\""])"},
       {R"([])", R"([""])", R"(["xyz"])", R"(["a","b","c"])", R"([1])"}},
      {R"({"type":"array","maxItems":1})", {"[]", "[1]", R"([{"a":[]}])"}, {"[1,2]"}},
      {R"({"type":["object","null"],"properties":{}})", {"{}", "null"}, {R"({"a":1})", "0"}},
      {R"({"type":"object"})", {"{}", R"({"a":{"b":[1,"c"]}})"}, {"[]", R"({"a"})"}},
      {R"({"enum":[{"k":[1,"\n"]},"q\"\\"]})", {R"({"k":[1,"\n"]})", R"("q\"\\")"}, {R"({"k":[1]})"}},
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["next"]}}})",
       {R"({"next":null})", R"({"next":{"next":null}})"},
       {R"({"next":1})", "null"}},
  };
  for (const Case& each : cases) {
    const std::string grammar = schema_grammar(Json::parse(each.schema));
    for (const char* text : each.yes) EXPECT_TRUE(allows(grammar, text)) << text << "\n" << grammar;
    for (const char* text : each.no) EXPECT_FALSE(allows(grammar, text)) << text << "\n" << grammar;
  }
  EXPECT_TRUE(allows(json_object_grammar(), R"({"a":[1,{"b":null}],"c":"d"})"));
  EXPECT_FALSE(allows(json_object_grammar(), "[1]"));
}

TEST(JsonSchema, RefusesWhatItDoesNotKnowByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"string","pattern":"a"})", "pattern"},
      {R"({"type":"integer","minimum":1})", "minimum"},
      {R"({"type":"object","patternProperties":{}})", "patternProperties"},
      {R"({"oneOf":[{}]})", "oneOf"},
      {R"({"type":"text"})", "none of object"},
      {R"({"type":"object","required":["a"]})", "'required' names"},
      {R"({"$ref":"#/$defs/x"})", "leads nowhere"},
      {R"({"$ref":"file:///etc/passwd"})", "leads nowhere"},
      {R"({"enum":[]})", "at least one"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "below"},
      {R"(["a"])", "JSON object"},
      {R"({"type":"array","items":false})", "JSON object"},
  };
  for (const auto& [schema, part] : cases) {
    try {
      const std::string grammar = schema_grammar(Json::parse(schema));
      ADD_FAILURE() << schema << " gave " << grammar;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 400);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace palimpsest::testing
