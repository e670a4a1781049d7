// JSON Schema as grammars: every text that a grammar allows is valid, by the validator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/grammar/matcher.h"
#include "palimpsest/text/schema/compile.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/shared_dir.h"
#include "tests/text/spell.h"

namespace palimpsest::testing {
namespace {

using SchemaJson = nlohmann::ordered_json;

const std::shared_ptr<const TokenTexts>& small_texts() {
  static const auto texts = Vocabulary::load(default_model())->token_texts();
  return texts;
}

GrammarMatcher matcher_of(const std::string& schema) {
  const std::string grammar = compile_schema(SchemaJson::parse(schema), {}).grammar;
  return {std::make_shared<const GrammarRules>(compile_grammar(grammar, nullptr)), small_texts()};
}

bool grammar_has(const std::string& schema, const std::string& text) {
  GrammarMatcher matcher = matcher_of(schema);
  return matcher.accept(text) && matcher.allows_end();
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> yes, no;
};

TEST(Schema, AllowsValidTextsOnly) {
  const std::vector<SchemaCase> cases = {
      {R"({"type":"string","pattern":"^\\d{3}$"})", {R"("123")"}, {R"("12")", R"("1234")", R"("12a")", "123"}},
      {R"({"type":"string","pattern":"^\"a\\\\\"$"})", {R"("\"a\\\"")"}, {R"(""a\"")"}},
      {R"({"type":"string","pattern":"b"})", {R"("abc")", R"("b")", R"("é\nb")"}, {R"("ac")", R"("")"}},
      {R"({"type":"string","maxLength":2})",
       {R"("")", R"("éé")", R"("\u00e9\ud83d\ude00")"},
       {R"("abc")", R"("\ud83d")"}},
      {R"({"type":"string","minLength":200,"maxLength":5000})", {}, {R"("a")"}},
      {R"({"type":"string","format":"date"})", {R"("2024-01-31")"}, {R"("2024-02-30")", R"("x")"}},
      {R"({"type":"string","format":"unknown"})", {R"("x")"}, {}},
      {R"({"type":"integer","minimum":-5,"exclusiveMaximum":12})",
       {"-5", "-1", "0", "9", "11"},
       {"-6", "12", "120", "-0", "01", "1.0"}},
      {R"({"type":"integer","maximum":18446744073709551615,"minimum":18446744073709551614})",
       {"18446744073709551614", "18446744073709551615"},
       {"18446744073709551613", "18446744073709551616"}},
      {R"({"type":"number","minimum":0.5,"maximum":2})",
       {"0.5", "0.75", "1", "2.0", "1.999"},
       {"0.49", "2.01", "0", "-1", "1e0"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})", {"0.5", "0.001"}, {"0", "1", "0.0", "1.0"}},
      {R"({"type":"integer","multipleOf":7})", {"7", "0", "-14", "49"}, {"8", "1"}},
      {R"({"type":"number","multipleOf":0.25,"minimum":0})", {"0.5", "1.25", "3", "0.50"}, {"0.3", "0.26"}},
      {R"({"type":"number","not":{"type":"integer"}})", {"0.5", "-2.25"}, {"1", "1.0"}},
      {R"({"enum":["a",1,null],"not":{"const":1}})", {R"("a")", "null"}, {"1"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"const":7},"maxItems":3})",
       {"[7]", "[7,1,2]"},
       {"[]", "[1]"}},
      {R"({"type":"array","items":{"enum":["x","y","z"]},"uniqueItems":true,"minItems":1})",
       {R"(["x"])", R"(["x","z"])"},
       {"[]", R"(["x","x"])"}},
      {R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":false})",
       {"[]", "[null]", "[null,true]"},
       {"[true]", "[null,true,1]"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"},"properties":{"a":{"type":"null"}}})",
       {R"({"a":null,"b":1})", "{}", R"({"ab":2,"c":3})"},
       {R"({"a":1})", R"({"b":null})", R"({"\u0061":1})"}},
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x-a":1})"},
       {R"({"a":1})", R"({"x-a":"b"})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]$"},"additionalProperties":{"type":"null"}})",
       {R"({"a":null})"},
       {R"({"ab":null})"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"minProperties":2,"maxProperties":2})",
       {R"({"a":1,"b":2})", R"({"a":1,"c":2})", R"({"b":1,"c":2})"},
       {R"({"a":1})", "{}", R"({"a":1,"b":2,"c":3})"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"dependentRequired":{"a":["b"]}})",
       {"{}", R"({"b":1})", R"({"a":1,"b":1})"},
       {R"({"a":1})"}},
      {R"({"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k"]},
          {"properties":{"k":{"const":"b"},"y":{"type":"boolean"}},"required":["k"]}]})",
       {R"({"k":"a","x":1})", R"({"k":"b","y":true})"},
       {R"({"k":"a","y":true})", "{}"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"1.5"}, {"1"}},
      {R"({"$ref":"#/$defs/a~1b%20c","$defs":{"a/b c":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"properties":{"a":{"$ref":"#x"}},"$defs":{"n":{"$anchor":"x","type":"null"}}})",
       {R"({"a":null})"},
       {R"({"a":1})"}},
      {R"({"$id":"https://e.com/a.json","properties":{"a":{"$ref":"b.json#/$defs/c"}},"$defs":{"b":{"$id":"b.json","$defs":{"c":{"type":"null"}}}}})",
       {R"({"a":null})"},
       {R"({"a":1})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}}}],"properties":{"b":{"type":"null"}},"unevaluatedProperties":false})",
       {R"({"b":null,"a":1})", "{}"},
       {R"({"c":1})"}},
      {R"(true)", {"1", "{}", R"({"a": [1, "b"]})", R"("\"")"}, {" 1", "{ }", "01", R"("\x")"}},
  };
  for (const SchemaCase& each : cases) {
    const SchemaJson schema = SchemaJson::parse(each.schema);
    for (const char* text : each.yes) {
      EXPECT_TRUE(grammar_has(each.schema, text)) << text << "\n" << each.schema;
      EXPECT_TRUE(is_valid(SchemaJson::parse(text), schema)) << text << "\n" << each.schema;
    }
    for (const char* text : each.no) EXPECT_FALSE(grammar_has(each.schema, text)) << text << "\n" << each.schema;
  }
}

