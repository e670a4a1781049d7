// Grammars: allowed tokens, against libllama's matcher; refused grammars, with their line.
#include <gtest/gtest.h>
#include <llama.h>

#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/grammar/matcher.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"
#include "tests/text/spell.h"

namespace palimpsest::testing {
namespace {

struct Named {
  const char* name;
  const char* text;
};

constexpr Named kGrammars[] = {
    {"json", R"gbnf(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)gbnf"},
    {"arithmetic", R"gbnf(
root  ::= (expr "=" ws term "\n")+   # equations
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
)gbnf"},
    {"list", "root ::= item+\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\""},
    {"chess", R"gbnf(
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
)gbnf"},
    {"japanese",
     "root ::= jp+ ([ \\t\\n] jp+)*\njp ::= hira | kata | punct | cjk\nhira ::= [ぁ-ゟ]\nkata ::= [ァ-ヿ]\n"
     "punct ::= [、-〾]\ncjk ::= [一-鿿]"},
    {"alternatives that begin alike", R"(root ::= "true" | "tru" "th" | "tree" | [a-t]{2,5} "." | "t" .{3} "!")"},
    {"repetitions", R"(root ::= ("ab"{2} "c"{1,3} | "d"{0,2} "e"+ "f"* "g"?){1,4} ("x" | "y" ("z" | ""))* "."  )"},
    {"everything", "root ::= .*"},
    {"not", R"(root ::= [^a-m ] ([^\u0080-\U0010FFFF] | "é" | "🙂")*)"},
    {"nested", R"g(root ::= "(" root ")" root | [a-z ] | "")g"},
};

// libllama's vocabulary of the same file.
class Oracle {
 public:
  Oracle(const std::string& path, const char* grammar) {
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    model_ = llama_model_load_from_file(path.c_str(), params);
    sampler_ = llama_sampler_init_grammar(llama_model_get_vocab(model_), grammar, "root");
  }
  ~Oracle() {
    llama_sampler_free(sampler_);
    llama_model_free(model_);
  }
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;
  bool is_there() const { return sampler_ != nullptr; }
  void accept(TokenId token) { llama_sampler_accept(sampler_, token); }
  std::vector<bool> allowed(int size) {
    std::vector<llama_token_data> data;
    for (TokenId token = 0; token < size; ++token) data.push_back({token, 0, 0});
    llama_token_data_array array{data.data(), data.size(), -1, false};
    llama_sampler_apply(sampler_, &array);
    std::vector<bool> out(data.size());
    for (const auto& each : data) out[static_cast<std::size_t>(each.id)] = !std::isinf(each.logit);
    return out;
  }

