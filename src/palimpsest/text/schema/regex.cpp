#include "palimpsest/text/schema/regex.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "palimpsest/text/schema/regex_parser.h"

namespace palimpsest::schema {
namespace {

using RegexKind = RegexNode::Kind;
using Assertion = Nfa::Assertion;

constexpr std::size_t kMaxNfa = 40'000;  // states

bool is_lookaround(const RegexNode& node) {
  return node.kind == RegexKind::kLookahead || node.kind == RegexKind::kLookbehind;
}

class RegexCompiler {
 public:
  explicit RegexCompiler(Work& work) : work_(work) {}

  Dfa matching(const RegexNode& alternatives) {
    RegexNode plain{.kind = RegexKind::kAlternatives};
    std::optional<Dfa> out;
    const auto add = [&](Dfa more) { out = out ? combine(*out, more, Combine::kOr, work_) : std::move(more); };
    for (const RegexNode& each : alternatives.parts) {
      const auto flat = flattened(each);
      if (std::ranges::any_of(flat, is_lookaround))
        add(with_lookarounds(flat));
      else
        plain.parts.push_back(each);
    }
    if (!plain.parts.empty()) {
      Nfa nfa;
      const std::uint32_t start = nfa.add(), begin = nfa.add(), final = nfa.add();
      nfa.link(start, begin);
      skip_any(nfa, start);
      build(nfa, plain, begin, final);
      add(determinize(nfa, start, final, true, true, work_));
    }
    return out ? *std::move(out) : Dfa{};
  }

 private:
  // The parts of a sequence; groups of one alternative are opened, so that their lookarounds are seen.
  static std::vector<RegexNode> flattened(const RegexNode& node) {
    std::vector<RegexNode> out;
    for (const RegexNode& part : node.parts) {
      const RegexNode* group = &part;
      if (group->kind == RegexKind::kAlternatives && group->parts.size() == 1) {
        for (RegexNode& each : flattened(group->parts.front())) out.push_back(std::move(each));
      } else {
        out.push_back(part);
      }
    }
    return out;
  }

  void skip_any(Nfa& nfa, std::uint32_t state) {
    nfa.states[state].set = static_cast<std::int32_t>(nfa.set(all_characters()));
    nfa.states[state].to = state;
  }

  void build(Nfa& nfa, const RegexNode& node, std::uint32_t from, std::uint32_t to) {
    work_.spend(2);
    if (nfa.states.size() > kMaxNfa) throw TooComplex("the regular expression is too long: make it simpler");
    switch (node.kind) {
      case RegexKind::kSequence:
        build_all(nfa, node.parts, from, to);
        break;
      case RegexKind::kAlternatives:
        for (const RegexNode& part : node.parts) {
          const std::uint32_t begin = nfa.add();
          nfa.link(from, begin);
          build(nfa, part, begin, to);
        }
        break;
      case RegexKind::kSet: {
        const std::uint32_t at = nfa.add();
        nfa.link(from, at);
        nfa.states[at].set = static_cast<std::int32_t>(nfa.set(node.set));
        nfa.states[at].to = to;
        break;
      }
      case RegexKind::kAssertion:
        nfa.states[from].assertions.emplace_back(node.assertion, to);
        break;
      case RegexKind::kRepeat: {
        const RegexNode& part = node.parts.front();
        const std::size_t copies = node.max == kUnbounded ? node.min : node.max;
        for (std::size_t i = 0; i < copies; ++i) {
          const std::uint32_t next = nfa.add();
          if (i >= node.min) nfa.link(from, to);
          build(nfa, part, from, next);
          from = next;
        }
        if (node.max == kUnbounded) {
          const std::uint32_t loop = nfa.add(), end = nfa.add();
          nfa.link(from, loop);
          build(nfa, part, loop, end);
          nfa.link(end, loop);
          from = loop;
        }
        nfa.link(from, to);
        break;
      }
      case RegexKind::kLookahead:
      case RegexKind::kLookbehind:
        fail("the regular expression has a lookaround inside a group or repetition, which is not supported");
    }
  }

  void build_all(Nfa& nfa, std::span<const RegexNode> parts, std::uint32_t from, std::uint32_t to) {
    for (const RegexNode& part : parts) {
      const std::uint32_t next = nfa.add();
      build(nfa, part, from, next);
      from = next;
    }
    nfa.link(from, to);
  }

  // `dfa` from `from` on; leads to `to` at the end of the text only.
  void embed(Nfa& nfa, const Dfa& dfa, std::uint32_t from, std::uint32_t to) {
    std::vector<std::uint32_t> states;
    for (std::size_t i = 0; i < dfa.states(); ++i) states.push_back(nfa.add());
    if (dfa.empty()) return;
    nfa.link(from, states[0]);
    std::vector<CharSet> sets;
    for (std::uint32_t c = 0; c < dfa.alphabet.count; ++c) sets.push_back(dfa.alphabet.characters_of(c));
    for (std::size_t i = 0; i < dfa.states(); ++i) {
      if (dfa.accepts[i]) nfa.states[states[i]].assertions.emplace_back(Assertion::kEnd, to);
      for (std::uint32_t c = 0; c < dfa.alphabet.count; ++c) {
        const std::int32_t next = dfa.step(static_cast<std::int32_t>(i), c);
        if (next < 0) continue;
        work_.spend(2);
        const std::uint32_t at = nfa.add();
        nfa.link(states[i], at);
        nfa.states[at].set = static_cast<std::int32_t>(nfa.set(sets[c]));
        nfa.states[at].to = states[static_cast<std::size_t>(next)];
      }
    }
  }

