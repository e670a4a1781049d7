#include "palimpsest/text/schema/numbers.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

namespace palimpsest::schema {
namespace {

constexpr std::size_t kDigits = 15;     // a double has these exactly
constexpr std::size_t kMaxDigits = 60;  // before the point
constexpr unsigned kMaxModulus = 2000;

// Digits of |value| * 10^places, rounded down; `exact`: nothing was cut off.
std::string scaled(const Decimal& value, std::size_t places, bool& exact) {
  exact = true;
  const int shift = value.exponent + static_cast<int>(places);
  if (shift >= 0) return value.digits + std::string(value.is_zero() ? 0 : static_cast<std::size_t>(shift), '0');
  exact = value.is_zero();
  const auto cut = static_cast<std::size_t>(-shift);
  return cut >= value.digits.size() ? "0" : value.digits.substr(0, value.digits.size() - cut);
}

std::string plus_one(std::string digits) {
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
    digits[i] = '0';
  }
  return "1" + digits;
}

std::string minus_one(std::string digits) {  // of a number above 0
  for (std::size_t i = digits.size(); i-- > 0;) {
    if (digits[i] != '0') {
      --digits[i];
      break;
    }
    digits[i] = '9';
  }
  const auto first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : digits.substr(first);
}

bool less(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

// Magnitudes from `low` to `high` (nothing: without an end), as bounds of the value.
struct Magnitudes {
  std::optional<Bound> low, high;
  bool without_zero = false;
};

class NumberBuilder {
 public:
  NumberBuilder(Work& work, bool fractions)
      : work_(work), fractions_(fractions), start_(nfa_.add()), final_(nfa_.add()) {}

  // Adds "-" or "" and the digits of the magnitudes.
  void add(bool negative, const Magnitudes& range) {
    const auto length = [](const std::optional<Bound>& bound) {
      if (!bound || bound->value.is_zero()) return std::size_t{1};
      const long long digits = static_cast<long long>(bound->value.digits.size()) + bound->value.exponent;
      return static_cast<std::size_t>(std::max(digits, 1LL));
    };
    const auto places = [](const std::optional<Bound>& bound) {
      return bound && bound->value.exponent < 0 ? static_cast<std::size_t>(-bound->value.exponent) : std::size_t{0};
    };
    const std::size_t first = length(range.low);
    const std::size_t last = range.high ? length(range.high) : std::max(kDigits, first + 1);
    if (last > kMaxDigits) throw TooComplex("the bounds have too many digits");
    const std::size_t exact = std::max(places(range.low), places(range.high));
    if (exact > kMaxDigits) throw TooComplex("the bounds have too many digits");
    std::uint32_t from = start_;
    if (negative) {
      from = nfa_.add();
      character('-', start_, from);
    }
    for (std::size_t digits = first; digits <= last; ++digits) {
      // A little finer than the bounds, so that something is between them.
      const std::size_t fraction =
          fractions_
              ? std::min(std::max(digits < kDigits ? kDigits - digits : 0, exact == 0 ? 0 : exact + 1), kDigits + 5)
              : 0;
      add_digits(from, digits, fraction, range);
    }
  }

  Dfa result() { return determinize(nfa_, start_, final_, false, true, work_); }

 private:
  void characters(std::uint32_t first, std::uint32_t last, std::uint32_t from, std::uint32_t to) {
    const std::uint32_t at = nfa_.add();
    nfa_.link(from, at);
    nfa_.states[at].set = static_cast<std::int32_t>(nfa_.set({{first, last}}));
    nfa_.states[at].to = to;
    work_.spend(4);
  }
  void character(char c, std::uint32_t from, std::uint32_t to) {
    characters(static_cast<unsigned char>(c), static_cast<unsigned char>(c), from, to);
  }

  // Numbers with so many digits before the point, and at most `fraction` after it.
  void add_digits(std::uint32_t from, std::size_t digits, std::size_t fraction, const Magnitudes& range) {
    std::string low = digits == 1 ? "0" : "1" + std::string(digits - 1, '0');
    low = digits == 1 ? "0" : low + std::string(fraction, '0');
    std::string high = std::string(digits + fraction, '9');
    bool exact = false;
    if (range.low) {
      std::string bound = scaled(range.low->value, fraction, exact);
      if (!exact || range.low->open) bound = plus_one(bound);
      if (less(low, bound)) low = bound;
    }
    if (range.without_zero && low == "0") low = "1";
    if (range.high) {
      std::string bound = scaled(range.high->value, fraction, exact);
      if (exact && range.high->open) {
        if (bound == "0") return;
        bound = minus_one(bound);
      }
      if (less(bound, high)) high = bound;
    }
    if (less(high, low)) return;
    const std::size_t size = digits + fraction;
    low.insert(0, size - low.size(), '0');
    high.insert(0, size - high.size(), '0');
    // States by position and whether the digits so far are those of a bound. Missing digits are zeros.
    enum { kFree, kLow, kHigh, kBoth, kStates };
    std::array<std::uint32_t, kStates> current{};
    std::array<bool, kStates> used{};
    current[kBoth] = from;
    used[kBoth] = true;
    for (std::size_t i = 0; i < size; ++i) {
      std::array<std::uint32_t, kStates> next{};
      for (auto& each : next) each = nfa_.add();
      std::array<bool, kStates> reached{};
      for (int state = 0; state < kStates; ++state) {
        if (!used[static_cast<std::size_t>(state)]) continue;
        std::uint32_t at = current[static_cast<std::size_t>(state)];
        const bool at_low = state == kLow || state == kBoth, at_high = state == kHigh || state == kBoth;
        if (i >= digits && (!at_low || low.find_first_not_of('0', i) == std::string::npos) && i == digits)
          nfa_.link(at, final_);
        if (i == digits) {
          const std::uint32_t point = nfa_.add();
          character('.', at, point);
          at = point;
        }
        const char first = at_low ? low[i] : '0', last = at_high ? high[i] : '9';
        for (char c = first; c <= last; ++c) {
          const bool stays_low = at_low && c == low[i], stays_high = at_high && c == high[i];
          const std::size_t to = stays_low && stays_high ? kBoth : stays_low ? kLow : stays_high ? kHigh : kFree;
          character(c, at, next[to]);
          reached[to] = true;
        }
      }
      current = next;
      used = reached;
      if (i + 1 > digits)  // after a digit of the fraction
        for (std::size_t state = 0; state < kStates; ++state) {
          const bool at_low = state == kLow || state == kBoth;
          if (used[state] && (!at_low || low.find_first_not_of('0', i + 1) == std::string::npos))
            nfa_.link(current[state], final_);
        }
    }
    if (fraction == 0)
      for (std::size_t state = 0; state < kStates; ++state)
        if (used[state]) nfa_.link(current[state], final_);
  }

  Work& work_;
  bool fractions_;
  Nfa nfa_;
  std::uint32_t start_, final_;
};

// The digits of multiples of `value`, with a sign. Missing digits after the point are zeros.
Dfa multiples_of(const Decimal& value, Work& work) {
  Decimal step = value;
  const std::size_t places = value.exponent < 0 ? static_cast<std::size_t>(-value.exponent) : 0;
  if (value.exponent > 0) step.digits.append(static_cast<std::size_t>(std::min(value.exponent, 20)), '0');
  if (step.digits.size() > 4 || places > kDigits || std::stoul(step.digits) > kMaxModulus)
    throw TooComplex("its digits need too many states: up to 2,000 are supported, times a power of ten below 1");
  const auto modulus = static_cast<std::uint32_t>(std::stoul(step.digits));
  Dfa out{.alphabet = alphabet_of(
              {char_set({{'-', '-'}}), char_set({{'.', '.'}}), char_set({{'0', '0'}}), char_set({{'1', '1'}}),
               char_set({{'2', '2'}}), char_set({{'3', '3'}}), char_set({{'4', '4'}}), char_set({{'5', '5'}}),
               char_set({{'6', '6'}}), char_set({{'7', '7'}}), char_set({{'8', '8'}}), char_set({{'9', '9'}})},
              work),
          .next = {},
          .accepts = {}};
  // State: (digits after the point + 1, or 0 before it) * modulus + remainder.
  const std::size_t levels = places > 0 ? places + 2 : 1;
  const std::size_t classes = out.alphabet.count, states = levels * modulus;
  if (states > kMaxStates) throw TooComplex("it needs too many states");
  work.spend(states * classes);
  out.next.assign(states * classes, Dfa::kDead);
  for (std::size_t state = 0; state < states; ++state) {
    const std::size_t level = state / modulus;
    const auto rest = static_cast<std::uint32_t>(state % modulus);
    std::uint64_t value_at_end = rest;
    for (std::size_t i = level == 0 ? 0 : level - 1; i < places; ++i) value_at_end = value_at_end * 10 % modulus;
    out.accepts.push_back(value_at_end % modulus == 0 && level != 1);
    const auto to = [&](std::uint32_t c) -> std::int32_t& {
      return out.next[state * classes + out.alphabet.class_of(c)];
    };
    if (state == 0) to('-') = 0;
    if (level == 0 && places > 0) to('.') = static_cast<std::int32_t>(modulus + rest);
    const std::size_t next = level == 0 ? 0 : level + 1;
    if (next < levels)
      for (std::uint32_t d = 0; d < 10; ++d)
        to('0' + d) = static_cast<std::int32_t>(next * modulus + (rest * 10 + d) % modulus);
  }
  return out;
}

// Bounds that are large and not exact in a double are taken one step further inside.
Bound inside(Bound bound, int sign) {
  const int size = static_cast<int>(bound.value.digits.size()) + bound.value.exponent;
  if (size <= static_cast<int>(kDigits) + 5 || bound.value.digits.size() > 17) return bound;
  Decimal& value = bound.value;  // d * 10^e -> (d +- 1) * 10^e
  value.digits = (value.negative ? -sign : sign) > 0 ? plus_one(value.digits) : minus_one(value.digits);
  return bound;
}

}  // namespace

namespace {

std::shared_ptr<const Dfa> made_numbers(const Branch& branch, Session& session) {
  const bool integers = (branch.types & kInteger) != 0, fractions = (branch.types & kFraction) != 0;
  Work& work = session.work;
  std::optional<Bound> low = branch.low, high = branch.high;
  if (low) low = inside(*low, 1);
  if (high) high = inside(*high, -1);
  NumberBuilder builder(work, fractions);
  const Decimal zero;
  const auto magnitude = [](const std::optional<Bound>& bound) {
    std::optional<Bound> out = bound;
    if (out) out->value.negative = false;
    return out;
  };
  if (!high || compare(high->value, zero) >= 0)
    builder.add(false, {.low = low && !low->value.negative ? low : std::nullopt, .high = high});
  if (!low || low->value.negative)
    builder.add(true, {.low = high && (high->value.negative) ? magnitude(high) : std::nullopt,
                       .high = magnitude(low),
                       .without_zero = true});
  Dfa out = builder.result();
  if (!integers) out = combine(out, session.regexes.get("^-?[0-9]+\\.[0-9]*[1-9][0-9]*$"), Combine::kAnd, work);
  for (const auto& [owner, step] : branch.multiples) {
    try {
      out = combine(out, multiples_of(step, work), Combine::kAnd, work);
    } catch (const TooComplex& error) {
      session.drop(owner, "multipleOf", error.what());
    }
  }
  for (const Json* value : branch.not_values) {
    if (!value->is_number()) continue;
    const Decimal number = decimal_of(*value);
    if (std::abs(number.exponent) > 100) continue;
    std::string pattern = text_of(number);
    const bool point = pattern.find('.') != std::string::npos;
    if (point) pattern.replace(pattern.find('.'), 1, "\\.");
    out = combine(out, session.regexes.get("^" + pattern + (point ? "0*$" : "(\\.0*)?$")), Combine::kWithout, work);
  }
  return std::make_shared<const Dfa>(minimized(std::move(out), work));
}

}  // namespace

std::shared_ptr<const Dfa> numbers_of(const Branch& branch, Session& session) {
  if (branch.plain_numbers() && (branch.types & kInteger) != 0) return nullptr;
  std::string key = fmt::format("{}", branch.types & (kInteger | kFraction));
  const auto add_bound = [&](const std::optional<Bound>& bound) {
    key += bound ? fmt::format(" {}{}{}e{}", bound->open, bound->value.negative ? "-" : "", bound->value.digits,
                               bound->value.exponent)
                 : " none";
  };
  add_bound(branch.low);
  add_bound(branch.high);
  for (const auto& [owner, step] : branch.multiples) key += fmt::format(" m{}e{}", step.digits, step.exponent);
  for (const Json* each : branch.not_values)
    if (each->is_number()) key += " n" + each->dump();
  const auto known = session.numbers.find(key);
  if (known != session.numbers.end()) return known->second;
  return session.numbers.insert_or_assign(key, made_numbers(branch, session)).first->second;
}

}  // namespace palimpsest::schema
