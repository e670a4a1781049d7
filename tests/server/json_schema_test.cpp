// JSON schemas as grammars: supported and refused keywords; libllama accepts the grammars.
#include "palimpsest/server/request/json_schema.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>

#include "palimpsest/text/sampler.h"
#include "tests/server/server_fixture.h"

namespace palimpsest::testing {
namespace {

// The grammar of a schema in strict mode, with the rule `root`.
std::string schema_grammar(const Json& schema) {
  return compiled_schema(schema, "response_format.json_schema.schema", {})->grammar;
}

// Whether a grammar allows a text, fed to the sampler token by token.
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
  // The tokenizer may put a space before a text, which a grammar forbids; the first case checks that it does not here.
  const std::vector<Case> cases = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"]})",
       {R"({"b":true})", R"({"a":-3,"b":false})", R"({"a": 0, "b": true})"},
       {R"({})", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":1})", R"({"a":01,"b":true})", R"({"b":true,})",
        R"({"b":true,"c":1})", R"( {"b":true})", R"({"b":  true})"}},
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
      {R"({"type":"integer","minimum":3,"maximum":12})", {"3", "9", "12"}, {"2", "13", "-3", "120"}},
      {R"({"type":"integer","exclusiveMinimum":-2})", {"-1", "0", "77"}, {"-2", "-10"}},
      {R"({"oneOf":[{"type":"null"},{"type":"string","pattern":"^[a-c]{2}$"}]})",
       {"null", R"("ab")"},
       {R"("ad")", R"("abc")"}},
      {R"({"type":"array","items":true,"maxItems":1})", {"[]", R"(["x"])"}, {"[1,2]"}},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}}})", {"{}", R"({"a":{"a":{}}})"}, {R"({"a":1})"}},
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["next"]}}})",
       {R"({"next":null})", R"({"next":{"next":null}})"},
       {R"({"next":1})", "null"}},
  };
  for (const Case& each : cases) {
    const std::string grammar = schema_grammar(Json::parse(each.schema));
    for (const char* text : each.yes) EXPECT_TRUE(allows(grammar, text)) << text << "\n" << grammar;
    for (const char* text : each.no) EXPECT_FALSE(allows(grammar, text)) << text << "\n" << grammar;
  }
}