  // What may follow in the text, to its end, if `parts` match at its beginning.
  Dfa rest(std::span<const RegexNode> parts, bool at_start) {
    std::size_t look = 0;
    bool consumes = false;
    for (; look < parts.size() && !is_lookaround(parts[look]); ++look)
      consumes = consumes || parts[look].kind != RegexKind::kAssertion || parts[look].assertion != Assertion::kBegin;
    Nfa nfa;
    const std::uint32_t start = nfa.add(), final = nfa.add();
    if (look == parts.size()) {
      build_all(nfa, parts, start, final);
      return determinize(nfa, start, final, true, at_start, work_);
    }
    const RegexNode& lookaround = parts[look];
    if (lookaround.kind == RegexKind::kLookbehind)
      fail("the regular expression has a lookbehind that is not before its end, which is not supported");
    const auto after = parts.subspan(look + 1);
    const bool start_of_tail = at_start && !consumes;
    if (consumes && std::ranges::any_of(after, has_begin))
      fail("the regular expression has a ^ after a lookahead, which is not supported");
    if (look > 0 && !consumes && !at_start) return {};  // ^ inside the text
    if (consumes && has_boundary(lookaround, after))
      fail("the regular expression has a \\b after a lookahead, which is not supported");
    Nfa ahead;
    const std::uint32_t begin = ahead.add(), end = ahead.add();
    build(ahead, lookaround.parts.front(), begin, end);
    const Dfa looked = determinize(ahead, begin, end, true, start_of_tail, work_);
    Dfa tail =
        combine(rest(after, start_of_tail), looked, lookaround.negative ? Combine::kWithout : Combine::kAnd, work_);
    if (look == 0 || !consumes) return tail;
    const std::uint32_t between = nfa.add();
    build_all(nfa, parts.first(look), start, between);
    embed(nfa, tail, between, final);
    return determinize(nfa, start, final, false, at_start, work_);
  }

  static bool has_begin(const RegexNode& node) {
    return (node.kind == RegexKind::kAssertion && node.assertion == Assertion::kBegin) ||
           std::ranges::any_of(node.parts, has_begin);
  }
  static bool has_edge(const RegexNode& node) {
    return (node.kind == RegexKind::kAssertion &&
            (node.assertion == Assertion::kBoundary || node.assertion == Assertion::kNoBoundary)) ||
           std::ranges::any_of(node.parts, has_edge);
  }
  static bool has_boundary(const RegexNode& node, std::span<const RegexNode> parts) {
    return has_edge(node) || std::ranges::any_of(parts, has_edge);
  }

  Dfa with_lookarounds(std::vector<RegexNode> parts) {
    // x(?<!y)$: what x$ matches, without what y$ matches.
    const std::size_t size = parts.size();
    if (size >= 2 && parts[size - 2].kind == RegexKind::kLookbehind && parts[size - 1].kind == RegexKind::kAssertion &&
        parts[size - 1].assertion == Assertion::kEnd) {
      const RegexNode look = parts[size - 2];
      parts.erase(parts.end() - 2);
      RegexNode without, behind;
      without.parts = std::move(parts);
      behind.parts = {look.parts.front(), without.parts.back()};
      RegexNode first{.kind = RegexKind::kAlternatives}, second{.kind = RegexKind::kAlternatives};
      first.parts.push_back(std::move(without));
      second.parts.push_back(std::move(behind));
      return combine(matching(first), matching(second), look.negative ? Combine::kWithout : Combine::kAnd, work_);
    }
    const Dfa at_start = rest(parts, true);
    if (parts.front().kind == RegexKind::kAssertion && parts.front().assertion == Assertion::kBegin) return at_start;
    if (std::ranges::any_of(parts, has_edge))
      fail("the regular expression has a \\b beside a lookahead, which is not supported without ^");
    Nfa nfa;  // one or more characters before the match
    const std::uint32_t start = nfa.add(), skipped = nfa.add(), final = nfa.add();
    nfa.states[start].set = static_cast<std::int32_t>(nfa.set(all_characters()));
    nfa.states[start].to = skipped;
    skip_any(nfa, skipped);
    embed(nfa, rest(parts, false), skipped, final);
    return combine(at_start, determinize(nfa, start, final, false, true, work_), Combine::kOr, work_);
  }

  Work& work_;
};

}  // namespace

Dfa compile_regex(std::string_view pattern, Work& work) {
  return minimized(RegexCompiler(work).matching(parse_regex(pattern)), work);
}

}  // namespace palimpsest::schema
