#include "palimpsest/text/schema/value.h"

#include <algorithm>
#include <cmath>

namespace palimpsest::schema {
namespace {

__extension__ using Wide = unsigned __int128;

Decimal normal(Decimal value) {
  const std::size_t first = value.digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  value.digits.erase(0, first);
  while (value.digits.back() == '0') {
    value.digits.pop_back();
    ++value.exponent;
  }
  return value;
}

}  // namespace

Decimal decimal_of(const Json& number) {
  const std::string text = number.dump();
  Decimal out{.digits = ""};
  std::size_t at = 0;
  if (text[at] == '-') {
    out.negative = true;
    ++at;
  }
  bool fraction = false;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      fraction = true;
      continue;
    }
    out.digits += text[at];
    if (fraction) --out.exponent;
  }
  if (at < text.size()) out.exponent += std::stoi(text.substr(at + 1));
  return normal(out);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_zero() && b.is_zero()) return 0;
  if (a.is_zero()) return b.negative ? 1 : -1;
  if (b.is_zero()) return a.negative ? -1 : 1;
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sign = a.negative ? -1 : 1;
  const auto size = [](const Decimal& each) { return static_cast<int>(each.digits.size()) + each.exponent; };
  if (size(a) != size(b)) return size(a) < size(b) ? -sign : sign;
  const int order = a.digits.compare(b.digits);  // digits after the last are zeros
  return order < 0 ? -sign : order > 0 ? sign : 0;
}

std::optional<bool> is_multiple(const Decimal& a, const Decimal& b) {
  if (a.is_zero()) return true;
  const int low = std::min(a.exponent, b.exponent);
  const std::size_t zeros_a = static_cast<std::size_t>(a.exponent - low);
  const std::size_t zeros_b = static_cast<std::size_t>(b.exponent - low);
  if (b.digits.size() + zeros_b > 30 || a.digits.size() + zeros_a > 1000) return std::nullopt;
  Wide divisor = 0, rest = 0;
  for (const char c : b.digits + std::string(zeros_b, '0')) divisor = divisor * 10 + static_cast<unsigned>(c - '0');
  for (const char c : a.digits + std::string(zeros_a, '0'))
    rest = (rest * 10 + static_cast<unsigned>(c - '0')) % divisor;
  return rest == 0;
}

std::string text_of(const Decimal& value) {
  std::string out = value.digits;
  if (value.exponent >= 0) {
    out.append(static_cast<std::size_t>(value.exponent), '0');
  } else {
    const auto places = static_cast<std::size_t>(-value.exponent);
    if (out.size() <= places) out.insert(0, places + 1 - out.size(), '0');
    out.insert(out.size() - places, ".");
  }
  return value.is_zero() ? "0" : value.negative ? "-" + out : out;
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a == b || decimal_of(a) == decimal_of(b);
  if (a.is_object() && b.is_object()) {
    if (a.size() != b.size()) return false;
    for (const auto& [name, value] : a.items()) {
      const auto at = b.find(name);
      if (at == b.end() || !same_value(value, *at)) return false;
    }
    return true;
  }
  if (a.is_array() && b.is_array()) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same_value);
  }
  return a == b;
}

std::string brief(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= 80) return text;
  text.resize(77);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80) text.pop_back();
  if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
  return text + "...";
}

std::optional<std::size_t> count_of(const Json& value) {
  constexpr double kMax = 1e9;
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(number >= 0) || std::floor(number) != number) return std::nullopt;
  return static_cast<std::size_t>(std::min(number, kMax));
}

}  // namespace palimpsest::schema
