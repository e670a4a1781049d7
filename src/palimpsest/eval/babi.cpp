#include "palimpsest/eval/babi.h"

#include <algorithm>
#include <charconv>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr std::string_view kSeparators = "\t|";  // of a question, its answer and its facts: copies of bAbI have either

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r") - first + 1));
}

std::vector<std::string> words_of_list(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    if (std::string word = trimmed(list.substr(0, end)); !word.empty()) out.push_back(std::move(word));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

}  // namespace

std::vector<BabiQuestion> parse_babi(std::string_view text, const std::string& file) {
  std::vector<BabiQuestion> questions;
  std::vector<std::string> facts;
  int number = 0;
  for (int line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (trimmed(one).empty()) continue;
    const auto parsed = std::from_chars(one.data(), one.data() + one.size(), number);
    if (parsed.ec != std::errc() || number < 1)
      fail("{}: line {} has no number: a bAbI file has lines \"1 John went home.\"", file, line);
    if (number == 1) facts.clear();
    const std::string_view rest(parsed.ptr, static_cast<std::size_t>(one.data() + one.size() - parsed.ptr));
    const auto tab = rest.find_first_of(kSeparators);
    if (tab == std::string_view::npos) {
      facts.push_back(trimmed(rest));
      continue;
    }
    const std::string_view answer = rest.substr(tab + 1);
    BabiQuestion question{facts, trimmed(rest.substr(0, tab)),
                          words_of_list(answer.substr(0, answer.find_first_of(kSeparators)))};
    if (question.question.empty() || question.answers.empty())
      fail("{}: line {} is a question without an answer", file, line);
    questions.push_back(std::move(question));
  }
  if (questions.empty()) fail("{}: it has no question: name a bAbI file, as qa1_single-supporting-fact_test.txt", file);
  return questions;
}

std::string babi_start(std::string_view question) {
  constexpr std::string_view kIs = "Where is ", kWas = "Where was ", kBefore = " before ";
  const auto end = question.find('?');
  if (end == std::string_view::npos) return {};
  if (question.starts_with(kIs)) {
    std::string subject(question.substr(kIs.size(), end - kIs.size()));
    if (subject.starts_with("the ")) subject.front() = 'T';
    return subject + " is in the";
  }
  const auto before = question.find(kBefore);
  if (!question.starts_with(kWas) || before == std::string_view::npos) return {};
  return "Before " + std::string(question.substr(before + kBefore.size(), end - before - kBefore.size())) + ", " +
         std::string(question.substr(kWas.size(), before - kWas.size())) + " was in the";
}

}  // namespace palimpsest