TEST(Schema, LenientEnforcesWhatItCanAndListsTheRest) {
  const auto lenient = [](const char* schema) {
    return compile_schema(SchemaJson::parse(schema), {.mode = SchemaMode::kLenient, .object = true});
  };
  const CompiledSchema one = lenient(
      R"({"type":"object","properties":{"a":{"type":"string","pattern":"^(a)\\1$"},"b":{"type":"any"}},"required":["a"],"oneOf":3})");
  ASSERT_EQ(one.dropped.size(), 3u);
  EXPECT_NE(one.dropped[0].find(".oneOf: it must be a list"), std::string::npos) << one.dropped[0];
  EXPECT_NE(one.grammar.find("\\\"a\\\""), std::string::npos);
  const CompiledSchema none = lenient("false");
  EXPECT_EQ(none.dropped.size(), 1u);
  EXPECT_EQ(none.grammar.substr(0, 4), "root");
  EXPECT_TRUE(lenient(R"({"type":"object"})").dropped.empty());
}

TEST(Schema, TheGrammarIsTheSameEachTime) {
  const SchemaJson schema = SchemaJson::parse(
      R"({"allOf":[{"properties":{"b":{"type":"integer"}}},{"properties":{"a":{"minimum":1},"b":{"maximum":4}}}],"required":["c"]})");
  const std::string first = compile_schema(schema, {}).grammar;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(compile_schema(SchemaJson(schema), {}).grammar, first);
}

