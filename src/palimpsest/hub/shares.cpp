#include "palimpsest/hub/shares.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace palimpsest {
namespace {

constexpr auto kShares = std::to_array<std::pair<std::string_view, std::string_view>>({
#define ENTRY(name, text) {name, text},
#include "hub_shares.inc"
#undef ENTRY
});

}  // namespace

std::string_view shares_of(std::string_view name) {
  const auto found = std::ranges::find(kShares, std::string(name) + ".profile", &decltype(kShares)::value_type::first);
  return found == kShares.end() ? std::string_view() : found->second;
}

}  // namespace palimpsest
