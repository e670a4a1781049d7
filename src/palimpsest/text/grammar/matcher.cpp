#include "palimpsest/text/grammar/matcher.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using Kind = GrammarRules::Kind;
using Range = GrammarRules::Range;

constexpr std::size_t kStateWork = 256;    // a new state also costs its table
constexpr std::size_t kKeptStates = 1024;  // kept after a token; about 1 MiB

std::size_t hash_of(std::span<const std::uint32_t> stacks) {
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const std::uint32_t each : stacks) hash = (hash ^ each) * 1099511628211ULL;
  return hash;
}

// The first range whose end is not before the character.
std::span<const Range>::iterator range_at(std::span<const Range> ranges, std::uint32_t character) {
  return std::ranges::lower_bound(ranges, character, {}, &Range::last);
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const GrammarRules> rules, std::shared_ptr<const TokenTexts> texts)
    : rules_(std::move(rules)), texts_(std::move(texts)) {
  path_.resize(texts_->longest() + 1);
  nodes_.push_back({});  // the bottom
  visited_.push_back(0);
  states_.emplace_back().ascii.fill(kNoMatch);
  here_.state = start(rules_->alternatives_of(rules_->root));
  if (here_.state == kNoMatch) fail("the grammar allows no text at all: one of its rules only ever leads to itself");
  work_ = 0;
}

void GrammarMatcher::spend(std::size_t work) {
  work_ += work;
  if (work_ > kMaxGrammarWork)
    throw GrammarError(fmt::format(
        "the grammar is too ambiguous: one token takes more than {} steps; let alternatives differ in their "
        "first characters, and nest no repetitions of parts that may be empty",
        kMaxGrammarWork));
}

GrammarMatcher::NodeId GrammarMatcher::node(std::uint32_t index, NodeId parent) {
  const auto [at, made] =
      node_ids_.try_emplace((std::uint64_t{index} << 32) | parent, static_cast<NodeId>(nodes_.size()));
  if (made) {
    spend(8);
    nodes_.push_back({index, parent});
    visited_.push_back(0);
  }
  return at->second;
}

GrammarMatcher::NodeId GrammarMatcher::after(NodeId id) {
  const auto [index, parent] = nodes_[id];
  return rules_->elements[index + 1].kind == Kind::kEnd ? parent : node(index + 1, parent);
}

// Expands rules until the top of every stack consumes text. The last element of an alternative replaces the node of its
// rule, so that repetitions do not grow the stack. Terminates: see check_left_recursion.
void GrammarMatcher::close(std::vector<NodeId>& seeds, std::vector<NodeId>& out) {
  ++closing_;
  const auto add = [&](NodeId id) {
    if (std::exchange(visited_[id], closing_) != closing_) seeds.push_back(id);
  };
  out.clear();
  for (std::size_t i = 0; i < seeds.size(); ++i) visited_[seeds[i]] = closing_;
  while (!seeds.empty()) {
    const NodeId id = seeds.back();
    seeds.pop_back();
    spend(2);
    const auto element = id == kBottom ? GrammarRules::Element{} : rules_->elements[nodes_[id].index];
    if (id != kBottom && element.kind == Kind::kRule) {
      const NodeId then = after(id);
      for (const std::uint32_t index : rules_->alternatives_of(element.value)) {
        spend(2);
        add(rules_->elements[index].kind == Kind::kEnd ? then : node(index, then));
      }
      continue;
    }
    if (out.size() == kMaxGrammarStacks)
      throw GrammarError(fmt::format("the grammar is too ambiguous: over {} alternatives at one position; simplify it",
                                     kMaxGrammarStacks));
    out.push_back(id);
  }
}

// Removes duplicate stacks.
GrammarMatcher::StateId GrammarMatcher::state_of(std::vector<NodeId>& stacks) {
  std::ranges::sort(stacks);
  stacks.erase(std::ranges::unique(stacks).begin(), stacks.end());
  if (stacks.empty()) return kNoMatch;
  spend(stacks.size());
  const std::size_t hash = hash_of(stacks);
  for (auto [at, end] = state_ids_.equal_range(hash); at != end; ++at)
    if (states_[at->second].stacks == stacks) return at->second;
  spend(kStateWork);
  const auto id = static_cast<StateId>(states_.size());
  State& state = states_.emplace_back();
  state.stacks = stacks;
  state.ascii.fill(kUnknown);
  state.has_tokens = std::ranges::any_of(stacks, [&](NodeId stack) {
    const Kind kind = stack == kBottom ? Kind::kEnd : rules_->elements[nodes_[stack].index].kind;
    return kind == Kind::kToken || kind == Kind::kNotToken;
  });
  state_ids_.emplace(hash, id);
  return id;
}