// Random schemas of all keywords.
SchemaJson random_schema(std::mt19937& random, int depth) {
  const auto draw = [&](unsigned n) { return random() % n; };
  const auto word = [&] { return std::string(1 + draw(2), static_cast<char>('a' + draw(3))); };
  SchemaJson out = SchemaJson::object();
  if (depth == 0 && draw(4) == 0) return draw(8) > 0;
  static const std::vector<const char*> types = {"object", "array", "string", "number", "integer", "boolean", "null"};
  if (draw(4) > 0) out["type"] = types[draw(7)];
  const SchemaJson values = {1, 2.5, "a", "ab", nullptr, true, SchemaJson::array({1}), {{"a", 1}}};
  const unsigned keywords = 1 + draw(3);
  for (unsigned i = 0; i < keywords; ++i) switch (draw(20)) {
      case 0:
        out["enum"] = {values[draw(8)], values[draw(8)], values[draw(8)]};
        break;
      case 1:
        out["minimum"] = static_cast<int>(draw(20)) - 10;
        out["maximum"] = static_cast<int>(draw(30)) - 5;
        break;
      case 2:
        out["multipleOf"] = std::vector<double>{1, 2, 3, 0.5, 0.1}[draw(5)];
        break;
      case 3:
        out["pattern"] =
            std::vector<const char*>{"^a", "b$", "^[^\"]{2,5}$", "\\d", "^a*$|^\\\\$", "^(?!ab).{1,3}$"}[draw(6)];
        break;
      case 4:
        out["minLength"] = draw(4);
        out["maxLength"] = 2 + draw(5);
        break;
      case 5:
      case 6:
      case 7:
        for (unsigned k = 0; k < 3 && depth > 0; ++k) out["properties"][word()] = random_schema(random, depth - 1);
        if (draw(2) > 0) out["required"] = {word()};
        break;
      case 8:
        if (depth > 0) out["additionalProperties"] = random_schema(random, depth - 1);
        break;
      case 9:
        out["minProperties"] = draw(3);
        out["maxProperties"] = draw(5);
        break;
      case 10:
      case 11:
        if (depth > 0) out["items"] = random_schema(random, depth - 1);
        out["maxItems"] = draw(5);
        break;
      case 12:
        if (depth > 0) out["prefixItems"] = {random_schema(random, depth - 1), random_schema(random, depth - 1)};
        out["minItems"] = draw(3);
        break;
      case 13:
        if (depth > 0) out["contains"] = random_schema(random, depth - 1);
        break;
      case 14:
      case 15:
        if (depth > 0)
          out[std::vector<const char*>{"anyOf", "oneOf", "allOf"}[draw(3)]] = {random_schema(random, depth - 1),
                                                                               random_schema(random, depth - 1)};
        break;
      case 16:
        if (depth > 0) out["not"] = random_schema(random, depth - 1);
        break;
      case 17:
        if (depth > 0) {
          out["if"] = random_schema(random, depth - 1);
          out["then"] = random_schema(random, depth - 1);
          if (draw(2) > 0) out["else"] = random_schema(random, depth - 1);
        }
        break;
      case 18:
        out["patternProperties"] = {{"^" + word(), depth > 0 ? random_schema(random, depth - 1) : SchemaJson(true)}};
        break;
      default:
        out["propertyNames"] = {{"maxLength", 1 + draw(2)}};
    }
  return out;
}

