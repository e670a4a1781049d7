#include "palimpsest/eval/haystack.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

std::string joined(std::string_view lines) {
  std::string out;
  for (const char each : lines) {
    const bool blank = each == ' ' || each == '\n' || each == '\t';
    if (!blank)
      out += each;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// A sentence ends with . ! or ?, closing quotes if any, and a space.
std::vector<std::string> sentences_of(const std::string& paragraph) {
  std::vector<std::string> out;
  std::size_t from = 0;
  for (std::size_t i = 0; i < paragraph.size(); ++i) {
    if (paragraph[i] != '.' && paragraph[i] != '!' && paragraph[i] != '?') continue;
    std::size_t end = i + 1;
    while (end < paragraph.size() && (paragraph[end] == '"' || paragraph[end] == '\'')) ++end;
    if (end < paragraph.size() && paragraph[end] != ' ') continue;
    out.push_back(paragraph.substr(from, end - from));
    from = std::min(end + 1, paragraph.size());
    i = end;
  }
  if (from < paragraph.size()) out.push_back(paragraph.substr(from));
  return out;
}

bool small(char each) {
  return each >= 'a' && each <= 'z';
}

}  // namespace

Haystack::Haystack(std::string_view text, std::string name) : name_(std::move(name)) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find("\n\n"), text.size());
    std::string paragraph = joined(text.substr(0, end));
    text.remove_prefix(std::min(end + 2, text.size()));
    if (paragraph.empty()) continue;
    for (auto& sentence : sentences_of(paragraph)) sentences_.push_back(std::move(sentence));
    paragraphs_.push_back(std::move(paragraph));
  }
  constexpr std::size_t kMin = 10;
  if (sentences_.size() < kMin)
    fail("{}: {} sentences are too few to hide something between: name more text with --haystack", name_,
         sentences_.size());
  std::unordered_set<std::string> seen;
  for (const std::string& sentence : sentences_)
    for (std::size_t i = 0; i < sentence.size();) {
      std::size_t end = i;
      while (end < sentence.size() && small(sentence[end])) ++end;
      const bool whole = (i == 0 || sentence[i - 1] == ' ') && end - i >= 4 && end - i <= 9;
      if (whole && seen.insert(sentence.substr(i, end - i)).second) words_.push_back(sentence.substr(i, end - i));
      i = end + 1;
    }
}

}  // namespace palimpsest
