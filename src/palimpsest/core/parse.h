// Parses user input: numbers in a range, one of several names, "key=value" lists. Throws Error for bad input.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace palimpsest {

// `what` names the value in messages, as in "budget".
long long parse_integer(std::string_view text, std::string_view what, long long min, long long max);
double parse_real(std::string_view text, std::string_view what, double min, double max);
// "256MiB", "1.5GiB", "64KiB", "4096B": at least one byte.
std::size_t parse_bytes(std::string_view text, std::string_view what);
std::string spell_bytes(std::size_t bytes);  // the shortest text that parse_bytes reads as `bytes`
// The index of `text` among `names`.
std::size_t parse_choice(std::string_view text, std::string_view what, std::span<const std::string_view> names);
// "a=1,b=2" -> {a, 1}, {b, 2}; views into `text`. Empty text: no pairs. `what` names the list.
std::vector<std::pair<std::string_view, std::string_view>> parse_pairs(std::string_view text, std::string_view what);
// "a, b or c"
std::string list_names(std::span<const std::string_view> names);

}  // namespace palimpsest
