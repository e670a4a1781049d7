#include "palimpsest/text/schema/regex_parser.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "palimpsest/text/schema/categories.h"

namespace palimpsest::schema {
namespace {

using RegexKind = RegexNode::Kind;

constexpr std::size_t kMaxNesting = 100, kMaxRepetition = 100'000;

bool digit(std::uint32_t c) {
  return c >= '0' && c <= '9';
}

bool letter(std::uint32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// The other case of a letter of ASCII, Latin-1, Greek or Cyrillic; otherwise the character itself.
std::uint32_t other_case(std::uint32_t c) {
  if (letter(c)) return c ^ 0x20U;
  if (c >= 0xC0 && c <= 0xDE && c != 0xD7) return c + 0x20;
  if (c >= 0xE0 && c <= 0xFE && c != 0xF7) return c - 0x20;
  if (c >= 0x391 && c <= 0x3A9) return c + 0x20;
  if (c >= 0x3B1 && c <= 0x3C9 && c != 0x3C2) return c - 0x20;
  if (c >= 0x410 && c <= 0x42F) return c + 0x20;
  if (c >= 0x430 && c <= 0x44F) return c - 0x20;
  if (c >= 0x400 && c <= 0x40F) return c + 0x50;
  if (c >= 0x450 && c <= 0x45F) return c - 0x50;
  return c;
}

const CharSet& space_characters() {
  static const CharSet space = char_set({{9, 13},
                                         {' ', ' '},
                                         {0xA0, 0xA0},
                                         {0x1680, 0x1680},
                                         {0x2000, 0x200A},
                                         {0x2028, 0x2029},
                                         {0x202F, 0x202F},
                                         {0x205F, 0x205F},
                                         {0x3000, 0x3000},
                                         {0xFEFF, 0xFEFF}});
  return space;
}

class RegexParser {
 public:
  explicit RegexParser(std::string_view pattern) : text_(code_points(pattern)) {}

  RegexNode parse() {
    if (starts_with("(?i)")) {
      at_ = 4;
      ignore_case_ = true;
    }
    RegexNode out = alternatives(0);
    if (at_ < text_.size()) fail("the regular expression has a ')' that closes nothing");
    return out;
  }

 private:
  std::uint32_t peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  bool more() const { return at_ < text_.size(); }
  bool starts_with(std::string_view what) const {
    for (std::size_t i = 0; i < what.size(); ++i)
      if (peek(i) != static_cast<unsigned char>(what[i])) return false;
    return at_ + what.size() <= text_.size();
  }
  bool take(std::string_view what) {
    if (!starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  RegexNode alternatives(std::size_t depth) {
    if (depth > kMaxNesting) fail("the regular expression is nested more than {} levels deep", kMaxNesting);
    RegexNode out{.kind = RegexKind::kAlternatives};
    do out.parts.push_back(sequence(depth));
    while (take("|"));
    return out;
  }

  RegexNode sequence(std::size_t depth) {
    RegexNode out;
    while (more() && peek() != '|' && peek() != ')') out.parts.push_back(repeated(depth));
    return out;
  }

  RegexNode repeated(std::size_t depth) {
    RegexNode item = atom(depth);
    std::size_t min = 0, max = kUnbounded;
    const std::uint32_t c = peek();
    if (!more()) return item;
    if (c == '*') {
      ++at_;
    } else if (c == '+') {
      ++at_;
      min = 1;
    } else if (c == '?') {
      ++at_;
      max = 1;
    } else if (c != '{' || !counts(min, max)) {
      return item;
    }
    take("?");  // lazy: the same texts
    if (item.kind == RegexKind::kAssertion || item.kind == RegexKind::kLookahead || item.kind == RegexKind::kLookbehind)
      fail("the regular expression repeats an assertion, which is not supported");
    RegexNode out{.kind = RegexKind::kRepeat, .min = min, .max = max};
    out.parts.push_back(std::move(item));
    if (more() && (peek() == '*' || peek() == '+' || peek() == '?'))
      fail("the regular expression has nothing before a repetition");
    return out;
  }

  // {2}, {2,}, {2,3}; anything else is text.
  bool counts(std::size_t& min, std::size_t& max) {
    const std::size_t begin = at_++;
    const auto number = [&]() -> std::optional<std::size_t> {
      if (!digit(peek())) return std::nullopt;
      std::size_t value = 0;
      for (; digit(peek()); ++at_) value = std::min(value * 10 + (peek() - '0'), 10 * kMaxRepetition);
      return value;
    };
    const auto first = number();
    std::optional<std::size_t> last = first;
    if (first && take(",")) last = peek() == '}' ? kUnbounded : number();
    if (!first || !last || !take("}")) {
      at_ = begin;
      return false;
    }
    if (*last < *first) fail("the regular expression has a repetition that ends below its beginning");
    if (*first > kMaxRepetition || (*last != kUnbounded && *last > kMaxRepetition))
      fail("the regular expression repeats more than {} times", kMaxRepetition);
    min = *first;
    max = *last;
    return true;
  }

  RegexNode set_node(CharSet set) const { return {.kind = RegexKind::kSet, .set = std::move(set)}; }

  CharSet one(std::uint32_t c) const {
    return ignore_case_ ? char_set({{c, c}, {other_case(c), other_case(c)}}) : char_set({{c, c}});
  }

  RegexNode atom(std::size_t depth) {
    const std::uint32_t c = text_[at_];
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        return set_node(bracket());
      case '.':
        ++at_;
        return set_node(complement_of(char_set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})));
      case '^':
      case '$':
        ++at_;
        return {.kind = RegexKind::kAssertion, .assertion = c == '^' ? Nfa::Assertion::kBegin : Nfa::Assertion::kEnd};
      case '*':
      case '+':
      case '?':
        fail("the regular expression has nothing before a repetition");
      case '\\':
        return escape();
      default:
        ++at_;
        return set_node(one(c));
    }
  }

  RegexNode group(std::size_t depth) {
    ++at_;
    RegexNode out;
    if (take("?:")) {
      out = alternatives(depth + 1);
    } else if (take("?i:")) {
      const bool before = std::exchange(ignore_case_, true);
      out = alternatives(depth + 1);
      ignore_case_ = before;
    } else if (starts_with("?=") || starts_with("?!")) {
      out = {.kind = RegexKind::kLookahead, .negative = peek(1) == '!'};
      at_ += 2;
      out.parts.push_back(alternatives(depth + 1));
    } else if (starts_with("?<=") || starts_with("?<!")) {
      out = {.kind = RegexKind::kLookbehind, .negative = peek(2) == '!'};
      at_ += 3;
      out.parts.push_back(alternatives(depth + 1));
    } else if (take("?<") || take("?P<")) {
      while (more() && peek() != '>') ++at_;
      ++at_;
      out = alternatives(depth + 1);
    } else if (peek() == '?') {
      fail("the regular expression has a group of an unknown kind, '(?'");
    } else {
      out = alternatives(depth + 1);
    }
    if (!take(")")) fail("the regular expression has a '(' that is never closed");
    return out;
  }

  std::uint32_t hexadecimal(std::size_t digits) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const std::uint32_t c = peek();
      if (!digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
        fail("the regular expression has an escape with too few hexadecimal digits");
      value = value * 16 + (digit(c) ? c - '0' : (c | 0x20U) - 'a' + 10);
    }
    return value;
  }