GrammarMatcher::StateId GrammarMatcher::start(std::span<const std::uint32_t> alternatives) {
  seeds_.clear();
  for (const std::uint32_t index : alternatives)
    seeds_.push_back(rules_->elements[index].kind == Kind::kEnd ? kBottom : node(index, kBottom));
  close(seeds_, stacks_);
  return state_of(stacks_);
}

// Whether some character from `low` to `high` matches.
bool GrammarMatcher::meets(const GrammarRules::Element& element, std::uint32_t low, std::uint32_t high) const {
  if (element.kind == Kind::kCharacter) return low <= element.value && element.value <= high;
  if (element.kind != Kind::kClass) return false;
  const auto ranges = rules_->ranges_of(element.value);
  const auto at = range_at(ranges, low);
  return at != ranges.end() && at->first <= high;
}

// Whether the element matches `character`; narrows `step` to the characters with the same result.
bool GrammarMatcher::match(const GrammarRules::Element& element, std::uint32_t character, Step& step) const {
  const auto within = [&](std::uint32_t first, std::uint32_t last) {
    step.first = std::max(step.first, first);
    step.last = std::min(step.last, last);
  };
  if (element.kind == Kind::kCharacter) {
    if (element.value == character)
      within(character, character);
    else if (element.value < character)
      within(element.value + 1, kMaxCodePoint);
    else
      within(0, element.value - 1);
    return element.value == character;
  }
  if (element.kind != Kind::kClass) return false;
  const auto ranges = rules_->ranges_of(element.value);
  const auto at = range_at(ranges, character);
  if (at != ranges.end() && at->first <= character) {
    within(at->first, at->last);
    return true;
  }
  within(at == ranges.begin() ? 0 : std::prev(at)->last + 1, at == ranges.end() ? kMaxCodePoint : at->first - 1);
  return false;
}

GrammarMatcher::StateId GrammarMatcher::compute(StateId state, std::uint32_t character, Step& step) {
  step = {0, kMaxCodePoint, kNoMatch};
  seeds_.clear();
  const std::size_t count = states_[state].stacks.size();
  spend(4 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const NodeId stack = states_[state].stacks[i];
    if (stack != kBottom && match(rules_->elements[nodes_[stack].index], character, step))
      seeds_.push_back(after(stack));
  }
  if (seeds_.empty()) return kNoMatch;
  close(seeds_, stacks_);
  step.to = state_of(stacks_);
  return step.to;
}

GrammarMatcher::StateId GrammarMatcher::next(StateId state, std::uint32_t character) {
  if (character < 128) {
    if (const StateId known = states_[state].ascii[character]; known != kUnknown) return known;
  } else {
    const auto& wide = states_[state].wide;
    const auto at = std::ranges::lower_bound(wide, character, {}, &Step::last);
    if (at != wide.end() && at->first <= character) return at->to;
  }
  Step step;
  const StateId to = compute(state, character, step);
  State& from = states_[state];
  for (std::uint32_t c = step.first; c < 128 && c <= step.last; ++c) from.ascii[c] = to;
  if (step.last >= 128) {
    const auto at = std::ranges::lower_bound(from.wide, step.last, {}, &Step::last);
    spend(static_cast<std::size_t>(from.wide.end() - at));
    if (at == from.wide.end() || at->first > step.first) from.wide.insert(at, step);
  }
  return to;
}

GrammarMatcher::StateId GrammarMatcher::after_token(StateId state, TokenId token) {
  if (!states_[state].has_tokens) return kNoMatch;
  seeds_.clear();
  spend(states_[state].stacks.size());
  for (std::size_t i = 0; i < states_[state].stacks.size(); ++i) {
    const NodeId stack = states_[state].stacks[i];
    if (stack == kBottom) continue;
    const auto& element = rules_->elements[nodes_[stack].index];
    const bool same = element.value == static_cast<std::uint32_t>(token);
    const bool other = element.kind == Kind::kNotToken && !same && !(*texts_)[token].empty();
    if (other || (element.kind == Kind::kToken && same)) seeds_.push_back(after(stack));
  }
  if (seeds_.empty()) return kNoMatch;
  close(seeds_, stacks_);
  return state_of(stacks_);
}

