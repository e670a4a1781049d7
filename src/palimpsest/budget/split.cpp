#include "palimpsest/budget/split.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "palimpsest/budget/pyramid.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"

namespace palimpsest {
namespace {

// In the order of Kind.
constexpr std::array<std::string_view, Split::kFile> kNames = {"uniform", "auto", "pyramid", "ada", "duo", "profile"};
constexpr int kMax = 1 << 30, kUnnamed = -1, kStreaming = 320;
constexpr const char* kLine = "'layer head tokens', 'layer head FACTORx' or 'layer head streaming'";

struct Range {
  int first, last;
};

Range range_of(const std::string& word, const std::string& what, int count) {
  if (word == "*") return {0, count - 1};
  const int index = static_cast<int>(parse_integer(word, what, 0, count - 1));
  return {index, index};
}

std::vector<int> pyramid(const SplitOf& of) {
  const std::vector<int> layers = pyramid_budgets(of.budget, of.guarded, static_cast<int>(of.heads.size()));
  if (layers.back() < of.min)
    fail(
        "budget {} with split pyramid leaves the last layer {} tokens, and it needs {}: raise the budget or protect "
        "fewer tokens",
        of.budget, layers.back(), of.min);
  std::vector<int> budgets;
  for (std::size_t i = 0; i < layers.size(); ++i)
    budgets.insert(budgets.end(), static_cast<std::size_t>(of.heads[i]), layers[i]);
  return budgets;
}

// What a line gives each of its heads.
int count_of(const std::string& word, const SplitOf& of, const std::string& where) {
  if (word == "streaming") {
    const int count = std::min(kStreaming, of.budget / 2);
    if (count < of.min)
      fail("{}half of a budget of {} is {} tokens, and a head needs {}: raise the budget or protect fewer tokens",
           where, of.budget, count, of.min);
    return count;
  }
  if (!word.ends_with('x')) return static_cast<int>(parse_integer(word, where + "tokens", of.min, kMax));
  const double factor = parse_real(std::string_view(word).substr(0, word.size() - 1), where + "factor", 0, 1000);
  const double count = of.guarded + factor * (of.budget - of.guarded);
  return std::max(of.min, static_cast<int>(std::min<double>(std::lround(count), kMax)));
}

// The rest of a line `model FINGERPRINT`.
void check_model(std::istringstream& words, const SplitOf& of, const std::string& where) {
  std::string digits, more;
  std::uint64_t made_for = 0;
  if (words >> digits) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), made_for, 16);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.size() != 16) digits.clear();
  }
  if (digits.empty() || words >> more) fail("{}give 'model' and a fingerprint of 16 hexadecimal digits", where);
  if (of.fingerprint && of.fingerprint() != made_for)
    fail("{}it was made for another model: make one for this model with `palimpsest fit -m MODEL`", where);
}

// The heads that no line names share the rest of the total budget evenly; the first of them get the remainder.
void share_rest(std::vector<int>& budgets, const SplitOf& of, std::string_view how) {
  long long left = static_cast<long long>(of.budget) * static_cast<long long>(budgets.size());
  auto unnamed = std::ranges::count(budgets, kUnnamed);
  for (const int tokens : budgets) left -= tokens == kUnnamed ? 0 : tokens;
  if (unnamed > 0 && left / unnamed < of.min)
    fail("{}: the heads that it does not name are left {} tokens of a budget of {}, and need {}: raise the budget", how,
         std::max(0LL, left / unnamed), of.budget, of.min);
  for (int& tokens : budgets) {
    if (tokens != kUnnamed) continue;
    tokens = static_cast<int>((left + unnamed - 1) / unnamed);
    left -= tokens;
    --unnamed;
  }
}

// Heads of `by_factor` have at most `max` tokens, and the others of them get the rest, in proportion.
void limit(std::vector<int>& budgets, const std::vector<bool>& by_factor, int max) {
  for (std::vector<bool> open = by_factor;;) {  // ends: each round closes a head
    long long beyond = 0, below = 0;
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      if (!open[i]) continue;
      if (budgets[i] >= max) {
        beyond += budgets[i] - max;
        budgets[i] = max;
        open[i] = false;
      } else {
        below += budgets[i];
      }
    }
    if (beyond == 0 || below == 0) return;
    const double factor = 1 + static_cast<double>(beyond) / static_cast<double>(below);
    for (std::size_t i = 0; i < budgets.size(); ++i)
      if (open[i]) budgets[i] = static_cast<int>(budgets[i] * factor);
  }
}

}  // namespace

Split::Split(std::string_view text) {
  const auto known = std::ranges::find(kNames, text);
  kind_ = static_cast<Kind>(known - kNames.begin());
  if (kind_ == kFile) file_ = text;
}

std::string Split::text() const {
  return kind_ == kFile ? file_ : std::string(kNames[static_cast<std::size_t>(kind_)]);
}

std::vector<int> split_budget(const Split& split, const SplitOf& of) {
  if (split == Split::kUniform || split == Split::kAuto) return {};
  const auto heads = static_cast<std::size_t>(std::reduce(of.heads.begin(), of.heads.end()));
  const int layers = static_cast<int>(of.heads.size()), max_heads = std::ranges::max(of.heads);
  if (split == Split::kAda) return std::vector<int>(heads, of.budget);
  if (split == Split::kPyramid) return pyramid(of);
  const std::string& how = split.file();
  std::error_code ignored;
  if (std::filesystem::is_directory(how, ignored))
    fail("split '{}': is a directory; give a file with lines 'layer head tokens'", how);
  std::ifstream file(how);
  if (!file) fail("split '{}': no such file; use uniform, pyramid, ada, or a file with lines 'layer head tokens'", how);
  std::vector<int> budgets(heads, kUnnamed);
  std::vector<bool> by_factor(heads);
  bool streaming = false;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string layer, head, tokens, more;
    if (!(words >> layer)) continue;
    const std::string where = fmt::format("{}, line {}: ", how, number);
    if (layer == "model") {
      check_model(words, of, where);
      continue;
    }
    if (!(words >> head >> tokens) || words >> more) fail("{}'{}' is not {}", where, line, kLine);
    const Range l = range_of(layer, where + "layer", layers), h = range_of(head, where + "head", max_heads);
    streaming = streaming || tokens == "streaming";
    const int count = count_of(tokens, of, where);
    bool any = false;
    auto budget = budgets.begin();
    for (int i = 0; i < layers; ++i)
      for (int j = 0; j < of.heads[static_cast<std::size_t>(i)]; ++j, ++budget) {
        if (i < l.first || i > l.last || j < h.first || j > h.last) continue;
        *budget = count;
        by_factor[static_cast<std::size_t>(budget - budgets.begin())] = tokens.ends_with('x');
        any = true;
      }
    if (!any) fail("{}layer {} has no head {}", where, layer, head);
  }
  if (file.bad()) fail("split '{}': cannot be read to its end ({})", how, std::strerror(errno));
  if (streaming) share_rest(budgets, of, how);
  std::ranges::replace(budgets, kUnnamed, of.budget);
  if (of.max > 0) limit(budgets, by_factor, std::max(of.max, of.budget));
  return budgets;
}

}  // namespace palimpsest