  std::uint32_t unicode_escape() {
    if (take("{")) {
      std::uint32_t value = 0;
      if (peek() == '}') fail("the regular expression has an escape \\u without a number");
      while (peek() != '}') {
        value = value * 16 + hexadecimal(1);
        if (value > 0x10FFFF) fail("the regular expression has an escape \\u beyond U+10FFFF");
      }
      ++at_;
      return value;
    }
    const std::uint32_t high = hexadecimal(4);
    if (high < 0xD800 || high > 0xDBFF || !starts_with("\\u")) return high;
    const std::size_t before = at_;
    at_ += 2;
    const std::uint32_t low = hexadecimal(4);
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    at_ = before;
    return high;
  }

  // \d, \w, \s, \p{...} and their complements, after the backslash.
  std::optional<CharSet> class_escape() {
    const std::uint32_t c = peek();
    const auto as = [&](const CharSet& set, bool negative) {
      ++at_;
      return negative ? complement_of(set) : set;
    };
    switch (c) {
      case 'd':
      case 'D':
        return as(char_set({{'0', '9'}}), c == 'D');
      case 'w':
      case 'W':
        return as(word_characters(), c == 'W');
      case 's':
      case 'S':
        return as(space_characters(), c == 'S');
      case 'p':
      case 'P': {
        ++at_;
        std::string name;
        if (!take("{")) fail("the regular expression has a \\p without {{...}}");
        while (more() && peek() != '}' && name.size() < 60) name += static_cast<char>(text_[at_++]);
        if (!take("}")) fail("the regular expression has a \\p without {{...}}");
        const auto set = characters_with_property(name);
        if (!set) fail("the regular expression has \\p{{{}}}, which is not supported: general categories are", name);
        return c == 'P' ? complement_of(*set) : *set;
      }
      default:
        return std::nullopt;
    }
  }

