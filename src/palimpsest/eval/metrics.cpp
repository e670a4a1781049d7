#include "palimpsest/eval/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/python_text.h"

namespace palimpsest {
namespace {

using python::decode;
using Words = std::vector<std::u32string>;

bool is_punctuation(char32_t c) {  // string.punctuation
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

Words normal_words(std::string_view text) {
  std::u32string plain, out;
  for (const char32_t each : decode(text))
    if (const char32_t c = python::lower(each); !is_punctuation(c)) plain += c;
  for (std::size_t i = 0; i < plain.size();) {  // remove the words a, an, the
    std::size_t end = i;
    while (end < plain.size() && python::is_word(plain[end])) ++end;
    const auto word = std::u32string_view(plain).substr(i, end - i);
    out += word == U"a" || word == U"an" || word == U"the" ? std::u32string_view(U" ") : word;
    if (end < plain.size()) out += plain[end];
    i = end + 1;
  }
  return python::split(out);
}

// Splits a text at each full stop and collapses white space.
Words sentences_of(std::string_view text) {
  Words out;
  for (const std::u32string& part : python::split(decode(text), U'.')) {
    if (part.empty()) continue;
    std::u32string joined;
    for (const std::u32string& word : python::split(part)) joined += (joined.empty() ? U"" : U" ") + word;
    out.push_back(joined);
  }
  return out;
}

std::set<std::u32string> words_of(const Words& sentences) {
  std::set<std::u32string> out;
  for (const std::u32string& each : sentences)
    for (std::u32string& word : python::split(each, U' ')) out.insert(std::move(word));
  return out;
}

// Adds the words of a longest common subsequence. Ties: drops the last word of y.
void add_common(std::set<std::u32string>& common, const Words& x, const Words& y) {
  const std::size_t width = y.size() + 1;
  std::vector<int> table((x.size() + 1) * width);
  const auto at = [&](std::size_t i, std::size_t j) -> int& { return table[i * width + j]; };
  for (std::size_t i = 1; i <= x.size(); ++i)
    for (std::size_t j = 1; j <= y.size(); ++j)
      at(i, j) = x[i - 1] == y[j - 1] ? at(i - 1, j - 1) + 1 : std::max(at(i - 1, j), at(i, j - 1));
  for (std::size_t i = x.size(), j = y.size(); i > 0 && j > 0;) {
    if (x[i - 1] == y[j - 1]) {
      common.insert(x[i - 1]);
      --i, --j;
    } else if (at(i - 1, j) > at(i, j - 1)) {
      --i;
    } else {
      --j;
    }
  }
}

double share_of(const Words& numbers, const std::u32string& right) {
  if (numbers.empty()) return 0;
  return static_cast<double>(std::ranges::count(numbers, right)) / static_cast<double>(numbers.size());
}

using Metric = LongBenchTask::Metric;
constexpr LongBenchTask kTasks[] = {
    {"2wikimqa", Metric::kF1},
    {"dureader", Metric::kWordsCut},
    {"gov_report", Metric::kRougeL},
    {"hotpotqa", Metric::kF1},
    {"lcc", Metric::kCode, false, false},
    {"lsht", Metric::kClassification, true, false},
    {"multi_news", Metric::kRougeL},
    {"multifieldqa_en", Metric::kF1},
    {"multifieldqa_zh", Metric::kWordsCut},
    {"musique", Metric::kF1},
    {"narrativeqa", Metric::kF1},
    {"passage_count", Metric::kCount},
    {"passage_retrieval_en", Metric::kRetrieval},
    {"passage_retrieval_zh", Metric::kRetrievalZh},
    {"qasper", Metric::kF1},
    {"qmsum", Metric::kRougeL},
    {"repobench-p", Metric::kCode, false, false},
    {"samsum", Metric::kRougeL, true, false},
    {"trec", Metric::kClassification, true, false},
    {"triviaqa", Metric::kF1, true, false},
    {"vcsum", Metric::kWordsCut},
};

double one_score(const LongBenchTask& task, std::string_view prediction, const std::string& truth,
                 std::span<const std::string> classes) {
  switch (task.metric) {
    case Metric::kF1:
      return qa_f1(prediction, truth);
    case Metric::kRougeL:
      return rouge_l(prediction, truth);
    case Metric::kClassification:
      return classification(prediction, truth, classes);
    case Metric::kRetrieval:
      return retrieval(prediction, truth, "Paragraph ");
    case Metric::kRetrievalZh:
      return retrieval(prediction, truth, "段落");
    case Metric::kCount:
      return count_share(prediction, truth);
    case Metric::kCode:
      return code_similarity(prediction, truth);
    case Metric::kWordsCut:
      break;
  }
  fail(
      "LongBench's {} needs a word dictionary, which is unsupported: write --predictions and score them with "
      "LongBench's eval.py",
      task.name);
}

}  // namespace

double qa_f1(std::string_view prediction, std::string_view truth) {
  const Words said = normal_words(prediction), right = normal_words(truth);
  std::map<std::u32string, long> left;
  for (const auto& word : right) ++left[word];
  double same = 0;
  for (const auto& word : said)
    if (const auto found = left.find(word); found != left.end() && found->second-- > 0) ++same;
  if (same == 0) return 0;
  const double precision = same / static_cast<double>(said.size()), recall = same / static_cast<double>(right.size());
  return 2 * precision * recall / (precision + recall);
}

double rouge_l(std::string_view prediction, std::string_view truth) {
  const Words said = sentences_of(prediction), right = sentences_of(truth);
  if (said.empty() || right.empty()) return 0;
  std::set<std::u32string> common;
  for (const std::u32string& r : right)
    for (const std::u32string& s : said) add_common(common, python::split(r, U' '), python::split(s, U' '));
  const double recall = static_cast<double>(common.size()) / static_cast<double>(words_of(right).size()),
               precision = static_cast<double>(common.size()) / static_cast<double>(words_of(said).size());
  return 2 * (precision * recall / (precision + recall + 1e-8));
}

double classification(std::string_view prediction, std::string_view truth, std::span<const std::string> classes) {
  std::vector<std::string_view> named;
  for (const std::string& each : classes)
    if (prediction.find(each) != std::string_view::npos) named.push_back(each);
  // Names that are part of the right one do not count. As in the published code, the loop erases while iterating and so
  // skips the element after an erased one.
  for (std::size_t i = 0; i < named.size(); ++i)
    if (truth.find(named[i]) != std::string_view::npos && named[i] != truth)
      named.erase(std::ranges::find(named, named[i]));
  if (std::ranges::find(named, truth) == named.end()) return 0;
  return 1.0 / static_cast<double>(named.size());
}

double retrieval(std::string_view prediction, std::string_view truth, std::string_view word) {
  const std::u32string right = decode(truth), before = decode(word);
  for (auto at = right.find(before); at != std::u32string::npos; at = right.find(before, at + 1)) {
    std::size_t end = at + before.size();
    while (end < right.size() && python::is_digit(right[end])) ++end;
    if (end > at + before.size())
      return share_of(python::numbers(decode(prediction)), right.substr(at + before.size(), end - at - before.size()));
  }
  fail("the answer '{}' names no passage: '{}' and a number", truth, word);
}

double count_share(std::string_view prediction, std::string_view truth) {
  return share_of(python::numbers(decode(prediction)), decode(truth));
}

double code_similarity(std::string_view prediction, std::string_view truth) {
  prediction.remove_prefix(std::min(prediction.find_first_not_of('\n'), prediction.size()));
  std::u32string line;
  for (const std::u32string& each : python::split(decode(prediction), U'\n'))
    if (each.find(U'`') == std::u32string::npos && each.find(U'#') == std::u32string::npos &&
        each.find(U"//") == std::u32string::npos) {
      line = each;
      break;
    }
  const std::u32string right = decode(truth);
  if (line == right) return 1;
  if (line.empty() || right.empty()) return 0;
  return std::nearbyint(100 * python::similarity(line, right)) / 100;
}

const LongBenchTask* longbench_task(std::string_view name) {
  const auto* found = std::ranges::find(kTasks, name, &LongBenchTask::name);
  return found == std::end(kTasks) ? nullptr : found;
}

std::string longbench_tasks() {
  std::string out;
  for (const LongBenchTask& each : kTasks) out += (out.empty() ? "" : ", ") + std::string(each.name);
  return out;
}

double longbench_score(const LongBenchTask& task, std::string_view prediction, std::span<const std::string> truths,
                       std::span<const std::string> classes) {
  if (task.first_line) {
    prediction.remove_prefix(std::min(prediction.find_first_not_of('\n'), prediction.size()));
    prediction = prediction.substr(0, prediction.find('\n'));
  }
  double best = 0;
  for (const std::string& truth : truths) best = std::max(best, one_score(task, prediction, truth, classes));
  return best;
}

}  // namespace palimpsest
