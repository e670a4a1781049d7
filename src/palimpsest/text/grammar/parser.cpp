#include "palimpsest/text/grammar/parser.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

using Element = GrammarRules::Element;
using Kind = GrammarRules::Kind;
using Range = GrammarRules::Range;

constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || is_digit(c);
}

// Sorts ranges and joins overlapping ones; the complement if `negated`.
std::vector<Range> normalized(std::vector<Range> ranges, bool negated) {
  std::ranges::sort(ranges, {}, &Range::first);
  std::vector<Range> merged;
  for (const Range& each : ranges) {
    if (!merged.empty() && each.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, each.last);
    else
      merged.push_back(each);
  }
  if (!negated) return merged;
  std::vector<Range> rest;
  std::uint32_t next = 0;
  for (const Range& each : merged) {
    if (each.first > next) rest.push_back({next, each.first - 1});
    next = each.last + 1;
  }
  if (next <= kMaxCodePoint) rest.push_back({next, kMaxCodePoint});
  return rest;
}

class Parser {
 public:
  Parser(std::string_view text, const Vocabulary* vocabulary) : text_(text), vocabulary_(vocabulary) {}

  ParsedGrammar parse() {
    if (text_.size() > kMaxGrammarBytes)
      fail("the grammar is {} bytes long: at most {} are taken", text_.size(), kMaxGrammarBytes);
    if (const auto at = invalid_utf8(text_)) fail("the grammar is not valid UTF-8 at byte {}", *at);
    skip_space(true);
    while (at_ < text_.size()) rule();
    return finished();
  }

 private:
  // A rule or a bracket being parsed.
  struct Frame {
    std::uint32_t rule = 0;
    std::size_t open_at = 0;
    std::vector<Element> sequence;         // the alternative so far
    std::optional<std::size_t> last = {};  // start of its last item, which a repetition applies to
  };