  // A single character, after the backslash.
  std::uint32_t character_escape() {
    const std::uint32_t c = peek();
    ++at_;
    switch (c) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'v':
        return '\v';
      case 'f':
        return '\f';
      case 'r':
        return '\r';
      case '0':
        if (digit(peek())) fail("the regular expression has an octal escape, which is not supported");
        return 0;
      case 'x':
        return hexadecimal(2);
      case 'u':
        return unicode_escape();
      case 'c': {
        const std::uint32_t control = peek();
        if (!letter(control)) fail("the regular expression has a \\c without a letter");
        ++at_;
        return control % 32;
      }
      default:
        break;
    }
    if (digit(c) || c == 'k') fail("the regular expression has a back reference, which is not supported");
    if (letter(c)) fail("the regular expression has an unknown escape, '\\{}'", static_cast<char>(c));
    return c;
  }

  RegexNode escape() {
    ++at_;
    if (!more()) fail("the regular expression ends with a backslash");
    if (peek() == 'b' || peek() == 'B') {
      const bool boundary = text_[at_++] == 'b';
      return {.kind = RegexKind::kAssertion,
              .assertion = boundary ? Nfa::Assertion::kBoundary : Nfa::Assertion::kNoBoundary};
    }
    if (peek() == 'A' || peek() == 'Z' || peek() == 'z')
      fail("the regular expression has '\\{}', which ECMA-262 does not: write ^ or $", static_cast<char>(peek()));
    if (auto set = class_escape()) return set_node(std::move(*set));
    return set_node(one(character_escape()));
  }

  CharSet bracket() {
    ++at_;
    const bool negative = take("^");
    std::vector<Interval> all;
    const auto add = [&](const CharSet& set) { all.insert(all.end(), set.begin(), set.end()); };
    while (more() && peek() != ']') {
      // One end of a range; nothing for a class.
      const auto end = [&]() -> std::optional<std::uint32_t> {
        if (!take("\\")) return text_[at_++];
        if (!more()) fail("the regular expression ends with a backslash");
        if (take("b")) return '\b';
        if (auto set = class_escape()) {
          add(*set);
          return std::nullopt;
        }
        return character_escape();
      };
      const auto first = end();
      if (!first) continue;
      if (peek() != '-' || peek(1) == ']' || at_ + 1 >= text_.size()) {
        add(one(*first));
        continue;
      }
      ++at_;
      const auto last = end();
      if (!last) {  // [a-\d]
        add(one(*first));
        add(one('-'));
        continue;
      }
      if (*last < *first) fail("the regular expression has a range in brackets that ends before it begins");
      add(char_set({{*first, *last}}));
      if (!ignore_case_) continue;
      for (std::uint32_t c = *first; c <= std::min(*last, 0x45FU); ++c) add(one(c));
    }
    if (!take("]")) fail("the regular expression has a '[' that is never closed");
    const CharSet set = char_set(std::move(all));
    return negative ? complement_of(set) : set;
  }

  std::vector<std::uint32_t> text_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern) {
  return RegexParser(pattern).parse();
}

}  // namespace palimpsest::schema