TEST(JsonSchema, RefusesWhatItDoesNotKnowByName) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"string","pattern":"^(a)\\1$"})", "schema.pattern: the regular expression has a back reference"},
      {R"({"type":"integer","multipleOf":0})", "multipleOf"},
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})", "uniqueItems"},
      {R"({"oneOf":[]})", "oneOf"},
      {R"({"oneOf":[{"properties":{"a":{}}},{"patternProperties":{"a":true}}]})", "not disjoint"},
      {R"({"not":{"propertyNames":{"maxLength":3}}})", "schema.not"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "no value is valid"},
      {R"({"type":"integer","minimum":1e300})", "too many digits"},
      {R"({"type":"text"})", "none of object"},
      {R"({"$ref":"#/$defs/x"})", "leads nowhere"},
      {R"({"$ref":"file:///etc/passwd"})", "leads nowhere"},
      {R"({"enum":[]})", "at least one"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "no value is valid"},
      {R"(["a"])", "JSON object"},
      {R"(false)", "no value is valid"},
      {R"({"properties":null})", "schema.properties: it must be an object"},
      {R"({"properties":{"a":{"required":true}}})", "schema.properties.a.required"},
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

// Compiles a schema as the server does before it queues a request. Returns the Error's or ApiError's message; "" if it
// is accepted.
std::string outcome(const Json& schema) {
  const auto words = served_vocabulary();
  try {
    const std::string grammar = schema_grammar(schema);
    Sampler sampler({.temperature = 0, .grammar = grammar}, words.get(), words->size());
    std::vector<float> logits(static_cast<std::size_t>(words->size()), 0);
    for (int i = 0; i < 5; ++i)
      if (words->is_end(sampler.sample(logits))) break;
  } catch (const ApiError& error) {
    return error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json nested(int depth, const std::function<Json(Json)>& level) {
  Json out = {{"type", "null"}};
  for (int i = 0; i < depth; ++i) out = level(std::move(out));
  return out;
}

TEST(JsonSchema, HostileSchemasAreRefusedSoon) {
  const auto properties = [](int count, const Json& each) {
    Json all = Json::object();
    auto& object = all.get_ref<Json::object_t&>();
    for (int i = 0; i < count; ++i) object.emplace_back("p" + std::to_string(i), each);
    return all;
  };
  const auto list = [](int count, const Json& each) { return Json(std::vector<Json>(count, each)); };
  Json names = Json::array();
  for (int i = 0; i < 30000; ++i) names.push_back("p" + std::to_string(i));
  Json chain = Json::object();
  for (int i = 0; i < 9000; ++i)
    chain.get_ref<Json::object_t&>().emplace_back("d" + std::to_string(i),
                                                  Json{{"$ref", "#/$defs/d" + std::to_string(i + 1)}});
  const Json array = {{"type", "array"}};
  const std::vector<std::pair<const char*, Json>> cases = {
      {"many properties", {{"type", "object"}, {"properties", properties(30000, {{"type", "string"}})}}},
      {"many required",
       {{"type", "object"}, {"properties", properties(30000, {{"type", "null"}})}, {"required", names}}},
      {"nested lists of types", nested(60,
                                       [&](Json in) {
                                         return Json{{"type", list(60, "array")}, {"items", in}, {"maxItems", 0}};
                                       })},
      {"nested types", nested(60,
                              [&](Json in) {
                                return Json{{"type", list(2, "array")}, {"items", in}, {"maxItems", 5}};
                              })},
      {"nested objects of types", nested(60,
                                         [&](Json in) {
                                           return Json{{"type", list(2, "object")}, {"properties", {{"a", in}}}};
                                         })},
      {"wide and deep anyOf", nested(12,
                                     [&](Json in) {
                                       return Json{{"anyOf", list(3, in)}};
                                     })},
      {"nested repetitions",
       nested(60,
              [&](Json in) {
                return Json{{"type", "array"}, {"items", in}, {"minItems", 1000}, {"maxItems", 1000}};
              })},
      {"deep", nested(200,
                      [&](Json in) {
                        return Json{{"type", "array"}, {"items", in}};
                      })},
      {"a long enum", {{"enum", names}}},
      {"a long word", {{"const", std::string(4'000'000, 'x')}}},
      {"a long name", {{"type", "object"}, {"properties", {{std::string(4'000'000, 'x'), {{"type", "wrong"}}}}}}},
      {"a chain of references", {{"$ref", "#/$defs/d0"}, {"$defs", chain}}},
      {"a reference to itself", {{"$ref", "#"}}},
      {"references in a circle",
       {{"$ref", "#/$defs/a"}, {"$defs", {{"a", {{"$ref", "#/$defs/b"}}}, {"b", {{"$ref", "#/$defs/a"}}}}}}},
      {"an object of itself", {{"type", "object"}, {"properties", {{"a", {{"$ref", "#"}}}}}, {"required", {"a"}}}},
      {"huge bounds", {{"type", "string"}, {"minLength", 9007199254740993LL}}},
      {"many long strings",
       {{"type", "object"}, {"properties", properties(400, {{"type", "string"}, {"minLength", 999}})}}},
      {"many alternatives that begin alike", {{"anyOf", list(3000, array)}}},
  };
  served_vocabulary()->token_texts();
  for (const auto& [name, schema] : cases) {
    const auto start = std::chrono::steady_clock::now();
    const std::string what = outcome(schema);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
#ifdef PALIMPSEST_SANITIZED
    EXPECT_LT(seconds, 20) << name;
#else
    EXPECT_LT(seconds, 2) << name;  // in its own thread, beside other tests
#endif
    EXPECT_LT(what.size(), 3000u) << name;
    static const std::set<std::string> harmless = {
        "nested lists of types", "nested types",      "nested objects of types",           "nested repetitions",
        "huge bounds",           "many long strings", "many alternatives that begin alike"};
    EXPECT_EQ(what.empty(), harmless.contains(name)) << name << ": " << what;
  }
}

TEST(JsonSchema, ErrorsNameThePlace) {
  const auto place = [](const char* schema) { return outcome(Json::parse(schema)); };
  EXPECT_NE(place(R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"text"}}}})")
                .find("response_format.json_schema.schema.properties.a.items.type: \"text\""),
            std::string::npos);
  EXPECT_NE(place(R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"string","pattern":"("}}})")
                .find("schema.$defs.x.pattern"),
            std::string::npos);
}

// Schemas as sent by common tools and libraries.
TEST(JsonSchema, TakesSchemasOfTypicalTools) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"object","properties":{"location":{"type":"string","description":"City"},"unit":{"type":"string",
       "enum":["celsius","fahrenheit"]}},"required":["location"],"additionalProperties":false})",
       R"({"location":"Rome","unit":"celsius"})"},
      {R"({"$schema":"http://json-schema.org/draft-07/schema#","title":"Person","type":"object","properties":{"name":
       {"title":"Name","type":"string"},"age":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null},"tags":
       {"type":"array","items":{"type":"string"},"maxItems":5}},"required":["name"]})",
       R"({"name":"x","age":3,"tags":["a"]})"},
      {R"({"type":"object","properties":{"steps":{"type":"array","items":{"$ref":"#/$defs/Step"}},"final_answer":
       {"type":"string"}},"required":["steps","final_answer"],"$defs":{"Step":{"type":"object","properties":{
       "explanation":{"type":"string"},"output":{"type":"string"}},"required":["explanation","output"]}}})",
       R"({"steps":[{"explanation":"a","output":"b"}],"final_answer":"c"})"},
  };
  for (const auto& [schema, text] : cases) {
    const std::string grammar = schema_grammar(Json::parse(schema));
    EXPECT_TRUE(allows(grammar, text)) << text << "\n" << grammar;
    EXPECT_FALSE(allows(grammar, "[]"));
  }
}

}  // namespace
}  // namespace palimpsest::testing
