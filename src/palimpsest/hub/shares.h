// Shares of heads of models of the catalogue, as `palimpsest fit` makes them (budget/split.h): method auto uses them.
#pragma once

#include <string_view>

namespace palimpsest {

// The text of MODEL.profile for a model of the catalogue; empty: it has none.
std::string_view shares_of(std::string_view name);

}  // namespace palimpsest