// A random text of the grammar; "" if it has none of `length` bytes.
std::string random_text(GrammarMatcher& matcher, std::mt19937& random, std::size_t length) {
  const std::string likely = R"("\{}[]:,abd01259.-untrfels )";
  std::string text;
  while (text.size() < length) {
    if (matcher.allows_end() && (text.size() > length / 2 || random() % 3 == 0)) return text;
    std::string fine;
    for (const char c : likely) {
      GrammarMatcher next = matcher;
      if (next.accept(std::string_view(&c, 1))) fine += c;
    }
    if (text.size() > length / 2)  // ends what is open
      for (const char c : {'"', '}', ']'})
        if (fine.find(c) != std::string::npos) fine = c;
    if (fine.empty()) {
      const char other = static_cast<char>(' ' + random() % 95);
      if (matcher.accept(std::string_view(&other, 1))) text += other;
      if (random() % 400 == 0) return "";
      continue;
    }
    const char c = fine[random() % fine.size()];
    matcher.accept(std::string_view(&c, 1));
    text += c;
  }
  return "";
}

TEST(Schema, RandomTextsOfRandomSchemasAreValid) {
#ifdef PALIMPSEST_SANITIZED
  constexpr int kSchemas = 60;
#else
  constexpr int kSchemas = 500;
#endif
  std::mt19937 random(11);
  int compiled = 0, texts = 0;
  for (int i = 0; i < kSchemas; ++i) {
    const SchemaJson schema = random_schema(random, 2);
    std::string grammar;
    try {
      grammar = compile_schema(schema, {}).grammar;
    } catch (const SchemaError& error) {
      EXPECT_STRNE(error.what(), "");
      continue;
    }
    ++compiled;
    const auto rules = std::make_shared<const GrammarRules>(compile_grammar(grammar, nullptr));
    for (int k = 0; k < 5; ++k) {
      GrammarMatcher matcher(rules, small_texts());
      const std::string text = random_text(matcher, random, 80);
      if (text.empty()) continue;
      ++texts;
      const SchemaJson value = SchemaJson::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text << "\n" << schema << "\n" << grammar;
      EXPECT_TRUE(is_valid(value, schema)) << text << "\n" << schema << "\n" << grammar;
    }
  }
  EXPECT_GT(compiled, kSchemas / 3);
  EXPECT_GT(texts, compiled * 2);
}

TEST(Schema, HostileSchemasCostLittle) {
  std::vector<std::string> schemas = {
      R"({"pattern":"(a|b)*a(a|b){14}"})",
      R"({"pattern":"^((((((a{0,50}){0,50}){0,50}){0,50}){0,50}){0,50})$"})",
      R"({"pattern":")" + std::string(20000, '(') + "\"}",
      R"({"type":"integer","multipleOf":1999,"minimum":1,"maximum":1e15,"not":{"const":3998}})",
      R"({"minLength":999999999,"pattern":"^(ab|c)*$"})",
      R"({"minItems":999999999,"items":{"minItems":999999999}})",
  };
  std::string one = R"({"oneOf":[)", any = R"({"allOf":[)";
  for (int i = 0; i < 60; ++i) {
    one += fmt::format(R"({}{{"properties":{{"a{}":{{"type":"string"}}}}}})", i > 0 ? "," : "", i);
    any += fmt::format(R"({}{{"anyOf":[{{"required":["a{}"]}},{{"required":["b{}"]}},{{"required":["c{}"]}}]}})",
                       i > 0 ? "," : "", i, i, i);
  }
  schemas.push_back(one + "]}");
  schemas.push_back(any + "]}");
  for (const std::string& schema : schemas)
    for (const SchemaMode mode : {SchemaMode::kStrict, SchemaMode::kLenient}) {
      const auto start = std::chrono::steady_clock::now();
      try {
        const std::string grammar = compile_schema(SchemaJson::parse(schema), {.mode = mode}).grammar;
        compile_grammar(grammar, nullptr);
      } catch (const SchemaError&) {
        EXPECT_EQ(mode, SchemaMode::kStrict) << schema.substr(0, 100);
      }
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
#ifdef PALIMPSEST_SANITIZED
      EXPECT_LT(seconds, 30) << schema.substr(0, 100);
#else
      EXPECT_LT(seconds, 3) << schema.substr(0, 100);
#endif
    }
}

}  // namespace
}  // namespace palimpsest::testing
