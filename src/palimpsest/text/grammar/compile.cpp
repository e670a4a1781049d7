#include "palimpsest/text/grammar/compile.h"

#include <algorithm>
#include <deque>

#include "palimpsest/core/error.h"
#include "palimpsest/text/grammar/parser.h"

namespace palimpsest {
namespace {

using Kind = GrammarRules::Kind;

void check_defined(const ParsedGrammar& parsed) {
  if (!parsed.has_root) fail("the grammar has no rule `root`, with which every text begins: write one");
  for (std::size_t rule = 0; rule < parsed.rules.rules.size(); ++rule)
    if (parsed.rules.alternatives_of(static_cast<std::uint32_t>(rule)).empty())
      fail("the grammar is not valid GBNF: line {}: there is no rule '{}'", parsed.lines[rule], parsed.names[rule]);
}

// Lists of uint32, one per key, stored contiguously.
class Lists {
 public:
  Lists(std::size_t keys, std::span<const std::pair<std::uint32_t, std::uint32_t>> pairs) : begin_(keys + 1) {
    for (const auto& [key, value] : pairs) ++begin_[key + 1];
    for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    values_.resize(pairs.size());
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (const auto& [key, value] : pairs) values_[next[key]++] = value;
  }
  std::span<const std::uint32_t> operator[](std::size_t key) const {
    return std::span(values_).subspan(begin_[key], begin_[key + 1] - begin_[key]);
  }

 private:
  std::vector<std::uint32_t> begin_, values_;
};

// Whether each rule can match the empty text: an alternative can if all its elements can.
std::vector<bool> rules_that_may_be_empty(const GrammarRules& g) {
  std::vector<bool> empty(g.rules.size());
  std::vector<std::uint32_t> missing(g.alternatives.size()), owner(g.alternatives.size());
  std::vector<std::pair<std::uint32_t, std::uint32_t>> uses;  // rule, alternative
  std::vector<std::uint32_t> found;
  for (std::uint32_t rule = 0; rule < g.rules.size(); ++rule)
    for (std::uint32_t a = g.rules[rule].begin; a < g.rules[rule].end; ++a) {
      owner[a] = rule;
      for (std::uint32_t i = g.alternatives[a]; g.elements[i].kind != Kind::kEnd; ++i) {
        ++missing[a];
        if (g.elements[i].kind == Kind::kRule) uses.emplace_back(g.elements[i].value, a);
      }
      if (missing[a] == 0 && !empty[rule]) {
        empty[rule] = true;
        found.push_back(rule);
      }
    }
  const Lists used(g.rules.size(), uses);
  while (!found.empty()) {
    const std::uint32_t rule = found.back();
    found.pop_back();
    for (const std::uint32_t a : used[rule]) {
      if (--missing[a] > 0 || empty[owner[a]]) continue;
      empty[owner[a]] = true;
      found.push_back(owner[a]);
    }
  }
  return empty;
}

// Tarjan's strongly connected components, without recursion: returns each vertex's component number.
std::vector<std::uint32_t> components(const Lists& edges, std::size_t count) {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> order(count, kNone), low(count), component(count, kNone), open;
  struct Visit {
    std::uint32_t vertex, next;
  };
  std::vector<Visit> path;
  std::uint32_t time = 0, components = 0;
  for (std::uint32_t start = 0; start < count; ++start) {
    if (order[start] != kNone) continue;
    path.push_back({start, 0});
    while (!path.empty()) {
      auto& [vertex, next] = path.back();
      if (next == 0) {
        order[vertex] = low[vertex] = time++;
        open.push_back(vertex);
      }
      if (next < edges[vertex].size()) {
        const std::uint32_t to = edges[vertex][next++];
        if (order[to] == kNone)
          path.push_back({to, 0});
        else if (component[to] == kNone)
          low[vertex] = std::min(low[vertex], order[to]);
        continue;
      }
      const std::uint32_t done = vertex;
      if (low[done] == order[done]) {
        for (std::uint32_t each = kNone; each != done; open.pop_back()) {
          each = open.back();
          component[each] = components;
        }
        ++components;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().vertex] = std::min(low[path.back().vertex], low[done]);
    }
  }
  return component;
}

// Refuses a rule that can reach itself without consuming a character, with an element left after the reference: its
// stack would grow without bound. (Without an element after it the stack does not grow: repetitions are such rules.)
void check_left_recursion(const ParsedGrammar& parsed) {
  const GrammarRules& g = parsed.rules;
  const std::vector<bool> empty = rules_that_may_be_empty(g);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> first, piling;  // edges from rule to rule
  for (std::uint32_t rule = 0; rule < g.rules.size(); ++rule)
    for (const std::uint32_t start : g.alternatives_of(rule))
      for (std::uint32_t i = start; g.elements[i].kind == Kind::kRule; ++i) {
        first.emplace_back(rule, g.elements[i].value);
        if (g.elements[i + 1].kind != Kind::kEnd) piling.push_back(first.back());
        if (!empty[g.elements[i].value]) break;
      }
  const auto component = components(Lists(g.rules.size(), first), g.rules.size());
  for (const auto& [from, to] : piling)
    if (component[from] == component[to])
      fail(
          "the grammar is left recursive: line {}: the rule '{}' comes back to itself before any character; put the "
          "repetition behind a character, or write it with * or +",
          parsed.lines[from], parsed.names[from]);
}

}  // namespace

GrammarRules compile_grammar(std::string_view text, const Vocabulary* vocabulary) {
  ParsedGrammar parsed = parse_grammar(text, vocabulary);
  check_defined(parsed);
  check_left_recursion(parsed);
  return std::move(parsed.rules);
}

}  // namespace palimpsest
