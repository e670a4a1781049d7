// JSON values: exact numbers, equality as JSON Schema defines it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace palimpsest::schema {

using Json = nlohmann::ordered_json;

// digits * 10^exponent; zero has the digits "0". Digits have no zeros at either end.
struct Decimal {
  bool negative = false;
  std::string digits = "0";
  int exponent = 0;

  bool is_zero() const { return digits == "0"; }
  bool is_integer() const { return exponent >= 0; }
  bool operator==(const Decimal&) const = default;
};

Decimal decimal_of(const Json& number);
int compare(const Decimal& a, const Decimal& b);  // -1, 0, 1
// Whether a is a multiple of b, which is positive; nothing if they have too many digits.
std::optional<bool> is_multiple(const Decimal& a, const Decimal& b);
std::string text_of(const Decimal& value);  // without an exponent

bool same_value(const Json& a, const Json& b);  // 1 and 1.0 are the same, the order of members does not matter
std::string brief(const Json& value);           // for messages

// A bound or a count: an integer from 0 on, maybe written as 2.0. Nothing for anything else. Larger ones are 10^9.
std::optional<std::size_t> count_of(const Json& value);

}  // namespace palimpsest::schema
