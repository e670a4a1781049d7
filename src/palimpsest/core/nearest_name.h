// Misspelt names: which known one was probably meant.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace palimpsest {

// The candidate that a misspelt name probably means; none: all of them differ too much.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);
// "; did you mean 'smollm2'?", or "".
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace palimpsest