  template <typename... Args>
  [[noreturn]] void wrong(std::size_t at, fmt::format_string<Args...> format, Args&&... args) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    fail("the grammar is not valid GBNF: line {}: {}", line, fmt::format(format, std::forward<Args>(args)...));
  }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool at_end() const { return at_ >= text_.size(); }

  std::string found() const {
    if (at_end()) return "the end of the grammar";
    const auto c = static_cast<unsigned char>(peek());
    return c > 32 && c < 127 ? fmt::format("'{}'", peek())
           : c == '\n'       ? "the end of the line"
                             : fmt::format("byte {:#04x}", c);
  }

  void skip_space(bool newlines) {
    while (!at_end()) {
      const char c = peek();
      if (c == '#')
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      else if (c == ' ' || c == '\t' || (newlines && (c == '\r' || c == '\n')))
        ++at_;
      else
        break;
    }
  }

  std::string_view name() {
    const std::size_t begin = at_;
    while (is_word(peek())) ++at_;
    if (at_ == begin) wrong(at_, "a rule's name (letters, digits, '-') is expected, not {}", found());
    return text_.substr(begin, at_ - begin);
  }

  std::uint32_t new_rule(std::string_view name, std::size_t at) {
    count_elements(1);
    out_.names.emplace_back(name.substr(0, 60));
    offsets_.push_back(at);
    starts_.emplace_back();
    return static_cast<std::uint32_t>(starts_.size() - 1);
  }

  std::uint32_t rule_of(std::string_view name, std::size_t at) {
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) return known->second;
    const std::uint32_t rule = new_rule(name, at);
    by_name_[name] = rule;
    return rule;
  }

  void count_elements(std::size_t more) {
    elements_ += more;
    if (elements_ > kMaxGrammarElements)
      wrong(at_, "the grammar has more than {} elements after expanding repetitions: make it smaller",
            kMaxGrammarElements);
  }

  void rule() {
    const std::size_t begin = at_;
    const std::string_view called = name();
    skip_space(false);
    if (text_.substr(at_, 3) != "::=")
      wrong(at_, "'::=' is expected after '{}', not {}", called.substr(0, 60), found());
    at_ += 3;
    skip_space(true);
    const std::uint32_t number = rule_of(called, begin);
    if (!starts_[number].empty()) wrong(begin, "the rule '{}' is defined a second time", called.substr(0, 60));
    frames_.clear();
    frames_.push_back({.rule = number, .open_at = begin, .sequence = {}});
    while (item()) continue;
    close_alternative();
    skip_space(true);
  }

  // Parses one item of a sequence; false at the end of the rule.
  bool item() {
    const std::size_t begin = at_;
    const char c = peek();
    if (at_end() || c == '\r' || c == '\n') {  // inside brackets, line breaks are skipped
      if (frames_.size() > 1) wrong(frames_.back().open_at, "this '(' is never closed");
      return false;
    }
    switch (c) {
      case '"':
        literal();
        break;
      case '[':
        character_class();
        break;
      case '.':
        ++at_;
        add({Kind::kClass, class_of({{0, kMaxCodePoint}}, false)});
        break;
      case '<':
      case '!':
        token();
        break;
      case '(':
        if (frames_.size() > kMaxGrammarDepth)
          wrong(begin, "brackets are nested too deep: at most {} levels are taken", kMaxGrammarDepth);
        frames_.push_back(
            {.rule = new_rule(std::string(out_.names[frames_.front().rule]), begin), .open_at = begin, .sequence = {}});
        ++at_;
        skip_space(true);
        return true;
      case ')': {
        if (frames_.size() == 1) wrong(begin, "this ')' closes nothing");
        close_alternative();
        const std::uint32_t group = frames_.back().rule;
        frames_.pop_back();
        ++at_;
        add({Kind::kRule, group});
        break;
      }
      case '|':
        close_alternative();
        ++at_;
        skip_space(true);
        return true;
      case '*':
      case '+':
      case '?':
        ++at_;
        repeat(begin, c == '+' ? 1 : 0, c == '?' ? 1 : kUnbounded);
        break;
      case '{':
        counted_repetition();
        break;
      default:
        if (!is_word(c)) wrong(begin, "{} is not expected here", found());
        const std::string_view called = name();
        add({Kind::kRule, rule_of(called, begin)});
    }
    skip_space(frames_.size() > 1);
    return true;
  }

  void add(Element element) {
    count_elements(1);
    Frame& frame = frames_.back();
    frame.last = frame.sequence.size();
    frame.sequence.push_back(element);
  }

  std::uint32_t put_alternative(std::span<const Element> sequence) {
    auto& elements = out_.rules.elements;
    const auto begin = static_cast<std::uint32_t>(elements.size());
    elements.insert(elements.end(), sequence.begin(), sequence.end());
    elements.push_back({});
    return begin;
  }

  void close_alternative() {
    Frame& frame = frames_.back();
    count_elements(1);
    starts_[frame.rule].push_back(put_alternative(frame.sequence));
    frame.sequence.clear();
    frame.last.reset();
  }

  std::uint32_t hexadecimal(int digits) {
    const std::size_t begin = at_ - 2;
    std::uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = peek();
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) wrong(begin, "an escape of {} hexadecimal digits has fewer", digits);
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    if (value > kMaxCodePoint) wrong(begin, "U+{:X} is no character: the last is U+10FFFF", value);
    return value;
  }

  // Parses a character of a literal or a class; the text is valid UTF-8.
  std::uint32_t character() {
    if (peek() != '\\') {
      const auto lead = static_cast<unsigned char>(peek());
      const int length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      std::uint32_t value = length == 1 ? lead : lead & (0x7FU >> length);
      for (int i = 1; i < length; ++i) value = (value << 6) | (static_cast<unsigned char>(peek(i)) & 0x3FU);
      at_ += static_cast<std::size_t>(length);
      return value;
    }
    const char c = peek(1);
    at_ += 2;
    switch (c) {
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      case 'U':
        return hexadecimal(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        return static_cast<unsigned char>(c);
      default:
        at_ -= 2;
        wrong(at_,
              "there is no such escape; there are \\n, \\r, \\t, \\\\, \\\", \\[, \\], \\-, \\xHH, \\uHHHH and "
              "\\UHHHHHHHH");
    }
  }

  void literal() {
    const std::size_t begin = at_++;
    Frame& frame = frames_.back();
    frame.last = frame.sequence.size();
    while (peek() != '"' || at_end()) {
      if (at_end()) wrong(begin, "this '\"' is never closed");
      count_elements(1);
      frame.sequence.push_back({Kind::kCharacter, character()});
    }
    ++at_;
  }

  void character_class() {
    const std::size_t begin = at_++;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<Range> ranges;
    while (peek() != ']' || at_end()) {
      if (at_end()) wrong(begin, "this '[' is never closed");
      Range range;
      range.first = range.last = character();
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        range.last = character();
      }
      if (range.last < range.first) wrong(begin, "a range in brackets ends before it begins: exchange its ends");
      ranges.push_back(range);
    }
    ++at_;
    if (ranges.empty()) wrong(begin, "empty brackets match no character: leave them out, or write '.' for any");
    add({Kind::kClass, class_of(std::move(ranges), negated)});
  }

  std::uint32_t class_of(std::vector<Range> ranges, bool negated) {
    const auto kept = normalized(std::move(ranges), negated);
    auto& all = out_.rules.ranges;
    const auto begin = static_cast<std::uint32_t>(all.size());
    all.insert(all.end(), kept.begin(), kept.end());
    out_.rules.classes.push_back({begin, static_cast<std::uint32_t>(all.size())});
    return static_cast<std::uint32_t>(out_.rules.classes.size() - 1);
  }

  // <[123]> or <text>; with a preceding `!`: any other token.
  void token() {
    const std::size_t begin = at_;
    const bool other = peek() == '!';
    if (other) ++at_;
    if (peek() != '<') wrong(begin, "'<' is expected after '!'");
    const std::size_t end = text_.find('>', at_);
    if (end == std::string_view::npos || end - at_ > 200)
      wrong(begin, "a token is written <[number]> or <text>: its '>' is missing");
    const std::string_view whole = text_.substr(at_, end + 1 - at_);
    if (vocabulary_ == nullptr) wrong(begin, "tokens need a vocabulary: synthetic models have none");
    std::uint64_t id = 0;
    if (whole[1] == '[') {
      at_ += 2;
      id = number();
      if (text_.substr(at_, 2) != "]>") wrong(begin, "a token's number is written <[number]>");
    } else {
      const auto tokens = vocabulary_->tokenize(whole, false, true);
      if (tokens.size() != 1) wrong(begin, "{} is {} tokens of this model, not one", whole, tokens.size());
      id = static_cast<std::uint64_t>(tokens.front());
    }
    if (id >= static_cast<std::uint64_t>(vocabulary_->size()))
      wrong(begin, "the vocabulary has no token {}: its last is {}", id, vocabulary_->size() - 1);
    at_ = end + 1;
    add({other ? Kind::kNotToken : Kind::kToken, static_cast<std::uint32_t>(id)});
  }

  std::uint64_t number() {
    if (!is_digit(peek())) wrong(at_, "a number is expected, not {}", found());
    std::uint64_t value = 0;
    for (; is_digit(peek()); ++at_)
      value = std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(peek() - '0'), 1'000'000'000'000);
    return value;
  }

  void counted_repetition() {
    const std::size_t begin = at_++;
    skip_space(false);
    const std::uint64_t min = number();
    std::uint64_t max = min;
    skip_space(false);
    if (peek() == ',') {
      ++at_;
      skip_space(false);
      max = is_digit(peek()) ? number() : kUnbounded;
      skip_space(false);
    }
    if (peek() != '}') wrong(begin, "a repetition is written {{n}}, {{n,}} or {{n,m}}: {} is not expected", found());
    ++at_;
    if (max < min) wrong(begin, "the repetition {{{},{}}} ends below its beginning: exchange the numbers", min, max);
    repeat(begin, min, max);
  }

  // The last item becomes   item item ... (min times) rest,   where
  //   rest  ::= item rest |          without an upper bound
  //   rest1 ::= item | , rest2 ::= item rest1 | , ...   with one
  void repeat(std::size_t at, std::uint64_t min, std::uint64_t max) {
    Frame& frame = frames_.back();
    auto& sequence = frame.sequence;
    if (!frame.last || *frame.last == sequence.size()) wrong(at, "there is nothing before this repetition");
    const std::uint64_t optional = max == kUnbounded ? 1 : max - min;
    if (min > kMaxGrammarElements || optional > kMaxGrammarElements)
      wrong(at, "{} repetitions are too many: write at most some thousands, or no upper bound",
            min > kMaxGrammarElements ? min : max);
    const std::string called = out_.names[frames_.front().rule];

    const std::size_t begin = *frame.last;
    Element item = sequence[begin];
    if (sequence.size() - begin > 1) {  // a literal of several characters
      const std::uint32_t whole = new_rule(called, at);
      starts_[whole].push_back(put_alternative(std::span(sequence).subspan(begin)));
      count_elements(1);
      item = {Kind::kRule, whole};
    }
    count_elements(min + 4 * optional);
    sequence.resize(begin);
    sequence.insert(sequence.end(), min, item);
    if (optional == 0) return;
    std::uint32_t rest = 0;
    for (std::uint64_t i = 0; i < optional; ++i) {
      const std::uint32_t before = std::exchange(rest, new_rule(called, at));
      const std::array<Element, 2> more = {item, Element{Kind::kRule, max == kUnbounded ? rest : before}};
      starts_[rest].push_back(put_alternative(std::span(more).first(i > 0 || max == kUnbounded ? 2 : 1)));
      starts_[rest].push_back(put_alternative({}));
    }
    sequence.push_back({Kind::kRule, rest});
    frame.last = begin;
  }

  ParsedGrammar finished() {
    GrammarRules& rules = out_.rules;
    for (const auto& starts : starts_) {
      const auto begin = static_cast<std::uint32_t>(rules.alternatives.size());
      rules.alternatives.insert(rules.alternatives.end(), starts.begin(), starts.end());
      rules.rules.push_back({begin, static_cast<std::uint32_t>(rules.alternatives.size())});
    }
    std::size_t line = 1, counted = 0;
    std::vector<std::size_t> order(offsets_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return offsets_[i]; });
    out_.lines.resize(offsets_.size());
    for (const std::size_t i : order) {
      for (; counted < offsets_[i]; ++counted) line += text_[counted] == '\n' ? 1 : 0;
      out_.lines[i] = line;
    }
    const auto root = by_name_.find("root");
    out_.has_root = root != by_name_.end() && !starts_[root->second].empty();
    if (out_.has_root) rules.root = root->second;
    return std::move(out_);
  }

  std::string_view text_;
  const Vocabulary* vocabulary_;
  std::size_t at_ = 0, elements_ = 0;
  std::vector<Frame> frames_;
  std::unordered_map<std::string_view, std::uint32_t> by_name_;
  std::vector<std::vector<std::uint32_t>> starts_;  // of each rule's alternatives
  std::vector<std::size_t> offsets_;                // byte offset of each rule's first mention
  ParsedGrammar out_;
};

}  // namespace

ParsedGrammar parse_grammar(std::string_view text, const Vocabulary* vocabulary) {
  return Parser(text, vocabulary).parse();
}

}  // namespace palimpsest
