// Upper and lower case of ASCII letters, whatever the locale; other bytes stay as they are.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace palimpsest {

constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
constexpr char upper_case(char c) {
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

inline std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return lower_case(c); });
  return out;
}
inline std::string upper_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return upper_case(c); });
  return out;
}
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](char c) { return lower_case(c); }, [](char c) { return lower_case(c); });
}

}  // namespace palimpsest