// Reads one byte; false: no text of the grammar continues with it, or the bytes are not UTF-8.
bool GrammarMatcher::advance(Point& point, std::uint8_t byte) {
  if (point.left == 0 && byte < 0x80) {
    point.state = next(point.state, byte);
    return point.state != kNoMatch;
  }
  if (point.left == 0) {
    if (byte < 0xC2 || byte > 0xF4) return false;
    point.length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    point.left = point.length - 1;
    point.value = byte & (0x7FU >> point.length);
    return true;
  }
  if ((byte & 0xC0) != 0x80) return false;
  point.value = (point.value << 6) | (byte & 0x3FU);
  if (--point.left > 0) return true;
  static constexpr std::uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point.value < kLowest[point.length] || point.value > kMaxCodePoint) return false;
  if (point.value >= 0xD800 && point.value <= 0xDFFF) return false;
  point.state = next(point.state, point.value);
  return point.state != kNoMatch;
}

// Inside a character: whether some character with these first bytes matches.
bool GrammarMatcher::can_continue(const Point& point) const {
  if (point.left == 0) return true;
  static constexpr std::uint32_t kLowest[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned bits = 6U * point.left;
  const std::uint32_t low = std::max(point.value << bits, kLowest[point.length]);
  const std::uint32_t high = std::min((point.value << bits) | ((1U << bits) - 1), kMaxCodePoint);
  const auto possible = [&](std::uint32_t first, std::uint32_t last) {
    return first <= last && std::ranges::any_of(states_[point.state].stacks, [&](NodeId stack) {
             return stack != kBottom && meets(rules_->elements[nodes_[stack].index], first, last);
           });
  };
  return possible(low, std::min(high, 0xD7FFU)) || possible(std::max(low, 0xE000U), high);
}

bool GrammarMatcher::read(Point& point, std::string_view text) {
  for (const char c : text)
    if (!advance(point, static_cast<std::uint8_t>(c))) return false;
  return !text.empty() && can_continue(point);
}

bool GrammarMatcher::allows(TokenId token) {
  Point point = here_;
  return read(point, (*texts_)[token]) || after_token(here_.state, token) != kNoMatch;
}

bool GrammarMatcher::allows_end() const {
  return here_.left == 0 && states_[here_.state].stacks.front() == kBottom;
}

void GrammarMatcher::allowed(std::vector<std::uint8_t>& out) {
  std::ranges::fill(out, 0);
  // path_[n]: the point after n bytes of the previous entry, for n <= reached.
  std::size_t reached = 0;
  path_[0] = here_;
  for (const TokenTexts::Entry& entry : texts_->entries()) {
    if (entry.shared > reached) continue;  // the shared prefix contains the byte that failed
    reached = entry.shared;
    const std::string_view text = texts_->text(entry);
    while (reached < text.size()) {
      path_[reached + 1] = path_[reached];
      if (!advance(path_[reached + 1], static_cast<std::uint8_t>(text[reached]))) break;
      ++reached;
    }
    if (reached == text.size() && path_[reached].left > 0) spend(states_[path_[reached].state].stacks.size());
    out[static_cast<std::size_t>(entry.token)] = reached == text.size() && can_continue(path_[reached]) ? 1 : 0;
  }
  if (!states_[here_.state].has_tokens) return;
  for (std::size_t i = 0; i < states_[here_.state].stacks.size(); ++i) {
    const NodeId stack = states_[here_.state].stacks[i];
    if (stack == kBottom) continue;
    const auto& element = rules_->elements[nodes_[stack].index];
    if (element.kind == Kind::kToken) out[element.value] = 1;
    if (element.kind != Kind::kNotToken) continue;
    spend(texts_->entries().size() / 16);
    for (const TokenTexts::Entry& entry : texts_->entries())
      if (static_cast<std::uint32_t>(entry.token) != element.value) out[static_cast<std::size_t>(entry.token)] = 1;
  }
}

// Reads the token both as its characters and as the token that an element names. If both match and the token ends
// inside a character, only the latter counts.
void GrammarMatcher::accept(TokenId token) {
  const StateId named = after_token(here_.state, token);
  Point point = here_;
  const bool spelled = read(point, (*texts_)[token]);
  if (named != kNoMatch && spelled && point.left == 0) {
    std::vector<NodeId> both = states_[named].stacks;
    both.insert(both.end(), states_[point.state].stacks.begin(), states_[point.state].stacks.end());
    here_ = {.state = state_of(both)};
  } else if (named != kNoMatch) {
    here_ = {.state = named};
  } else if (spelled) {
    here_ = point;
  } else {
    fail("the text does not obey the grammar");
  }
  work_ = 0;
  if (states_.size() > kKeptStates || nodes_.size() > kMaxGrammarNodes) shrink();
}

bool GrammarMatcher::accept(std::string_view text) {
  Point point = here_;
  if (!read(point, text)) return false;
  here_ = point;
  work_ = 0;
  if (states_.size() > kKeptStates || nodes_.size() > kMaxGrammarNodes) shrink();
  return true;
}

std::vector<std::int32_t> GrammarMatcher::save() const {
  const auto& stacks = states_[here_.state].stacks;
  std::vector<bool> needed(nodes_.size());
  for (const NodeId stack : stacks)
    for (NodeId id = stack; id != kBottom && !needed[id]; id = nodes_[id].parent) needed[id] = true;
  std::vector<std::int32_t> out = {static_cast<std::int32_t>(here_.value), here_.left, here_.length,
                                   static_cast<std::int32_t>(std::ranges::count(needed, true))};
  std::vector<std::int32_t> number(nodes_.size());
  std::int32_t count = 0;
  for (NodeId id = 1; id < nodes_.size(); ++id) {  // parents precede their children
    if (!needed[id]) continue;
    number[id] = ++count;
    out.push_back(static_cast<std::int32_t>(nodes_[id].index));
    out.push_back(number[nodes_[id].parent]);
  }
  for (const NodeId stack : stacks) out.push_back(number[stack]);
  return out;
}

void GrammarMatcher::restore(std::span<const std::int32_t> saved) {
  const auto require = [](bool holds) {
    if (!holds) fail("the saved state belongs to another grammar, or is damaged: use the same grammar");
  };
  require(saved.size() > 4 && saved[0] >= 0 && saved[1] >= 0 && saved[1] <= 3 && saved[3] >= 0);
  const Point point{.value = static_cast<std::uint32_t>(saved[0]),
                    .left = static_cast<std::uint8_t>(saved[1]),
                    .length = static_cast<std::uint8_t>(saved[2])};
  require(point.left == 0 || (saved[2] > saved[1] && saved[2] <= 4 && saved[0] < 1 << 16));
  const auto count = static_cast<std::size_t>(saved[3]);
  require(count <= kMaxGrammarNodes && saved.size() > 4 + 2 * count);
  require(saved.size() - 4 - 2 * count <= kMaxGrammarStacks);
  std::vector<NodeId> made = {kBottom};
  const auto known = [&](std::int32_t number) {
    require(number >= 0 && static_cast<std::size_t>(number) < made.size());
    return made[static_cast<std::size_t>(number)];
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t index = saved[4 + 2 * i];
    require(index >= 0 && static_cast<std::size_t>(index) < rules_->elements.size());
    require(rules_->elements[static_cast<std::size_t>(index)].kind != Kind::kEnd);
    made.push_back(node(static_cast<std::uint32_t>(index), known(saved[5 + 2 * i])));
  }
  stacks_.clear();
  for (const std::int32_t number : saved.subspan(4 + 2 * count)) {
    const NodeId stack = known(number);
    require(stack == kBottom || rules_->elements[nodes_[stack].index].kind != Kind::kRule);
    stacks_.push_back(stack);
  }
  here_ = point;
  here_.state = state_of(stacks_);
  work_ = 0;
}

// Discards all states but the current one, and all nodes that it does not need.
void GrammarMatcher::shrink() {
  const std::vector<std::int32_t> kept = save();
  if (static_cast<std::size_t>(kept[3]) > kMaxGrammarNodes / 2)
    throw GrammarError(
        fmt::format("the text is nested too deep in the grammar: at most {} levels are kept", kMaxGrammarNodes / 2));
  nodes_.resize(1);
  visited_.assign(1, 0);
  closing_ = 0;
  node_ids_.clear();
  states_.resize(1);
  state_ids_.clear();
  restore(kept);
}

std::size_t GrammarMatcher::bytes() const {
  std::size_t sum = nodes_.capacity() * (sizeof(Node) + 4) + node_ids_.size() * 40 + states_.capacity() * sizeof(State);
  for (const State& state : states_) sum += state.stacks.capacity() * 4 + state.wide.capacity() * sizeof(Step) + 40;
  return sum;
}

}  // namespace palimpsest
