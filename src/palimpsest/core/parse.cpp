#include "palimpsest/core/parse.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "palimpsest/core/error.h"
#include "palimpsest/core/nearest_name.h"

namespace palimpsest {

long long parse_integer(std::string_view text, std::string_view what, long long min, long long max) {
  long long value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  if (fault == std::errc::invalid_argument || stop != end)
    fail("{} '{}' is not a whole number: use {} to {}", what, text, min, max);
  if (fault == std::errc::result_out_of_range || value < min || value > max)
    fail("{} {} is out of range: use {} to {}", what, text, min, max);
  return value;
}

namespace {

struct Unit {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<Unit, 4> kUnits = {{{"GiB", 1U << 30}, {"MiB", 1U << 20}, {"KiB", 1U << 10}, {"B", 1}}};

}  // namespace

std::size_t parse_bytes(std::string_view text, std::string_view what) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    double value = 0;
    const char* end = text.data() + text.size() - unit.name.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    value *= static_cast<double>(unit.bytes);
    if (error == std::errc() && stop == end && value >= 1 && value <= 0x1p50) return static_cast<std::size_t>(value);
    break;
  }
  fail("{} '{}' is no size: use B, KiB, MiB or GiB, as in 256MiB", what, text);
}

std::string spell_bytes(std::size_t bytes) {
  for (const Unit& unit : kUnits)
    if (bytes % unit.bytes == 0) return fmt::format("{}{}", bytes / unit.bytes, unit.name);
  return {};
}

std::string list_names(std::span<const std::string_view> names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) list += i + 1 < names.size() ? ", " : " or ";
    list += names[i];
  }
  return list;
}

double parse_real(std::string_view text, std::string_view what, double min, double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= min && value <= max))
    fail("{} '{}': a number from {} to {}", what, text, min, max);
  return value;
}

std::size_t parse_choice(std::string_view text, std::string_view what, std::span<const std::string_view> names) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end()) {
    constexpr std::size_t kShortList = 8;  // is read whole
    std::string near;
    if (names.size() > kShortList) near = did_you_mean(text, std::vector<std::string>(names.begin(), names.end()));
    fail("unknown {} '{}'{} {}", what, text, near.empty() ? ": use" : near + " Use", list_names(names));
  }
  return static_cast<std::size_t>(found - names.begin());
}

std::vector<std::pair<std::string_view, std::string_view>> parse_pairs(std::string_view text, std::string_view what) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto item = text.substr(0, comma);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
      fail("'{}' in {} is not key=value", item, what);
    pairs.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) fail("a comma at the end of {}", what);
  }
  return pairs;
}

}  // namespace palimpsest