 private:
  llama_model* model_;
  llama_sampler* sampler_;
};

void expect_what_libllama_allows(const std::string& path) {
  const auto words = Vocabulary::load(path);
  std::vector<std::uint8_t> allowed(static_cast<std::size_t>(words->size()));
  for (const auto& [name, text] : kGrammars) {
    SCOPED_TRACE(std::string(name) + " with " + path);
    Oracle oracle(path, text);
    ASSERT_TRUE(oracle.is_there());
    GrammarMatcher matcher(std::make_shared<const GrammarRules>(compile_grammar(text, nullptr)), words->token_texts());
    std::mt19937 random(5);
    std::string text_so_far;
    const int steps = words->size() < 10000 ? 60 : 12;  // libllama is slow
    for (int step = 0; step < steps; ++step) {
      const std::vector<bool> expected = oracle.allowed(words->size());
      matcher.allowed(allowed);
      std::vector<TokenId> fine;
      bool end = false;
      for (TokenId token = 0; token < words->size(); ++token) {
        const auto i = static_cast<std::size_t>(token);
        if (words->is_end(token)) {
          end = true;
          EXPECT_EQ(matcher.allows_end(), expected[i]) << "at an end, step " << step;
        } else if (words->piece(token).empty()) {  // a control token: libllama treats its name as text
          EXPECT_EQ(allowed[i], 0);
        } else if (words->piece(token).find('\0') != std::string::npos) {  // libllama ends texts at NUL
          continue;
        } else {
          // libllama refuses a partial character if any of its completions is refused, and accepts invalid UTF-8.
          Utf8Stream characters;
          const bool ill_formed =
              characters.put(text_so_far + words->piece(token)).find(kReplacement) != std::string::npos;
          const bool inside = !characters.finish().empty();
          const bool same = (allowed[i] != 0) == expected[i] || (allowed[i] != 0 ? inside : ill_formed);
          ASSERT_TRUE(same) << "token '" << words->piece(token) << "' in step " << step << " after '" << text_so_far
                            << "', " << int{allowed[i]} << " instead of " << expected[i];
          if (step % 10 == 0 && matcher.allows(token) != (allowed[i] != 0)) FAIL() << "allows()";
          if (expected[i] && allowed[i] != 0) fine.push_back(token);
        }
      }
      EXPECT_TRUE(end);
      if (fine.empty()) break;
      const TokenId token = fine[random() % fine.size()];
      matcher.accept(token);
      oracle.accept(token);
      text_so_far += words->piece(token);
      if (step % 7 == 3) {  // save and restore
        GrammarMatcher copy(std::make_shared<const GrammarRules>(compile_grammar(text, nullptr)), words->token_texts());
        copy.restore(matcher.save());
        EXPECT_EQ(copy.save(), matcher.save());
        matcher.restore(copy.save());
      }
    }
  }
}

TEST(Grammar, AllowsWhatLibllamaAllows) {
  expect_what_libllama_allows(default_model());
}

TEST(Grammar, AllowsWhatLibllamaAllowsWithOtherVocabularies) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "libllama's matcher takes minutes";
#endif
  const auto dir = shared_dir();
  const auto stories = stories260k();
  if (!dir || !stories) GTEST_SKIP() << "needs shared/models/stories260K and shared/vocab (set PALIMPSEST_SHARED)";
  expect_what_libllama_allows(*stories);
  for (const char* name : {"ggml-vocab-llama-spm.gguf", "ggml-vocab-deepseek-coder.gguf"})
    expect_what_libllama_allows((*dir / "vocab" / name).string());
}

bool matches(const char* grammar, const std::string& text) {
  const auto words = Vocabulary::load(default_model());
  GrammarMatcher matcher(std::make_shared<const GrammarRules>(compile_grammar(grammar, words.get())),
                         words->token_texts());
  for (const TokenId token : spell(*words, text)) {
    if (!matcher.allows(token)) return false;
    matcher.accept(token);
  }
  return matcher.allows_end();
}

// Grammars that libllama refuses, or on which it does not end.
TEST(Grammar, RepeatsPartsThatMayBeEmpty) {
  EXPECT_TRUE(matches(R"(root ::= ("a"? "b"?)* "c")", "abbac"));
  EXPECT_TRUE(matches(R"(root ::= (("a"*)*)* "c")", "c"));
  EXPECT_FALSE(matches(R"(root ::= (("a"*)*)* "c")", "ab"));
  EXPECT_TRUE(matches("root ::= a \"c\"\na ::= \"b\" a | a2\na2 ::= \"\" | a3\na3 ::= \"x\"", "bbc"));
  EXPECT_TRUE(matches(R"(root ::= ("a"{0,300}){0,3} "c")", "aaac"));
}

TEST(Grammar, TakesTokensByNumberAndName) {
  const auto words = Vocabulary::load(default_model());
  const TokenId token = spell(*words, "a").front();
  const std::string number = std::to_string(token);
  EXPECT_TRUE(matches(("root ::= <[" + number + "]>").c_str(), words->piece(token)));
  EXPECT_FALSE(matches(("root ::= !<[" + number + "]>").c_str(), words->piece(token)));
  EXPECT_FALSE(matches(("root ::= <[" + std::to_string(token + 1) + "]>").c_str(), words->piece(token)));
  EXPECT_TRUE(matches(("root ::= (!<[" + number + "]>)* \".\"").c_str(), "bcd."));
}

TEST(Grammar, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= \"a\"{5,2}", "{5,2} ends below its beginning"},
      {"root ::= \"a\"\n\nx ::= \"b\" )", "line 3: this ')' closes nothing"},
      {"root ::= (\n\"a\"", "line 1: this '(' is never closed"},
      {"root ::= \"a", "this '\"' is never closed"},
      {"root ::= [a-", "this '[' is never closed"},
      {"root ::= [z-a]", "ends before it begins"},
      {"root ::= []", "empty brackets"},
      {"root ::= *", "nothing before this repetition"},
      {"root ::= \"a\"{4000000000}", "too many"},
      {"root ::= \"a\"{1,99999999999999999999999999}", "too many"},
      {"root ::= \"\\q\"", "no such escape"},
      {"root ::= \"\\x4\"", "hexadecimal"},
      {"root ::= \"\\UFFFFFFFF\"", "U+FFFFFFFF is no character"},
      {"root = \"a\"", "'::=' is expected after 'root', not '='"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule 'root' is defined a second time"},
      {"root ::= <[5]>", "synthetic models have none"},
      {"root ::= a\na ::= a \"x\" | \"y\"", "line 1: the rule 'a' comes back to itself"},
      {"root ::= e root \"a\" | \"b\"\ne ::= f\nf ::= \"\" | \"c\"", "left recursive"},
      {"root ::= _a", "'_' is not expected"},
  };
  for (const auto& [text, part] : cases) {
    const std::string what = error_of([&] { compile_grammar(text, nullptr); });
    EXPECT_NE(what.find(part), std::string::npos) << text << "\n" << what;
  }
  const auto words = Vocabulary::load(default_model());
  EXPECT_NE(error_of([&] { compile_grammar("root ::= <[99999999]>", words.get()); }).find("has no token 99999999"),
            std::string::npos);
}

// Prints times; the limits are tested with hostile grammars.
TEST(Grammar, IsQuick) {
  using Clock = std::chrono::steady_clock;
  std::vector<std::string> paths = {default_model()};
  if (const auto dir = shared_dir(); dir) paths.push_back((*dir / "vocab/ggml-vocab-llama-spm.gguf").string());
  for (const std::string& path : paths) {
    const auto words = Vocabulary::load(path);
    words->token_texts();
    std::vector<std::uint8_t> allowed(static_cast<std::size_t>(words->size()));
    Oracle oracle(path, kGrammars[0].text);
    const auto start = Clock::now();
    GrammarMatcher matcher(std::make_shared<const GrammarRules>(compile_grammar(kGrammars[0].text, nullptr)),
                           words->token_texts());
    const auto compiled = Clock::now();
    for (const TokenId token : spell(*words, "{\"name\": \"")) {
      matcher.accept(token);
      oracle.accept(token);
    }
    const auto begin = Clock::now();
    matcher.allowed(allowed);
    const auto first = Clock::now();
    matcher.allowed(allowed);
    const auto second = Clock::now();
    oracle.allowed(words->size());
    const auto third = Clock::now();
    const auto ms = [](auto a, auto b) { return std::chrono::duration<double, std::milli>(b - a).count(); };
    std::printf(
        "%d tokens: compiled in %.2f ms; all tokens inside a string: %.2f ms, again %.2f ms; libllama %.2f ms\n",
        words->size(), ms(start, compiled), ms(begin, first), ms(first, second), ms(second, third));
    EXPECT_LT(matcher.bytes(), std::size_t{4} << 20);
  }
}

}  // namespace
}  // namespace palimpsest::testing
