// Hostile grammars: each must be refused, or sampled from, in bounded time and memory.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

#ifdef PALIMPSEST_SANITIZED
constexpr double kMaxSeconds = 3;
#else
constexpr double kMaxSeconds = 0.1;  // the longest that another client may wait
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;
#endif

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string rules(int count, const char* last, auto body) {
  std::string out = "root ::= r0\n";
  for (int i = 0; i < count; ++i) out += "r" + std::to_string(i) + " ::= " + body("r" + std::to_string(i + 1)) + "\n";
  return out + "r" + std::to_string(count) + " ::= " + last + "\n";
}

std::vector<std::pair<std::string, std::string>> hostile_grammars() {
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&](const char* name, std::string text) { all.emplace_back(name, std::move(text)); };
  const auto times = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  add("reversed repetition", R"(root ::= "a"{5,2})");
  add("reversed repetition of a group", R"(root ::= ("a" | "b"){2000,1999} "c")");
  add("chained rules", rules(150000, R"("a")", [](std::string next) { return next; }));
  add("chained rules with a suffix", rules(20000, R"("a")", [](std::string next) { return next + " \"b\""; }));
  add("doubling", rules(60, R"("a")", [](std::string next) { return next + " | " + next; }));
  add("doubling stacks", rules(60, R"("a")", [](std::string n) { return n + " \"x\" | " + n + " \"y\""; }));
  add("doubling of empty parts", rules(40, R"("a"?)", [](std::string n) { return n + " " + n; }));
  add("nested brackets", "root ::= " + times("(", 200000) + "\"a\"" + times(")", 200000));
  add("brackets never closed", "root ::= " + times("(", 200000));
  add("nested repetition", "root ::= " + times("(", 30) + "\"a\"" + times("){1,1000}", 30));
  add("repeated repetition", "root ::= \"a\"" + times("{1000}", 12));
  add("a huge repetition", R"(root ::= "a"{4000000000})");
  add("a repetition beyond 64 bits", R"(root ::= "a"{99999999999999999999999999})");
  add("a negative repetition", R"(root ::= "a"{-1})");
  add("long literals repeated", "root ::= \"" + times("a", 100000) + "\"{1999}");
  add("left recursion", R"(root ::= root "a" | "a")");
  add("hidden left recursion", "root ::= e root \"a\" | \"b\"\ne ::= f\nf ::= \"\" | \"c\"");
  add("mutual left recursion", "root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\" | \"w\"");
  add("repeated empty part", R"(root ::= ("a"? "b"?)* "c")");
  add("repeated nothing", R"(root ::= ""* "a")");
  add("rules without a text", "root ::= a\na ::= b\nb ::= a");
  add("no end", R"(root ::= "a" root)");
  add("ambiguous repetition", R"(root ::= ([a-z ] | [a-z ] | [a-z ])* "0")");
  add("nested stars", R"(root ::= ((([a-z ]*)*)*)* "0")");
  add("ambiguous split", "root ::= " + times("[a-z ]* ", 200) + "\"0\"");
  add("exponential split", "root ::= w{0,500}\nw ::= [a-z ]{0,500} [a-z ]{0,500}");
  add("catalan", "root ::= s \"0\"\ns ::= \"a\" s s | [a-z ] s s | [a-z ]");
  add("many alternatives", "root ::= (" + times("\"a\" | ", 200000) + "\"b\")*");
  add("many alternatives of one letter", "root ::= (" + times("[a-z] | ", 2000) + "\"b\")*");
  add("a huge class", "root ::= [" + times("a-z0-9", 200000) + "]*");
  add("a huge name", "root ::= " + times("a", 1000000));
  add("many undefined names", [] {
    std::string out = "root ::= x";
    for (int i = 0; i < 100000; ++i) out += " u" + std::to_string(i);
    return out;
  }());
  add("a huge comment", "root ::= \"a\" #" + times("x", 4000000));
  add("cut off", "root ::= \"abc");
  add("cut off class", "root ::= [a-");
  add("cut off escape", "root ::= \"\\x");
  add("no character", "root ::= \"\\UFFFFFFFF\"");
  add("not UTF-8", "root ::= \"\xff\xfe\"");
  add("only garbage", times("\x01\x7f{[(", 1000));
  add("a token that is not there", "root ::= <[4000000000]>");
  add("a token beyond 64 bits", "root ::= <[99999999999999999999999]>");
  add("a token without an end", "root ::= <" + times("x", 100000));
  return all;
}

// Compiles a grammar, then samples, as the server does. `wanted` has the highest logit.
void use(const std::string& grammar, const Vocabulary& words, const std::string& wanted) {
  SamplerOptions options;
  options.temperature = 0;
  options.grammar = grammar;
  const auto start = Clock::now();
  const std::size_t before = resident_bytes();
  double slowest = 0;
  try {
    Sampler sampler(options, &words, words.size());
    std::vector<float> logits(static_cast<std::size_t>(words.size()), 0);
    for (const TokenId token : words.tokenize(wanted, false, false)) logits[static_cast<std::size_t>(token)] += 1;
    slowest = seconds_since(start);
    for (int i = 0; i < 30; ++i) {
      const auto begin = Clock::now();
      const TokenId token = sampler.sample(logits);
      slowest = std::max(slowest, seconds_since(begin));
      if (words.is_end(token)) break;
    }
  } catch (const Error&) {
    slowest = std::max(slowest, seconds_since(start) / 4);  // all steps together
  }
  if (slowest > kMaxSeconds) _exit(3);
#ifndef PALIMPSEST_SANITIZED
  if (resident_bytes() > before + kMaxBytes) _exit(4);
#else
  static_cast<void>(before);
#endif
}

// Runs in a child process, which may crash. "" on success.
std::string outcome(const std::string& grammar, const Vocabulary& words, const std::string& wanted) {
  const pid_t child = fork();
  if (child == 0) {
#ifndef PALIMPSEST_SANITIZED  // sanitizers reserve terabytes of addresses
    const rlimit memory{std::size_t{4} << 30, std::size_t{4} << 30};
    setrlimit(RLIMIT_AS, &memory);
#endif
    const rlimit none{0, 0}, time{5, 5};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &time);
    try {
      use(grammar, words, wanted);
    } catch (...) {
      _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  switch (WEXITSTATUS(status)) {
    case 0:
      return "";
    case 3:
      return "too slow";
    case 4:
      return "too much memory";
    default:
      return "exit " + std::to_string(WEXITSTATUS(status));
  }
}

void hurt(const std::string& model, std::initializer_list<const char*> wishes) {
  const auto words = Vocabulary::load(model);
  words->token_texts();
  for (const auto& [name, grammar] : hostile_grammars())
    for (const char* wanted : wishes) {
      const std::string what = outcome(grammar, *words, wanted);
      EXPECT_EQ(what, "") << name;
      if (!what.empty()) break;
    }
}

TEST(HostileGrammar, CostsLittleAndHurtsNobody) {
  hurt(default_model(), {"aaaa bbbb", "once upon a time 0 ((("});
}

// Tokens of many equal characters are the worst case of ambiguous grammars.
TEST(HostileGrammar, CostsLittleWithALargeVocabulary) {
  const auto dir = shared_dir();
  if (!dir) GTEST_SKIP() << "needs shared/vocab (set PALIMPSEST_SHARED)";
  hurt((*dir / "vocab" / "ggml-vocab-deepseek-coder.gguf").string(), {"aaaa                              ----"});
}

}  // namespace
}  // namespace palimpsest::testing
