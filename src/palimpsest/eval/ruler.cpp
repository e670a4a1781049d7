#include "palimpsest/eval/ruler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/eval/data.h"

namespace palimpsest {
namespace {

const std::vector<NeedleKind>& needles() {
  static const auto kinds = parse_needle_kinds(eval_data("ruler.json"), "ruler.json");
  return kinds;
}

// Fills `prompt.context` with the max n that fits.
template <typename Make>
void fit(RulerPrompt& prompt, const std::string& task, long long length, long long max, const Vocabulary& vocabulary,
         Make make) {
  const long long n = max_that_fit(vocabulary, max, length - prompt.tokens,
                                   [&](long long count) { return make(count) + prompt.question; });
  if (n < 0) fail("RULER's {} does not fit into {} tokens: ask for a greater --length", task, length);
  prompt.context = make(n);
}

// One chain of five variables among repeated sentences: VAR A = 12345, VAR B = VAR A, ...
RulerPrompt variable_tracking(long long length, const Vocabulary& vocabulary, Draw& draw) {
  constexpr int kHops = 4, kLetters = 5;
  constexpr long long kMax = 1 << 20;
  const std::string noise =
      "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n";
  const std::string value = std::to_string(10000 + draw.below(90000));
  RulerPrompt prompt;
  prompt.tokens = 30;
  std::set<std::string> names;
  while (prompt.answers.size() < kHops + 1) {
    std::string name;
    for (int i = 0; i < kLetters; ++i) name += static_cast<char>('A' + draw.below(26));
    if (names.insert(name).second) prompt.answers.push_back(name);
  }
  std::vector<std::string> chain = {fmt::format("VAR {} = {}\n", prompt.answers[0], value)};
  for (std::size_t i = 1; i <= kHops; ++i)
    chain.push_back(fmt::format("VAR {} = VAR {}\n", prompt.answers[i], prompt.answers[i - 1]));
  prompt.question = fmt::format(
      "\nQuestion: Find all variables that are assigned the value {} in the text above. Answer: According to the "
      "chain(s) of variable assignment in the text above, {} variables are assigned the value {}, they are:",
      value, kHops + 1, value);
  std::vector<double> depths;
  for (std::size_t i = 0; i < chain.size(); ++i) depths.push_back(static_cast<double>(draw.below(1000)) / 1000);
  std::ranges::sort(depths);
  fit(prompt, "vt", length, kMax, vocabulary, [&](long long n) {
    std::string text = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";
    std::size_t next = 0;
    for (long long i = 0; i <= n; ++i) {
      while (next < chain.size() && (i == n || static_cast<double>(i) >= depths[next] * static_cast<double>(n)))
        text += chain[next++];
      if (i < n) text += noise;
    }
    return text;
  });
  return prompt;
}

// A numbered list in which ten words occur often and the others seldom.
RulerPrompt common_words(long long length, const Haystack& haystack, const Vocabulary& vocabulary, Draw& draw) {
  constexpr std::size_t kCommon = 10;
  constexpr long long kLong = 4096;
  const std::size_t often = length < kLong ? 6 : 30, seldom = length < kLong ? 1 : 3;
  std::vector<std::string> words = haystack.words();
  if (words.size() < 2 * kCommon)
    fail("{}: {} different words are too few for RULER's cwe: name more text with --haystack", haystack.name(),
         words.size());
  draw.shuffle(words);
  RulerPrompt prompt;
  prompt.tokens = 120;
  prompt.answers.assign(words.begin(), words.begin() + kCommon);
  prompt.question =
      "\nQuestion: What are the 10 most common words in the above list? Answer: The top 10 words that appear most "
      "often "
      "in the list are:";
  const std::uint64_t order = draw.below(1U << 30U);
  const auto make = [&](long long n) {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < kCommon + static_cast<std::size_t>(n); ++i)
      list.insert(list.end(), i < kCommon ? often : seldom, words[i]);
    Draw same(order);
    same.shuffle(list);
    std::string text =
        "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
        "appear most often.\n";
    for (std::size_t i = 0; i < list.size(); ++i) text += fmt::format("{}{}. {}", i == 0 ? "" : " ", i + 1, list[i]);
    return text;
  };
  const auto max = static_cast<long long>(words.size() - kCommon);
  fit(prompt, "cwe", length, max, vocabulary, make);
  return prompt;
}

}  // namespace

std::vector<std::string> ruler_tasks() {
  std::vector<std::string> names;
  for (const NeedleKind& kind : needles()) names.push_back(kind.name);
  names.insert(names.end(), {"vt", "cwe"});
  return names;
}

RulerPrompt make_ruler(const std::string& task, long long length, const Haystack& haystack,
                       const Vocabulary& vocabulary, Draw& draw) {
  if (task == "vt") return variable_tracking(length, vocabulary, draw);
  if (task == "cwe") return common_words(length, haystack, vocabulary, draw);
  for (const NeedleKind& kind : needles()) {
    if (kind.name != task) continue;
    const double depth = static_cast<double>(draw.below(1001)) / 1000;
    NeedlePrompt made = make_needle(kind, {length, depth, 1}, haystack, vocabulary, draw);
    return {made.context, made.questions.front(), made.answers, kind.tokens};
  }
  fail("unknown RULER task '{}': use {}", task, fmt::join(ruler_tasks(), ", "));
}

double ruler_score(std::string_view prediction, const std::vector<std::string>& answers) {
  const std::string said = lower_case(prediction);
  double found = 0;
  for (const std::string& answer : answers) found += said.find(lower_case(answer)) != std::string::npos ? 1 : 0;
  return answers.empty() ? 0 : found / static_cast<double>(answers.size());
}

}  // namespace palimpsest
