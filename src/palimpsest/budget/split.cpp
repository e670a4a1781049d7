#include "palimpsest/budget/split.h"

#include <fstream>
#include <sstream>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"

namespace palimpsest {
namespace {

constexpr int kMost = 1 << 30;

struct Range {
  int first, last;
};

Range range_of(const std::string& word, const std::string& what, int count) {
  if (word == "*") return {0, count - 1};
  const int index = static_cast<int>(parse_integer(word, what, 0, count - 1));
  return {index, index};
}

}  // namespace

std::vector<int> split_budget(std::string_view how, int budget, int layers, int kv_heads, int least) {
  if (how == "uniform") return {};
  std::ifstream file{std::string(how)};
  if (!file) fail("split '{}': no such file; use uniform, or a file with lines 'layer head tokens'", how);
  std::vector<int> budgets(static_cast<std::size_t>(layers) * static_cast<std::size_t>(kv_heads), budget);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string layer, head, tokens, more;
    if (!(words >> layer)) continue;
    const std::string where = fmt::format("{}, line {}: ", how, number);
    if (!(words >> head >> tokens) || words >> more) fail("{}'{}' is not 'layer head tokens'", where, line);
    const Range l = range_of(layer, where + "layer", layers), h = range_of(head, where + "head", kv_heads);
    const int count = static_cast<int>(parse_integer(tokens, where + "tokens", least, kMost));
    for (int i = l.first; i <= l.last; ++i)
      for (int j = h.first; j <= h.last; ++j) budgets[static_cast<std::size_t>(i * kv_heads + j)] = count;
  }
  return budgets;
}

}  // namespace palimpsest
